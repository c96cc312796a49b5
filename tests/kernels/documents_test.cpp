// Documents that share a sequence and are kept apart: attention gives of each what it gives of it alone.
#include <gtest/gtest.h>

#include "cases.h"
#include "tests/message_of.h"

namespace megalith::test {
namespace {

// Results of attention over sequences: out and lse forward, dqkv backward; by the row of the sequences, and lse by
// head.
struct Attended {
  Values out, lse, dqkv;
};

Attended attended(const AttentionDims& dims, const Documents& documents, DType t, const Values& qkv,
                  const Values& dout) {
  const int64_t N = dims.B * dims.T, C = dims.H * dims.D;
  const auto arg = [&](const std::string& name, DType dtype, Shape shape, const Values& values) {
    return Arg{.name = name, .dtype = dtype, .shape = shape, .values = values};
  };
  const auto room = [](const std::string& name, DType dtype, Shape shape) { return out(name, dtype, shape); };
  Case c;
  c.args = {room("out", t, {N, C}),      room("lse", f32, {dims.B, dims.H, dims.T}),   arg("qkv", t, {N, 3 * C}, qkv),
            room("dqkv", t, {N, 3 * C}), room("delta", f32, {dims.B, dims.H, dims.T}), arg("dout", t, {N, C}, dout)};
  if (!documents.empty()) c.args.push_back(starts_of(documents, dims.B, dims.T));
  const Memories memories(c, 0);
  const Tensors a = memories.tensors();
  const Tensor starts = documents.empty() ? Tensor{} : a[6];
  Stream s(World::cpu);
  launch(s, AttentionForward{.out = a[0], .lse = a[1], .qkv = a[2], .dims = dims, .starts = starts});
  launch(s, AttentionBackward{.dqkv = a[3],
                              .delta = a[4],
                              .dout = a[5],
                              .out = a[0],
                              .lse = a[1],
                              .qkv = a[2],
                              .dims = dims,
                              .starts = starts});
  const auto values = [&](size_t i) {
    Values all(at(c.args[i].shape.numel()));
    for (size_t k = 0; k < all.size(); k++) all[k] = memories.memory[i].get(int64_t(k));
    return all;
  };
  return {values(0), values(1), values(3)};
}

void expect_near(const Values& got, const Values& want, DType t, const std::string& what) {
  ASSERT_EQ(got.size(), want.size());
  double largest = 0;
  for (double v : want) largest = std::max(largest, std::abs(v));
  for (size_t i = 0; i < got.size(); i++)  // the two may round to either side
    ASSERT_NEAR(got[i], want[i], 2 * tolerance(t, want[i], largest)) << what << "[" << i << "]";
}

// Compares one whole sequence with each of its documents in a sequence of its own.
void agrees_with_documents_alone(int64_t T, int64_t H, int64_t D, const Documents& documents, DType t) {
  SCOPED_TRACE(fmt::format("T {} H {} D {} {}{}", T, H, D, name_of(t), name_of(documents)));
  const int64_t C = H * D;
  const Values qkv = in("qkv", t, {T, 3 * C}).values, dout = in("dout", t, {T, C}).values;
  const Attended whole = attended({1, T, H, D}, documents, t, qkv, dout);
  Attended alone{.out = {}, .lse = Values(at(H * T)), .dqkv = {}};
  const Values starts = starts_of(documents, 1, T).values;
  for (int64_t begin = 0, end = 0; begin < T; begin = end) {
    while (end < T && starts[at(end)] == double(begin)) end++;
    const auto rows = [&](const Values& of, int64_t cols) {
      return Values(of.begin() + begin * cols, of.begin() + end * cols);
    };
    const Attended one = attended({1, end - begin, H, D}, {}, t, rows(qkv, 3 * C), rows(dout, C));
    alone.out.insert(alone.out.end(), one.out.begin(), one.out.end());
    alone.dqkv.insert(alone.dqkv.end(), one.dqkv.begin(), one.dqkv.end());
    for (int64_t h = 0; h < H; h++)
      for (int64_t i = begin; i < end; i++) alone.lse[at(h * T + i)] = one.lse[at(h * (end - begin) + i - begin)];
  }
  expect_near(whole.out, alone.out, t, "out");
  expect_near(whole.lse, alone.lse, f32, "lse");
  expect_near(whole.dqkv, alone.dqkv, t, "dqkv");
}

// Two documents, the second from every place on; tiles have 48 queries and 64 keys.
TEST(Documents, AttendAsIfAloneWhereverTheyBegin) {
  for (int64_t T : {130, 67})
    for (int64_t begin = 1; begin < T; begin++) agrees_with_documents_alone(T, 1, 8, {begin, T}, f32);
}

TEST(Documents, AttendAsIfAloneInAnyNumber) {
  for (DType t : {f32, bf16, f16})
    for (const Documents& documents :
         {Documents{1}, {2}, {7}, {1, 1, 3, 17, 64, 2, 40}, {128, 1, 63}, {48, 16}, {199, 1}, {1000}})
      agrees_with_documents_alone(200, 2, 24, documents, t);
}

// Whatever stands in other documents, even in the same tile.
TEST(Documents, SeeNothingOfEachOther) {
  const int64_t T = 100, D = 8, second = 37;
  const AttentionDims dims{1, T, 1, D};
  Values qkv = in("qkv", f32, {T, 3 * D}).values, dout = in("dout", f32, {T, D}).values;
  const Attended before = attended(dims, {second, T}, f32, qkv, dout);
  for (int64_t i = 0; i < second * 3 * D; i++) qkv[at(i)] = -qkv[at(i)];
  for (int64_t i = 0; i < second * D; i++) dout[at(i)] = -3 * dout[at(i)];
  const Attended after = attended(dims, {second, T}, f32, qkv, dout);
  const auto of_second = [&](const Values& v, int64_t cols) { return Values(v.begin() + second * cols, v.end()); };
  EXPECT_EQ(of_second(before.out, D), of_second(after.out, D));
  EXPECT_EQ(of_second(before.dqkv, 3 * D), of_second(after.dqkv, 3 * D));
  EXPECT_NE(before.out, after.out);
}

TEST(Documents, ThatBeginWithTheirSequencesChangeNoBit) {
  for (DType t : {f32, bf16, f16})
    for (double p : {0.0, 0.3}) {
      const AttentionDims dims{2, 130, 2, 24};
      const auto same = [](const Case& without, const Case& with) {
        const Memories a(without, 0), b(with, 0);
        Stream s(World::cpu);
        without.run(s, a.tensors());
        with.run(s, b.tensors());
        for (size_t i = 0; i < without.args.size(); i++)
          EXPECT_TRUE(a.memory[i].bits() == b.memory[i].bits()) << with.name() << " " << without.args[i].name;
      };
      same(attention_forward_case(dims, p, t), attention_forward_case(dims, p, t, {1000}));
      same(attention_backward_case(dims, p, t), attention_backward_case(dims, p, t, {1000}));
      same(embedding_forward_case(2, 33, 7, {0, 65, 65}, 0, t),
           embedding_forward_case(2, 33, 7, {0, 65, 65}, 0, t, {40}));
      same(embedding_backward_case(2, 33, 7, {0, 65, 65}, 0, t),
           embedding_backward_case(2, 33, 7, {0, 65, 65}, 0, t, {40}));
    }
}

TEST(Documents, StartsThatAreNoneAreRefused) {
  const auto message_with = [](Case c, int64_t place, double start) {
    c.args.back().values[at(place)] = start;
    return message_of([&] {
      const Memories memories(c, 0);
      Stream s(World::cpu);
      c.run(s, memories.tensors());
    });
  };
  const Documents documents{2, 3};
  for (const Case& c : {attention_forward_case({2, 5, 1, 4}, 0, f32, documents),
                        attention_backward_case({2, 5, 1, 4}, 0, f32, documents)}) {
    EXPECT_EQ(message_with(c, 6, 2), c.op + ": starts[1, 1] is 2, expected 0 to 1");
    EXPECT_EQ(message_with(c, 9, 1), c.op + ": starts[1, 4] is 1, expected 2 to 4");
    EXPECT_EQ(message_with(c, 0, -1), c.op + ": starts[0, 0] is -1, expected 0 to 0");
  }
  for (const Case& c : {embedding_forward_case(2, 5, 4, {0, 9, 9}, 0, f32, documents),
                        embedding_backward_case(2, 5, 4, {0, 9, 9}, 0, f32, documents)}) {
    EXPECT_EQ(message_with(c, 6, 2), c.op + ": starts[1, 1] is 2, expected 0 to 1");
    EXPECT_EQ(message_with(c, 9, -1), c.op + ": starts[1, 4] is -1, expected 0 to 4");
  }
}

}  // namespace
}  // namespace megalith::test
