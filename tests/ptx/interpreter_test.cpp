// The interpreter itself, by small kernels: results that are worked out by hand from the PTX ISA manual, and what it
// has to refuse.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>

#include "kernels/base/check.h"
#include "kernels/base/tensor.h"
#include "tests/ptx/ptx.h"

namespace megalith::test {
namespace {

constexpr float nan = std::numeric_limits<float>::quiet_NaN();
uint32_t bits(float v) { return std::bit_cast<uint32_t>(v); }

// Registers that the instructions may use: %r0 is the thread, %rd1 where its results lie, %rd2 the input; %rd3 the
// shared memory of the launch, %r3 the same as 32 bits.
std::string kernel_of(const std::string& instructions) {
  return R"(.version 8.0
.target sm_90a
.address_size 64
.extern .shared .align 1024 .b8 dynamic[];
.visible .entry kernel(.param .u64 out, .param .u64 in, .param .u32 each)
.maxntid 256, 1, 1
{
  .reg .pred %p<20>; .reg .b16 %h<20>; .reg .b32 %r<50>; .reg .f32 %f<99>; .reg .b64 %rd<20>; .reg .f64 %fd<20>;
  ld.param.u64 %rd1, [out];
  ld.param.u64 %rd2, [in];
  ld.param.u32 %r1, [each];
  mov.u32 %r0, %tid.x;
  mad.wide.u32 %rd1, %r0, %r1, %rd1;
  mov.u64 %rd3, dynamic;
  mov.u32 %r3, dynamic;
)" + instructions +
         "\n  ret;\n}\n";
}

struct Launch {
  int threads = 32, words = 1;  // results of each thread
  int64_t shared = 0;
  std::vector<uint32_t> input = {};
};
std::vector<uint32_t> run(const std::string& instructions, const Launch& l = {}) {
  simt::clear_memory();
  const auto bytes = static_cast<size_t>(l.threads * l.words * 4);
  char* out = static_cast<char*>(simt::allocate("out", static_cast<int64_t>(bytes), simt::Contents::unwritten));
  char* in = static_cast<char*>(simt::allocate("in", 1 << 20, simt::Contents::read_only));
  if (!l.input.empty()) std::memcpy(in, l.input.data(), l.input.size() * 4);
  ptx::Module module("test.ptx", kernel_of(instructions));
  std::vector<char> parameters(20);
  std::memcpy(parameters.data(), &out, 8);
  std::memcpy(parameters.data() + 8, &in, 8);
  const int each = l.words * 4;
  std::memcpy(parameters.data() + 16, &each, 4);
  ptx::run(module.kernels()[0], {"test", 1, static_cast<unsigned>(l.threads), l.shared, nullptr, parameters});
  std::vector<uint32_t> results(bytes / 4);
  std::memcpy(results.data(), out, bytes);
  return results;
}
// What the instructions leave in %r9, of every thread.
std::vector<uint32_t> r9(const std::string& instructions) { return run(instructions + "\nst.global.u32 [%rd1], %r9;"); }
void expect(const std::string& instructions, uint32_t wanted) {
  EXPECT_EQ(r9(instructions)[0], wanted) << instructions << fmt::format(" {:#x} {:#x}", r9(instructions)[0], wanted);
}
void expect_float(const std::string& instructions, float wanted) {
  expect(instructions + " mov.b32 %r9, %f9;", bits(wanted));
}
std::string f(float v) { return fmt::format("0f{:08X}", bits(v)); }

void expect_error(const std::string& instructions, const std::string& wanted, const Launch& l = {}) {
  try {
    run(instructions, l);
    ADD_FAILURE() << "nothing found, expected: " << wanted;
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find(wanted), std::string::npos) << e.what();
  }
}

TEST(PtxInterpreter, Bits) {
  expect("prmt.b32 %r9, 0x33221100, 0x77665544, 0x7520;", 0x77552200);
  expect("prmt.b32 %r9, 0x00008000, 0, 0x4901;", 0x00ff0080);  // of byte 1, 0x80, the sign
  expect("bfe.u32 %r9, 0xabcd1234, 8, 12;", 0xd12);
  expect("bfe.s32 %r9, 0xabcd1234, 8, 12;", 0xfffffd12);
  expect("bfe.s32 %r9, 0x80000000, 24, 16;", 0xffffff80);
  expect("bfe.u32 %r9, 0x80000000, 40, 4;", 0);
  expect("bfi.b32 %r9, 0xff, 0, 28, 8;", 0xf0000000);
  expect("bfi.b32 %r9, 0x5, 0xffffffff, 4, 4;", 0xffffff5f);
  expect("lop3.b32 %r9, 0xf0f0f0f0, 0xcccccccc, 0xaaaaaaaa, 0x96;", 0xf0f0f0f0 ^ 0xcccccccc ^ 0xaaaaaaaa);
  expect("lop3.b32 %r9, 0xf0f0f0f0, 0xcccccccc, 0xaaaaaaaa, 0xca;",
         (0xf0f0f0f0 & 0xcccccccc) | (~0xf0f0f0f0u & 0xaaaaaaaa));
  expect("shl.b32 %r9, 1, 32;", 0);
  expect("shr.u32 %r9, 0x80000000, 32;", 0);
  expect("shr.s32 %r9, 0x80000000, 99;", 0xffffffff);
  expect("clz.b32 %r9, 0x00010000;", 15);
  expect("popc.b32 %r9, 0xf0f01;", 9);
  expect("mul.hi.s32 %r9, -2, 3;", 0xffffffff);
  expect("mul.hi.u32 %r9, 0xfffffffe, 3;", 2);
  expect("mul.wide.s32 %rd9, -2, 3; mov.b64 {%r8, %r9}, %rd9;", 0xffffffff);
  expect("div.s32 %r9, -7, 2;", static_cast<uint32_t>(-3));
  expect("rem.s32 %r9, -7, 2;", static_cast<uint32_t>(-1));
  expect("mov.b32 {%h1, %h2}, 0x12345678; cvt.u32.u16 %r9, %h2;", 0x1234);
  expect("mov.b32 {%h1, %h2}, 0x8765; mov.b32 %r9, {%h2, %h1};", 0x87650000);
  expect("cvt.s16.s32 %h1, 0x18000; cvt.s32.s16 %r9, %h1;", 0xffff8000);
}

// 0xffffffff'ffffffff + 0x1'00000001, in three words.
TEST(PtxInterpreter, Carries) {
  const std::string sum = "add.cc.u32 %r5, 0xffffffff, 1; addc.cc.u32 %r6, 0xffffffff, 1; addc.u32 %r7, 0, 0;";
  expect(sum + "mov.u32 %r9, %r5;", 0);
  expect(sum + "mov.u32 %r9, %r6;", 1);
  expect(sum + "mov.u32 %r9, %r7;", 1);
  expect("sub.cc.u32 %r5, 0, 1; subc.u32 %r9, 7, 2;", 4);
  expect("mad.lo.cc.u32 %r5, 0x10000, 0x10000, 5; madc.hi.u32 %r9, 0x10000, 0x10000, 5;", 6);
  expect("mad.lo.cc.u32 %r5, 0xffff, 1, 0xffffffff; madc.hi.u32 %r9, 0x10000, 0x10000, 5;", 7);
}

TEST(PtxInterpreter, Rounding) {
  const auto bf16_of = [](uint32_t v) {
    return fmt::format("mov.b32 %f1, {:#x}; cvt.rn.bf16.f32 %h1, %f1; cvt.u32.u16 %r9, %h1;", v);
  };
  expect(bf16_of(0x3f808000), 0x3f80);  // ties to even
  expect(bf16_of(0x3f818000), 0x3f82);
  expect(bf16_of(0x3f808001), 0x3f81);
  expect(bf16_of(0x7f7fffff), 0x7f80);
  expect(bf16_of(0x00018000), 0x0002);  // subnormal
  const auto f16_of = [](float v) { return "cvt.rn.f16.f32 %h1, " + f(v) + "; cvt.u32.u16 %r9, %h1;"; };
  expect(f16_of(1 + 0x1p-11f), 0x3c00);
  expect(f16_of(-(1 + 0x3p-11f)), 0xbc02);
  expect(f16_of(65519), 0x7bff);
  expect(f16_of(65520), 0x7c00);
  expect(f16_of(0x3p-25f), 0x0002);
  expect(f16_of(0x1p-25f), 0);
  expect(f16_of(0x1.ff8p-15f), 0x03ff);
  expect("cvt.rn.f16x2.f32 %r9, 0f3F800000, 0f40000000;", 0x3c004000);
  expect("cvt.rn.bf16x2.f32 %r9, 0f3F800000, 0f40000000;", 0x3f804000);
  for (const uint32_t half : {0x3c01u, 0x8001u, 0x7bffu, 0xfc00u, 0x0400u})
    expect_float(fmt::format("mov.u16 %h1, {}; cvt.f32.f16 %f9, %h1;", half),
                 float16::value_of(static_cast<uint16_t>(half)));
  expect("cvt.rni.s32.f32 %r9, " + f(2.5f) + ";", 2);
  expect("cvt.rzi.s32.f32 %r9, " + f(-2.9f) + ";", static_cast<uint32_t>(-2));
  expect("cvt.rzi.u32.f32 %r9, " + f(-2.9f) + ";", 0);
  expect("cvt.rzi.s32.f32 %r9, " + f(1e20f) + ";", 0x7fffffff);
  expect("cvt.rzi.s32.f32 %r9, " + f(nan) + ";", 0);
  expect_float("cvt.sat.f32.f32 %f9, " + f(nan) + ";", 0);
  expect_float("cvt.sat.f32.f32 %f9, " + f(7) + ";", 1);
  expect_float("cvt.rn.f32.s32 %f9, 0x1000001;", 0x1p24f);
  expect_float("fma.rn.f32 %f9, " + f(0x1p-30f) + ", " + f(1) + ", " + f(-1) + ";", -1);
  expect_float("fma.rm.f32 %f9, " + f(-0x1p-30f) + ", " + f(1) + ", " + f(1) + ";", 1 - 0x1p-24f);
  // Once rounded, not twice.
  expect_float("fma.rn.f32 %f9, " + f(1 + 0x1p-12f) + ", " + f(1 + 0x1p-12f) + ", " + f(-1) + ";", 0x1p-11f + 0x1p-24f);
}

TEST(PtxInterpreter, FloatsThatAreNoNumbers) {
  const auto compared = [](const char* op, float a, float b) {
    return fmt::format("setp.{}.f32 %p1, {}, {}; selp.u32 %r9, 1, 0, %p1;", op, f(a), f(b));
  };
  for (const char* op : {"eq", "ne", "lt", "le", "gt", "ge", "num"}) expect(compared(op, nan, 1), 0);
  for (const char* op : {"equ", "neu", "ltu", "leu", "gtu", "geu", "nan"}) expect(compared(op, nan, 1), 1);
  for (const char* op : {"ne", "neu", "lt", "ltu", "leu", "num"}) expect(compared(op, 0, 1), 1);
  for (const char* op : {"equ", "gtu", "geu", "nan", "ge"}) expect(compared(op, 0, 1), 0);
  expect_float("max.f32 %f9, " + f(nan) + ", " + f(-3) + ";", -3);
  expect_float("min.f32 %f9, " + f(0) + ", " + f(-0.0f) + ";", -0.0f);
  expect_float("max.f32 %f9, " + f(-0.0f) + ", " + f(0) + ";", 0);
  expect_float("ex2.approx.ftz.f32 %f9, " + f(-127) + ";", 0);
  expect_float("ex2.approx.f32 %f9, " + f(-127) + ";", 0x1p-127f);
}

TEST(PtxInterpreter, LanesExchange) {
  const auto shuffled = [](const std::string& how) {
    return r9("shfl.sync." + how + ", -1; @!%p1 add.u32 %r9, %r9, 100;");
  };
  const auto bfly = shuffled("bfly.b32 %r9|%p1, %r0, 5, 31"), of_eight = shuffled("idx.b32 %r9|%p1, %r0, 3, 0x181f"),
             up = shuffled("up.b32 %r9|%p1, %r0, 3, 0"), down = shuffled("down.b32 %r9|%p1, %r0, 3, 0x180f"),
             clamped = shuffled("idx.b32 %r9|%p1, %r0, 9, 8");
  for (uint32_t lane = 0; lane < 32; lane++) {
    EXPECT_EQ(bfly[lane], lane ^ 5);
    EXPECT_EQ(of_eight[lane], lane / 8 * 8 + 3);
    EXPECT_EQ(up[lane], lane < 3 ? lane + 100 : lane - 3);
    // Segments of eight, of which the clamp's lower bits name the last.
    EXPECT_EQ(down[lane], lane % 8 + 3 < 8 ? lane + 3 : lane + 100);
    EXPECT_EQ(clamped[lane], lane + 100);
  }
}

// Lanes that went round a loop as often as their number meet again; two halves vote each for themselves.
TEST(PtxInterpreter, LanesMeet) {
  const auto sums = r9(R"(mov.u32 %r5, 0; mov.u32 %r6, 0;
$again: add.u32 %r6, %r6, %r5; add.u32 %r5, %r5, 1; setp.le.u32 %p1, %r5, %r0; @%p1 bra $again;
shfl.sync.bfly.b32 %r9, %r6, 31, 31, -1;)");
  const auto halves = r9(R"(setp.lt.u32 %p1, %r0, 16; and.b32 %r5, %r0, 1; setp.eq.u32 %p2, %r5, 0; @%p1 bra $low;
vote.sync.ballot.b32 %r9, %p2, 0xffff0000; bra.uni $end;
$low: not.pred %p2, %p2; vote.sync.ballot.b32 %r9, %p2, 0xffff;
$end: bar.warp.sync -1;)");
  const auto masks = r9(R"(setp.lt.u32 %p1, %r0, 16; selp.u32 %r5, 0xffff, 0xffff0000, %p1; setp.ge.u32 %p2, %r0, 20;
vote.sync.any.pred %p3, %p2, %r5; vote.sync.all.pred %p4, %p2, %r5; selp.u32 %r6, 2, 0, %p3; @%p4 add.u32 %r6, %r6, 1; mov.u32 %r9, %r6;)");
  for (uint32_t lane = 0; lane < 32; lane++) {
    EXPECT_EQ(sums[lane], (31 - lane) * (32 - lane) / 2);
    EXPECT_EQ(halves[lane], lane < 16 ? 0xaaaau : 0x55550000u);
    EXPECT_EQ(masks[lane], lane < 16 ? 0u : 2u);
  }
}

TEST(PtxInterpreter, WhatLanesAndThreadsDoWrong) {
  expect_error("setp.lt.u32 %p1, %r0, 5; @%p1 bra $end; shfl.sync.idx.b32 %r9, %r0, 0, 31, -1; $end:",
               "wait for others of their warp");
  expect_error("shfl.sync.idx.b32 %r9, %r0, 0, 31, 0xff;", "without itself");
  expect_error("setp.gt.u32 %p1, %r0, 15; @%p1 shfl.sync.idx.b32 %r9, %r0, 0, 31, 0xffff0000;", "takes from lane 0");
  expect_error("setp.lt.u32 %p1, %r0, 5; @%p1 ret; bar.sync 0;", "wait for others of their warp");
  expect_error("setp.lt.u32 %p1, %r0, 32; @%p1 ret; bar.sync 0;", "wait for others that do not come", {.threads = 64});
  expect_error("", "512 threads a block, and it is compiled for 256", {.threads = 512});
}

TEST(PtxInterpreter, MemoryIsWatched) {
  const Launch shared{.threads = 64, .shared = 256};
  expect_error("ld.global.u32 %r9, [%rd1];", "which nobody has written");
  expect_error("st.global.u32 [%rd2], %r9;", "read-only");
  expect_error("st.global.u32 [%rd1+128], %r9;", "not within an allocation");
  expect_error("st.global.u64 [%rd1], %rd9;", "misaligned");
  expect_error("ld.global.v4.u32 {%r5, %r6, %r7, %r8}, [%rd2+8];", "misaligned");
  expect_error("st.shared.u32 [%rd3+256], %r9;", "at byte 1280 of shared memory", shared);
  expect_error("ld.shared.u32 %r9, [%rd3];", "no thread of the block has written", shared);
  expect_error("shl.b32 %r5, %r0, 2; add.u32 %r5, %r5, %r3; st.shared.u32 [%r5], %r0; ld.shared.u32 %r9, [%rd3];",
               "race", shared);
  expect_error("st.shared.u32 [%rd3], %r0;", "race", shared);
  const std::string both =
      "cvt.u64.u32 %rd5, %r3; cvta.shared.u64 %rd5, %rd5; st.u32 [%rd5], 7; ld.shared.u32 %r9, [%rd3]; st.global.u32 "
      "[%rd1], %r9;";
  EXPECT_EQ(run("setp.ne.u32 %p1, %r0, 0; @%p1 ret;" + both, {.shared = 16})[0], 7);
}

TEST(PtxInterpreter, WhatIsUnknown) {
  expect_error("popc.b16 %h1, %h2;", "test.ptx:16: unknown instruction popc.b16");
  expect_error("add.sat.s32 %r9, %r0, %r0;", "unknown instruction add.sat.s32");
  expect_error("add.s32 %r9, %r0;", "unknown operands of add.s32");
  expect_error("add.s32 %rd9, %r0, %r0;", "unknown operands of add.s32");
  expect_error("mov.u32 %r9, %clock.x;", "unknown special register");
  expect_error("mov.u32 %r9, %q7;", "unknown register %q7");
  expect_error(".const .b32 seven;", "unknown directive .const");
  expect_error("bra $nowhere;", "no label $nowhere");
}

// Rows of 16 bytes in shared memory, from cp.async: those of odd threads only 8 bytes, and then zeros.
TEST(PtxInterpreter, CopiesAreLate) {
  Launch l{.words = 4, .shared = 512};
  for (uint32_t n = 0; n < 128; n++) l.input.push_back(1000 + n);
  const std::string copy =
      R"(shl.b32 %r4, %r0, 4; add.u32 %r5, %r3, %r4; cvt.u64.u32 %rd5, %r4; add.s64 %rd5, %rd5, %rd2;
and.b32 %r6, %r0, 1; setp.eq.u32 %p1, %r6, 0; selp.u32 %r6, 16, 8, %p1;
cp.async.cg.shared.global [%r5], [%rd5], 16, %r6; cp.async.commit_group;)";
  const std::string take =
      "ld.shared.v4.u32 {%r10, %r11, %r12, %r13}, [%r5]; st.global.v4.u32 [%rd1], {%r10, %r11, %r12, %r13};";
  const auto copied = run(copy + "cp.async.wait_group 0;" + take, l);
  for (uint32_t n = 0; n < 128; n++) EXPECT_EQ(copied[n], n / 4 % 2 == 1 && n % 4 >= 2 ? 0 : 1000 + n);
  expect_error(copy + take, "whose cp.async nobody waited for", l);
  expect_error(copy + "cp.async.wait_group 1;" + take, "whose cp.async nobody waited for", l);
  expect_error(copy + "add.u32 %r5, %r5, 8; cp.async.cg.shared.global [%r5], [%rd5], 16;", "misaligned", l);
}

// Halves that count from 0 in rows of 8, four matrices below one another. Transposed, a lane's column is lane / 4.
TEST(PtxInterpreter, LoadsMatrices) {
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
TEST(PtxInterpreter, MultipliesMatrices) {
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
  // Of the descriptors' lower halves the part beside the start, and the upper ones.
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
TEST(PtxInterpreter, MultipliesByWarpgroups) {
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

TEST(PtxInterpreter, ProductsOutOfOrder) {
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

TEST(PtxInterpreter, WrongDescriptors) {
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
