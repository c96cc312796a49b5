// The interpreter itself, by small kernels: results that are worked out by hand from the PTX ISA manual, and what it
// has to refuse.
#include <limits>

#include "kernels/tensor/tensor.h"
#include "tests/ptx/small_kernel.h"

namespace megalith::test {
namespace {

constexpr float nan = std::numeric_limits<float>::quiet_NaN();

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

TEST(PtxInterpreter, Flags) {
  const Launch l{.input = {7}};
  EXPECT_EQ(run("ld.acquire.gpu.global.s32 %r9, [%rd2]; st.release.gpu.global.s32 [%rd1], %r9;", l)[0], 7);
  expect_error("$again: ld.acquire.gpu.global.s32 %r9, [%rd2]; setp.lt.s32 %p1, %r9, 8; @%p1 bra $again;",
               "what no block before it has released", l);
}

// Two tickets for each lane, of a counter in the first lane's word.
TEST(PtxInterpreter, Tickets) {
  const auto tickets = run(R"(mul.wide.u32 %rd5, %r0, 8; sub.s64 %rd5, %rd1, %rd5;
st.global.u32 [%rd5], 7; atom.relaxed.gpu.global.add.s32 %r5, [%rd5], 1; atom.relaxed.gpu.global.add.s32 %r6, [%rd5], 1;
st.global.v2.u32 [%rd1], {%r5, %r6};)",
                           {.words = 2});
  for (uint32_t lane = 0; lane < 32; lane++) {
    EXPECT_EQ(tickets[2 * lane], 7 + lane);
    EXPECT_EQ(tickets[2 * lane + 1], 39 + lane);
  }
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
  const auto in_8_bits = [](const char* type, float high, float low) {
    return fmt::format("cvt.rn.satfinite.{}x2.f32 %h1, {}, {}; cvt.u32.u16 %r9, %h1;", type, f(high), f(low));
  };
  expect(in_8_bits("e4m3", 1, -448), 0x38fe);
  expect(in_8_bits("e4m3", 1e9f, 0x1p-10f), 0x7e00);  // saturates; ties to even
  expect(in_8_bits("e4m3", 0x1p-9f, -nan), 0x017f);
  expect(in_8_bits("e5m2", 1, -61440), 0x3cfb);
  expect(in_8_bits("e5m2", 1.125f, 1.375f), 0x3c3e);
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
  expect_float("copysign.f32 %f9, " + f(-2) + ", " + f(3) + ";", -3);
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

// Warp 0 writes at %r3 and arrives; warp 1 waits and reads.
TEST(PtxInterpreter, WarpsMeetAtNamedBarriers) {
  const Launch two{.threads = 64, .shared = 256};
  const std::string begin =
      "mov.u32 %r9, 0; shr.u32 %r5, %r0, 5; setp.eq.u32 %p1, %r5, 1; and.b32 %r6, %r0, 31; setp.eq.u32 %p2, %r6, 0; "
      "@%p1 bra $one;";
  const auto turns = [&](const std::string& zero, const std::string& one) {
    return begin + zero + " bra.uni $end; $one: " + one + " $end: st.global.u32 [%rd1], %r9;";
  };
  const std::string write = "@%p2 st.shared.u32 [%r3], 7; ", read = "ld.shared.u32 %r9, [%r3]; ",
                    arrive = "bar.arrive 1, 64; ", wait = "bar.sync 1, 64; ";
  const std::vector<uint32_t> found = run(turns(write + arrive, wait + read), two);
  for (size_t i = 0; i < 64; i++) EXPECT_EQ(found[i], i / 32 * 7);
  expect_error(turns(arrive + write, wait + read), "which thread 0 wrote with no barrier between", two);
  expect_error(turns(write + arrive, read + wait), "which thread 0 wrote with no barrier between", two);
  expect_error(turns(write, wait + read), "warp 1 waits at a named barrier", two);
  expect_error(turns(write + arrive, ""), "32 of 64 threads have come to barrier 1", two);
  expect_error(turns(write + arrive, "bar.sync 1, 96;"), "barrier 1 of 96 threads", two);
  expect_error(turns(write + arrive, "bar.sync 1, 32;"), "to which others came for 64", two);
  expect_error(turns(write + arrive, "bar.sync %r6, 64;"), "lanes of a warp come to different barriers", two);
  expect_error(turns(write + arrive, "@%p2 bar.sync 1, 64;"), "wait for others of their warp", two);
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

}  // namespace
}  // namespace megalith::test
