// Matrix instructions, by small kernels: fragments by the PTX ISA manual's formulas, and what has to be refused.
#include <bit>
#include <cmath>
#include <cstring>
#include <random>

#include "tests/ptx/small_kernel.h"

namespace megalith::test {
namespace {

// Halves that count from 0 in rows of 8, four matrices below one another. Transposed, a lane's column is lane / 4.
TEST(PtxMatrices, LoadsMatrices) {
  for (const bool transposed : {false, true}) {
    const auto loaded = run(std::string(R"(shl.b32 %r4, %r0, 4; add.u32 %r5, %r3, %r4; shl.b32 %r6, %r0, 3;
mul.lo.u32 %r6, %r6, 0x10001; add.u32 %r6, %r6, 0x10000; add.u32 %r7, %r6, 0x20002; add.u32 %r8, %r7, 0x20002; add.u32 %r9, %r8, 0x20002;
st.shared.v4.u32 [%r5], {%r6, %r7, %r8, %r9}; bar.warp.sync -1;
ldmatrix.sync.aligned.m8n8.x4)") +
                                (transposed ? ".trans" : "") + R"(.shared.b16 {%r10, %r11, %r12, %r13}, [%r5];
st.global.v4.u32 [%rd1], {%r10, %r11, %r12, %r13};)",
                            {.words = 4, .shared = 512});
    for (uint32_t lane = 0; lane < 32; lane++)
      for (uint32_t m = 0; m < 4; m++) {
        const auto at = [&](uint32_t row, uint32_t column) { return 64 * m + 8 * row + column; };
        const uint32_t a = lane / 4, b = lane % 4 * 2;
        const uint32_t low = transposed ? at(b, a) : at(a, b), high = transposed ? at(b + 1, a) : at(a, b + 1);
        EXPECT_EQ(loaded[lane * 4 + m], high << 16 | low) << lane;
      }
  }
}

// Small whole numbers, exact in bf16.
std::vector<float> whole_numbers(size_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<float> all(n);
  for (float& v : all) v = static_cast<float>(static_cast<int>(random() % 17) - 8);
  return all;
}
uint32_t two(float low, float high) { return bits(high) >> 16 << 16 | bits(low) >> 16; }

// Fragments by the manual's formulas for mma.m16n8k16: of element i of a lane, with group = lane / 4 and t = lane % 4.
TEST(PtxMatrices, MultipliesMatrices) {
  const auto a = whole_numbers(16 * 16, 1), b = whole_numbers(16 * 8, 2);
  const auto row_a = [](int i, int group) { return (i < 2 || (i >= 4 && i < 6)) ? group : group + 8; };
  const auto column_a = [](int i, int t) { return i < 4 ? t * 2 + (i & 1) : t * 2 + (i & 1) + 8; };
  const auto row_b = [](int i, int t) { return i < 2 ? t * 2 + (i & 1) : t * 2 + (i & 1) + 8; };
  Launch l{.words = 4};
  for (int lane = 0; lane < 32; lane++) {
    const auto of_a = [&](int i) { return a[static_cast<size_t>(row_a(i, lane / 4) * 16 + column_a(i, lane % 4))]; };
    const auto of_b = [&](int i) { return b[static_cast<size_t>(row_b(i, lane % 4) * 8 + lane / 4)]; };
    for (int i = 0; i < 8; i += 2) l.input.push_back(two(of_a(i), of_a(i + 1)));
    for (int i = 0; i < 4; i += 2) l.input.push_back(two(of_b(i), of_b(i + 1)));
    l.input.insert(l.input.end(), {bits(1), bits(2)});
  }
  const auto d = run(R"(mad.wide.u32 %rd5, %r0, 32, %rd2; ld.global.v4.u32 {%r10, %r11, %r12, %r13}, [%rd5];
ld.global.v2.u32 {%r14, %r15}, [%rd5+16]; ld.global.v2.f32 {%f1, %f2}, [%rd5+24];
mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f5, %f6, %f7, %f8}, {%r10, %r11, %r12, %r13}, {%r14, %r15}, {%f1, %f2, %f1, %f2};
st.global.v4.f32 [%rd1], {%f5, %f6, %f7, %f8};)",
                     l);
  for (int lane = 0; lane < 32; lane++)
    for (int i = 0; i < 4; i++) {
      const int row = i < 2 ? lane / 4 : lane / 4 + 8, column = lane % 4 * 2 + (i & 1);
      float want = i % 2 ? 2 : 1;
      for (int k = 0; k < 16; k++)
        want += a[static_cast<size_t>(row * 16 + k)] * b[static_cast<size_t>(k * 8 + column)];
      EXPECT_EQ(std::bit_cast<float>(d[static_cast<size_t>(lane * 4 + i)]), want) << lane << " " << i;
    }
}

// a (64, 16) and b (64, 16) by rows, the second 16 of 64 columns; and v (16, 80) by columns, in two panels. Each lies
// as 128-byte swizzle has it: of row r, unit u of 16 bytes lies in the place of u ^ (r % 8).
struct Products {
  std::vector<float> a = whole_numbers(64 * 16, 3), b = whole_numbers(64 * 16, 4), v = whole_numbers(16 * 80, 5);
  Launch l{.threads = 128, .words = 72, .shared = 20480};
  Products() {
    std::vector<uint16_t> image(20480 / 2);
    const auto put = [&](size_t begin, size_t row, size_t column, float value) {
      image[(begin + row * 128 + (column / 8 ^ row % 8) * 16) / 2 + column % 8] =
          static_cast<uint16_t>(bits(value) >> 16);
    };
    for (size_t row = 0; row < 64; row++)
      for (size_t k = 0; k < 16; k++) put(0, row, 16 + k, a[row * 16 + k]), put(8192, row, 16 + k, b[row * 16 + k]);
    for (size_t k = 0; k < 16; k++)
      for (size_t n = 0; n < 80; n++) put(16384 + n / 64 * 2048, k, n % 64, v[k * 80 + n]);
    l.input.resize(20480 / 4);
    std::memcpy(l.input.data(), image.data(), 20480);
  }
  static std::string registers(int first, int count) {
    std::string all;
    for (int i = 0; i < count; i++) all += fmt::format("{}%f{}", i ? ", " : "", first + i);
    return all;
  }
  // The arguments are the upper halves of the descriptors, and what the lower ones have beside the start.
  static std::string text(const std::string& upper_a = "0x40000040", const std::string& upper_v = "0x40000040",
                          uint32_t lower_a = 2, uint32_t lower_v = 128u << 16) {
    std::string all = R"(mad.wide.u32 %rd5, %r0, 16, %rd2; shl.b32 %r5, %r0, 4; add.u32 %r5, %r5, %r3; mov.u32 %r6, 0;
$copy: ld.global.v4.u32 {%r10, %r11, %r12, %r13}, [%rd5]; st.shared.v4.u32 [%r5], {%r10, %r11, %r12, %r13};
add.s64 %rd5, %rd5, 2048; add.u32 %r5, %r5, 2048; add.u32 %r6, %r6, 1; setp.lt.u32 %p1, %r6, 10; @%p1 bra $copy;
fence.proxy.async.shared::cta; bar.sync 0; shr.u32 %r20, %r3, 4;
)";
    all += fmt::format("add.u32 %r21, %r20, {}; add.u32 %r22, %r20, 514; add.u32 %r23, %r20, {};\n", lower_a,
                       1024 + lower_v);
    all += fmt::format("mov.b64 %rd6, {{%r21, {}}}; mov.b64 %rd7, {{%r22, 0x40000040}}; mov.b64 %rd8, {{%r23, {}}};\n",
                       upper_a, upper_v);
    // The fragments of p, which is ones in its first two columns: registers 0 and 1 of lanes t = 0.
    all += "and.b32 %r24, %r0, 3; setp.eq.u32 %p3, %r24, 0; selp.b32 %r25, 0x3f803f80, 0, %p3; mov.u32 %r26, 0;\n";
    for (int i = 0; i < 72; i++) all += fmt::format("mov.f32 %f{}, 0f3F800000;\n", i);
    all += "setp.ne.u32 %p4, 0, 0; setp.eq.u32 %p5, 0, 0; wgmma.fence.sync.aligned;\n";
    all += "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" + registers(0, 32) +
           "}, %rd6, %rd7, %p4, 1, 1, 0, 0;\n";
    all += "wgmma.commit_group.sync.aligned;\n";
    all += "wgmma.mma_async.sync.aligned.m64n80k16.f32.bf16.bf16 {" + registers(32, 40) +
           "}, {%r25, %r25, %r26, %r26}, %rd8, %p5, 1, 1, 1;\n";
    all += "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n";
    for (int i = 0; i < 72; i++) all += fmt::format("st.global.f32 [%rd1+{}], %f{};\n", 4 * i, i);
    return all;
  }
  static std::string without(const std::string& what) {
    std::string all = text();
    return all.erase(all.find(what), what.size());
  }
};

// The sums' fragments by the manual's formula for wgmma: row = 16 * warp + lane / 4 + 8 * (i / 2 % 2), column = 8 * (i
// / 4) + 2 * (lane % 4) + i % 2.
TEST(PtxMatrices, MultipliesByWarpgroups) {
  const Products p;
  const auto d = run(Products::text(), p.l);
  for (size_t thread = 0; thread < 128; thread++)
    for (size_t i = 0; i < 72; i++) {
      const size_t j = i < 32 ? i : i - 32, lane = thread % 32, row = thread / 32 * 16 + lane / 4 + 8 * (j / 2 % 2),
                   column = 8 * (j / 4) + 2 * (lane % 4) + j % 2;
      float want = i < 32 ? 0 : 1 + p.v[column] + p.v[80 + column];
      for (size_t k = 0; k < 16 && i < 32; k++) want += p.a[row * 16 + k] * p.b[column * 16 + k];
      EXPECT_EQ(std::bit_cast<float>(d[thread * 72 + i]), want) << thread << " " << i;
    }
}

// v^T v, whose left factor lies along m: the rows of v's first panel are its columns.
TEST(PtxMatrices, MultipliesColumnsByWarpgroups) {
  const Products p;
  std::string text = Products::text();
  const std::string by_weights = "{%r25, %r25, %r26, %r26}, %rd8, %p5, 1, 1, 1;";
  text.replace(text.find(by_weights), by_weights.size(), "%rd8, %rd8, %p5, 1, 1, 1, 1;");
  const auto d = run(text, p.l);
  for (size_t thread = 0; thread < 128; thread++)
    for (size_t i = 0; i < 40; i++) {
      const size_t lane = thread % 32, row = thread / 32 * 16 + lane / 4 + 8 * (i / 2 % 2),
                   column = 8 * (i / 4) + 2 * (lane % 4) + i % 2;
      float want = 1;
      for (size_t k = 0; k < 16; k++) want += p.v[k * 80 + row] * p.v[k * 80 + column];
      EXPECT_EQ(std::bit_cast<float>(d[thread * 72 + 32 + i]), want) << thread << " " << i;
    }
}

TEST(PtxMatrices, ProductsOutOfOrder) {
  const Products p;
  expect_error(Products::without("wgmma.fence.sync.aligned;"), "or there was none", p.l);
  expect_error(Products::without("fence.proxy.async.shared::cta;"), "with no fence.proxy.async", p.l);
  expect_error(Products::without("bar.sync 0;"), "with no barrier between", p.l);
  const std::string text = Products::text(), end = "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;";
  std::string early = text, touched = text;
  early.replace(early.find(end), end.size(), "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 1;");
  const auto sums = run(early, p.l);
  EXPECT_FALSE(std::isnan(std::bit_cast<float>(sums[0])));
  EXPECT_TRUE(std::isnan(std::bit_cast<float>(sums[32])));
  touched.insert(touched.find("wgmma.commit"), "mov.u32 %r25, 0;");
  expect_error(touched, "was touched after the last wgmma.fence", p.l);
  std::string disagree = text;
  disagree.insert(disagree.find("mov.b64 %rd6"), "setp.gt.u32 %p6, %r0, 64; @%p6 add.u32 %r21, %r21, 2;");
  expect_error(disagree, "bring different descriptors", p.l);
}

TEST(PtxMatrices, WrongDescriptors) {
  const Products p;
  expect_error(Products::text("0x00000040"), "of swizzle mode 0", p.l);
  expect_error(Products::text("0x80000040"), "of swizzle mode 2", p.l);
  expect_error(Products::text("0x40020040"), "with base offset 1", p.l);
  expect_error(Products::text("0x40004040"), "bits outside its fields", p.l);
  expect_error(Products::text("0x40000044"), "moves the pattern", p.l);
  expect_error(Products::text("0x40000040", "0x40000040", 10), "no pattern of 128-byte swizzle begins", p.l);
  expect_error(Products::text("0x40000040", "0x40000040", 2, 1024u << 16), "of shared memory, of which", p.l);
  expect_error(Products::text("0x40000040", "0x40000040", 7), "leaves its rows", p.l);
  // Along k the leading offset has no meaning.
  EXPECT_EQ(run(Products::text("0x40000040", "0x40000040", 2 + (5u << 16)), p.l), run(Products::text(), p.l));
}

}  // namespace
}  // namespace megalith::test
