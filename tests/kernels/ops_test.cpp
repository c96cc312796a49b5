// Every case: against its twin on aligned and misaligned memory, the same bits twice and for 1, 2 and 3 threads, the
// same cost on a dry stream that touches nothing, what it says that it writes, and errors that name op and tensor.
#include <gtest/gtest.h>
#include <omp.h>

#include <set>

#include "cases.h"

namespace megalith::test {
namespace {

class Ops : public testing::TestWithParam<Op> {
 protected:
  void SetUp() override { omp_set_num_threads(2); }
};

std::vector<std::vector<unsigned char>> bits_after(const Case& c, int threads, int64_t offset = 0) {
  omp_set_num_threads(threads);
  Memories memories(c, offset);
  Stream s(World::cpu);
  c.run(s, memories.tensors());
  omp_set_num_threads(2);
  std::vector<std::vector<unsigned char>> bits;
  for (const Memory& m : memories.memory) bits.push_back(m.bits());
  return bits;
}

void agrees_with_its_twin(const Case& c) {
  Doubles want = doubles(c);
  c.twin(want);
  for (int64_t offset : {0, 1, 3}) {
    if (c.aligned && offset != 0) continue;
    Memories memories(c, offset);
    Stream s(World::cpu);
    c.run(s, memories.tensors());
    for (size_t a = 0; a < c.args.size(); a++) {
      const Arg& arg = c.args[a];
      const Memory& memory = memories.memory[a];
      ASSERT_TRUE(memory.guards_intact()) << arg.name << " was written outside";
      if (arg.scratch) continue;
      const Values& values = arg.written ? want[arg.name] : arg.values;
      double largest = 0;
      for (double v : values)
        if (std::isfinite(v)) largest = std::max(largest, std::abs(v));
      for (int64_t i = 0; i < arg.shape.numel(); i++) {
        const double v = values[static_cast<size_t>(i)];
        // Infinities are compared as they are; NaN is padding that an op must neither read nor write.
        if (memory.get(i) == v || (!arg.written && std::isnan(v) && std::isnan(memory.get(i)))) continue;
        const double limit = arg.written ? tolerance(arg.dtype, v, largest) : 0;
        ASSERT_LE(std::abs(memory.get(i) - v), limit)
            << arg.name << "[" << i << "] is " << memory.get(i) << ", the twin has " << v << ", offset " << offset;
      }
    }
  }
}

using Bits = std::vector<std::vector<unsigned char>>;
// The first argument that differs, or nothing.
std::string difference(const Case& c, const Bits& a, const Bits& b) {
  for (size_t i = 0; i < a.size(); i++)
    if (a[i] != b[i]) return c.args[i].name;
  return "";
}

void same_bits(const Case& c) {
  const Bits one = bits_after(c, 1), two = bits_after(c, 2);
  EXPECT_EQ(difference(c, two, bits_after(c, 2)), "") << "2 threads, twice";
  EXPECT_EQ(difference(c, one, bits_after(c, 1)), "") << "1 thread, twice";
  // Recomputation writes to other memory and must give the same bits there.
  for (const int64_t offset : {1, 5}) {
    if (c.aligned) break;
    EXPECT_EQ(difference(c, one, bits_after(c, 1, offset)), "") << "misaligned by " << offset;
  }
  if (!c.same_for_any_threads) return;
  EXPECT_EQ(difference(c, one, two), "") << "1 and 2 threads";
  EXPECT_EQ(difference(c, one, bits_after(c, 3)), "") << "1 and 3 threads";
}

void dry_stream_costs_the_same(const Case& c) {
  Memories memories(c, 0);
  Stream real(World::cpu), dry(World::dry);
  c.run(real, memories.tensors());
  std::vector<Tensor> nowhere;
  for (const Arg& arg : c.args)
    nowhere.push_back(arg.shape.num_dims() ? Tensor(reinterpret_cast<void*>(uintptr_t{4096} * (nowhere.size() + 1)),
                                                    arg.dtype, arg.shape)
                                           : Tensor());
  c.run(dry, nowhere);
  const std::vector<std::string> names = c.launched();
  ASSERT_EQ(real.log().size(), names.size());
  ASSERT_EQ(dry.log().size(), names.size());
  for (size_t i = 0; i < names.size(); i++) {
    EXPECT_EQ(real.log()[i].name, names[i]);
    EXPECT_EQ(dry.log()[i].name, names[i]);
    EXPECT_EQ(dry.log()[i].launches, 1);
    EXPECT_EQ(dry.log()[i].flops, real.log()[i].flops);
    EXPECT_EQ(dry.log()[i].bytes, real.log()[i].bytes);
    EXPECT_GT(real.log()[i].bytes, 0);
    EXPECT_EQ(dry.log()[i].seconds, 0);
  }
}

// A watcher is told of exactly what the op writes, scratch apart.
void tells_what_it_writes(const Case& c) {
  struct Watcher : OpWatcher {
    void launched(const char* name, std::span<const Tensor> tensors) override {
      names.emplace_back(name);
      for (const Tensor& t : tensors)
        if (!t.empty()) written.insert({t.raw(), t.bytes()});
    }
    std::vector<std::string> names;
    std::set<std::pair<void*, int64_t>> written;
  } watcher;
  Memories memories(c, 0);
  Stream s(World::cpu);
  s.watch_ops(&watcher);
  c.run(s, memories.tensors());
  std::set<std::pair<void*, int64_t>> expected;
  for (size_t a = 0; a < c.args.size(); a++)
    if (const Tensor t = memories.memory[a].tensor(); c.args[a].written && !c.args[a].scratch && !t.empty())
      expected.insert({t.raw(), t.bytes()});
  EXPECT_EQ(watcher.names, c.launched());
  EXPECT_EQ(watcher.written, expected);
}

// The message begins with the op and names one of its tensors.
void expect_refused(const Case& c, size_t changed, Tensor bad) {
  std::vector<Tensor> tensors;
  for (const Arg& arg : c.args)
    tensors.push_back(arg.shape.num_dims() ? Tensor(reinterpret_cast<void*>(uintptr_t{4096}), arg.dtype, arg.shape)
                                           : Tensor());
  tensors[changed] = bad;
  Stream dry(World::dry);
  try {
    c.run(dry, tensors);
    ADD_FAILURE() << c.op << " accepted " << c.args[changed].name << " of " << name_of(bad.dtype()) << " "
                  << bad.shape().str();
  } catch (const Error& e) {
    const std::string message = e.what();
    EXPECT_EQ(message.rfind(c.op + ": ", 0), 0u) << message;
    bool named = false;
    for (const Arg& arg : c.args) named |= message.find(": " + arg.name + " ") != std::string::npos;
    EXPECT_TRUE(named) << message;
  }
}

void refuses_wrong_shape_and_type(const Case& c) {
  for (size_t a = 0; a < c.args.size(); a++) {
    const Arg& arg = c.args[a];
    if (arg.shape.num_dims() == 0) continue;
    void* p = reinterpret_cast<void*>(uintptr_t{4096});
    Shape wider = arg.shape.num_dims() == 1   ? Shape{arg.shape[0] + 1}
                  : arg.shape.num_dims() == 2 ? Shape{arg.shape[0], arg.shape[1] + 1}
                                              : Shape{arg.shape[0], arg.shape[1], arg.shape[2] + 1};
    if (!arg.any_shape) expect_refused(c, a, {p, arg.dtype, wider});
    if (c.op != "fill") expect_refused(c, a, {p, arg.dtype == DType::i32 ? DType::f32 : DType::i32, arg.shape});
  }
}

// Making the cases takes longer than most of what is looked at.
void for_each_case(const Op& op, std::initializer_list<void (*)(const Case&)> checks) {
  for (const Case& c : op.cases()) {
    SCOPED_TRACE(c.name());
    for (const auto check : checks) check(c);
  }
}

TEST_P(Ops, AgreesWithItsTwinInTheSameBits) { for_each_case(GetParam(), {agrees_with_its_twin, same_bits}); }
TEST_P(Ops, DeclaresWhatItDoesAndRefusesWhatItCannot) {
  for_each_case(GetParam(), {dry_stream_costs_the_same, tells_what_it_writes, refuses_wrong_shape_and_type});
}

INSTANTIATE_TEST_SUITE_P(All, Ops, testing::ValuesIn(all_ops()), [](const auto& of) { return of.param.name; });

}  // namespace
}  // namespace megalith::test
