#include "tests/device/device.h"

namespace megalith::test {

namespace {
bool is_attention(const Case& c) { return c.op == "attention_forward" || c.op == "attention_backward"; }

void alone(const Case& c, const std::function<void()>& check) {
  try {
    check();
  } catch (const std::exception& error) {
    if (device_is_lost()) throw;
    ADD_FAILURE() << c.name() << ": " << error.what();
  }
}
}  // namespace

double rounded_weights(const Case& c, const Arg& arg, int64_t offset, double largest) {
  if (!is_attention(c) || offset != 0 || !is_16_bit(arg.dtype)) return 0;
  return (arg.dtype == DType::bf16 ? 0x1p-9 : 0x1p-12) * largest;
}

namespace {
Bits compared(const Case& c, int64_t offset, const cuda::Chip& chip) {
  SCOPED_TRACE(c.name() + fmt::format(" offset {}, as for generation {} with {} bytes of shared memory", offset,
                                      chip.generation, chip.shared_memory));
  Doubles want = doubles(c);
  c.twin(want);
  const Memories got = on_device(c, offset, chip);
  for (size_t a = 0; a < c.args.size(); a++) {
    const Arg& arg = c.args[a];
    if (arg.scratch || !arg.written) continue;
    const Values& values = want[arg.name];
    double largest = 0;
    for (double v : values)
      if (std::isfinite(v)) largest = std::max(largest, std::abs(v));
    for (int64_t i = 0; i < arg.shape.numel(); i++) {
      const double v = values[static_cast<size_t>(i)], is = got.memory[a].get(i);
      if (is == v) continue;
      if (std::abs(is - v) <= tolerance(arg.dtype, v, largest) + rounded_weights(c, arg, offset, largest) +
                                  library_gelu(c, want, arg, i, offset))
        continue;
      ADD_FAILURE() << arg.name << "[" << i << "] is " << is << ", the twin has " << v;
      return bits_of(got);
    }
  }
  return bits_of(got);
}
}  // namespace

Bits agrees_with_its_twin(const Case& c, int64_t offset, const cuda::Chip& chip) {
  Bits found;
  alone(c, [&] { found = compared(c, offset, chip); });
  return found;
}

Bits bits_of(const Memories& memories) {
  Bits all;
  for (const Memory& m : memories.memory) all.push_back(m.bits());
  return all;
}

void gives_again(const Bits& one, const Case& c) {
  if (one.empty()) return;  // it has failed
  SCOPED_TRACE(c.name());
  alone(c, [&] {
    const Bits two = bits_of(on_device(c, 0));
    for (size_t a = 0; a < one.size(); a++)
      if (!c.args[a].scratch) {
        EXPECT_TRUE(one[a] == two[a]) << c.args[a].name;
      }
  });
}

}  // namespace megalith::test
