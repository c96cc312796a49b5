// No kernel that nvcc makes is left out: every .entry of every module, so every template instance, runs in a case that
// agrees with its twin.
#include <utility>

#include "cases.h"
#include "tests/device/device.h"
#include "tests/ptx/library.h"

namespace megalith::test {
namespace {

std::vector<std::string> not_run() {
  std::vector<std::string> names;
  for (const auto& [name, kernel] : ptx::library().kernels)
    if (!kernel->launches) names.push_back(name);
  return names;
}

// f32 to a type and back, where it lies.
Case in_place_case(DType t) {
  Case c = copy_case(4097, t, DType::f32);
  c.args = {out("x", DType::f32, {4097})};
  c.run = [t](Stream& s, const Tensors& a) {
    const Tensor narrow(a[0].raw(), t, {a[0].numel()});
    launch(s, Copy{.y = narrow, .x = a[0]});
    launch(s, Copy{.y = a[0], .x = narrow});
  };
  c.twin = [t](Doubles& d) {
    for (double& v : d["x"]) v = rounded(v, t);
  };
  return c;
}

// Beside the twin, the machine of tests/simt: the same but for a weight here and there that is rounded the other way.
void agrees_with_simt(const Case& c, const cuda::Chip& chip) {
  SCOPED_TRACE(c.name() + fmt::format(" as for generation {} with {} bytes of shared memory", chip.generation,
                                      chip.shared_memory));
  const Memories got = on_device(c, 0, chip);
  const simt::Executor interpreter = std::exchange(simt::executor(), nullptr);
  const Memories want = on_device(c, 0, chip);
  simt::executor() = interpreter;
  for (size_t a = 0; a < c.args.size(); a++) {
    double largest = 0;
    const Arg& arg = c.args[a];
    if (arg.scratch) continue;
    for (int64_t i = 0; i < arg.shape.numel() && arg.written; i++)
      largest = std::max(largest, std::abs(want.memory[a].get(i)));
    for (int64_t i = 0; i < arg.shape.numel() && arg.written; i++) {
      const double v = want.memory[a].get(i);
      ASSERT_NEAR(got.memory[a].get(i), v, tolerance(arg.dtype, v, largest) + rounded_weights(c, arg, 0, largest))
          << arg.name << "[" << i << "]";
    }
  }
}

TEST(PtxCoverage, EveryKernelRuns) {
  for (int64_t D = 64; D <= 128; D += 16)
    for (double p : {0.0, 0.2})
      for (DType t : {bf16, f16})
        for (Case c : {attention_forward_case({1, 129, 1, D}, p, t), attention_backward_case({1, 129, 1, D}, p, t)}) {
          Doubles result = doubles(c);  // once for all chips
          c.twin(result);
          c.twin = [&](Doubles& d) { d = result; };
          for (const cuda::Chip& chip : {ampere, small_ampere, hopper, blackwell}) {
            if (chip.generation == 10 && D < 112) continue;  // the tiles of an A100
            agrees_with_its_twin(c, 0, chip);
            agrees_with_simt(c, chip);
          }
        }
  for (DType t : {bf16, f16})  // heads apart that share keys
    agrees_with_its_twin(attention_backward_case({1, 129, 2, 128, 0, 1}, 0.2, t), 0, hopper);
  // LayerNorm has a kernel for every number of parts that a thread holds.
  for (int64_t C : {256, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192})
    for (const Types t : {Types(f32), Types(bf16), Types(f16), Types(bf16, f32), Types(f16, f32)}) {
      for (const Case& c : {layernorm_forward_case(1, C, t), layernorm_backward_case(1, C, t)}) agrees_with_its_twin(c);
      for (double p : {0.0, 0.5})
        for (const Case& c :
             {residual_layernorm_forward_case(1, C, p, t), residual_layernorm_backward_case(1, C, p, t)})
          agrees_with_its_twin(c);
    }
  // The norm of heads has one for every number of lanes that hold a head.
  for (int64_t D : {96, 200})
    for (const Case& c : {head_norm_forward_case({1, 2, 2, D}, f16), head_norm_backward_case({1, 2, 2, D}, f16)})
      agrees_with_its_twin(c);
  for (DType t : {bf16, f16}) agrees_with_its_twin(in_place_case(t));
  for (const Op& op : all_ops())
    for (const Case& c : op.cases())
      for (int64_t offset : {0, 1})
        if (!not_run().empty() && (offset == 0 || (!c.aligned && !c.op.starts_with("attention"))))
          agrees_with_its_twin(c, offset);
  EXPECT_EQ(not_run(), std::vector<std::string>()) << "needs a case";
}

}  // namespace
}  // namespace megalith::test
