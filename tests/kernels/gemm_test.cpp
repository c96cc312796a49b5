// Both ways of multiplying bf16, whichever this machine prefers, and sizes of several tiles.
#include <gtest/gtest.h>
#include <omp.h>

#include <filesystem>
#include <thread>

#include "case.h"
#include "kernels/linear/gemm_cpu.h"
#include "tests/message_of.h"

namespace megalith::test {
namespace {

struct GemmSize {
  int64_t M, N, K;
};

// Products of whole numbers whose sums stay below 2^24 are exact in f32, in any order: every bit must be right.
TEST(Gemm, ExactOnWholeNumbers) {
  const auto whole = [](Arg arg) {
    for (double& v : arg.values) v = std::round(v * 2);
    return arg;
  };
  for (DType type : {DType::f32, DType::bf16, DType::f16})
    for (auto [M, N, K] : {GemmSize{1, 1, 1}, {65, 97, 33}, {70, 259, 20}, {131, 1100, 70}, {260, 50, 1601}}) {
      const Arg a = whole(in("a", type, {M, K})), b = whole(in("b", type, {K, N}));
      const Arg c = whole(in("c", DType::f32, {M, N})), add = whole(in("bias", type, {N}));
      for (bool native : {false, true}) {
        if (native && !cpu::Gemm::has_native_bf16()) continue;
        for (int flags = 0; flags < 16; flags++) {
          const bool ta = flags & 1, tb = flags & 2, accumulate = flags & 4, bias = flags & 8;
          SCOPED_TRACE(fmt::format("{}x{}x{} {} flags {} native {}", M, N, K, name_of(type), flags, native));
          Memory ma(a, 1), mb(b, 1), mc(c, 1), madd(add, 1);
          cpu::Gemm gemm(native);
          gemm.run({.a = ma.tensor().raw(),
                    .b = mb.tensor().raw(),
                    .c = mc.tensor().raw(),
                    .bias = bias ? madd.tensor().raw() : nullptr,
                    .M = M,
                    .N = N,
                    .K = K,
                    .a_transposed = ta,
                    .b_transposed = tb,
                    .accumulate = accumulate,
                    .input = type});
          ASSERT_TRUE(mc.guards_intact());
          for (int64_t m = 0; m<M; m += M> 100 ? 13 : 1)
            for (int64_t n = 0; n<N; n += N> 100 ? 7 : 1) {
              double want = (accumulate ? c.values[size_t(m * N + n)] : 0) + (bias ? add.values[size_t(n)] : 0);
              for (int64_t k = 0; k < K; k++)
                want += a.values[size_t(ta ? k * M + m : m * K + k)] * b.values[size_t(tb ? n * K + k : k * N + n)];
              ASSERT_EQ(mc.get(m * N + n), want) << m << ", " << n;
            }
        }
      }
    }
}

TEST(Gemm, RefusesNativeBf16WhereThereIsNone) {
  if (cpu::Gemm::has_native_bf16()) GTEST_SKIP() << "this processor has it";
  EXPECT_FALSE(cpu::has_fast_bf16());
  const Arg a = in("a", DType::bf16, {70, 20}), b = in("b", DType::bf16, {30, 20}), c = in("c", DType::f32, {70, 30});
  Memory ma(a, 0), mb(b, 0), mc(c, 0);
  EXPECT_EQ(message_of([&] {
              cpu::Gemm(true).run(gemm_call(LinearForward{.y = mc.tensor(), .x = ma.tensor(), .w = mb.tensor()}));
            }),
            fmt::format("oneDNN {} has no bf16 product of 70 x 30 x 20 on this processor", cpu::gemm_version()));
}

// c = a b^T
void multiply(const Tensor& a, const Tensor& b, const Tensor& c) {
  cpu::Gemm(false).run(gemm_call(LinearForward{.y = c, .x = a, .w = b}));
}

// Many tiles, a single one, and one that is cut by columns.
TEST(Gemm, TilesGiveTheSameBitsForAnyThreads) {
  const int64_t K = 200;
  for (const auto& [M, N, type] : {std::tuple{300, 1700, DType::f32},
                                   {300, 1700, DType::bf16},
                                   {64, 192, DType::f32},
                                   {64, 192, DType::bf16},
                                   {64, 384, DType::f32}}) {
    const Arg a = in("a", type, {M, K}), b = in("b", type, {N, K}), c = in("c", type, {M, N});
    std::vector<std::vector<unsigned char>> bits;
    for (int threads : {1, 2, 3, 2}) {
      omp_set_num_threads(threads);
      Memory ma(a, 0), mb(b, 0), mc(c, 0);
      multiply(ma.tensor(), mb.tensor(), mc.tensor());
      bits.push_back(mc.bits());
      EXPECT_EQ(omp_get_max_threads(), threads) << "as before";
    }
    omp_set_num_threads(2);
    for (const auto& other : bits) EXPECT_TRUE(bits[0] == other) << name_of(type);
  }
}

// Products that are cut into pieces of rows (parallel.tensor_pieces) rely on this.
TEST(Gemm, RowsHaveTheBitsThatTheyHaveAmongMore) {
  if (!cpu::rows_keep_their_bits()) GTEST_SKIP() << "not without AVX-512";
  for (bool native : {false, true}) {
    if (native && !cpu::Gemm::has_native_bf16()) continue;
    for (const auto& [M, N, K] : {GemmSize{48, 36, 48}, {512, 192, 256}, {520, 400, 300}, {1000, 70, 300}})
      for (DType type : {DType::f32, DType::bf16, DType::f16})
        for (int64_t rows : {16, 384})
          for (bool transposed : {true, false}) {
            if (rows >= M || (native && type != DType::bf16)) continue;
            SCOPED_TRACE(fmt::format("{} of {}x{}x{} {} native {} transposed {}", rows, M, N, K, name_of(type), native,
                                     transposed));
            const Arg a = in("a", type, {M, K}), b = in("b", type, {N, K}), c = in("c", type, {M, N});
            Memory ma(a, 0), mb(b, 0), whole(c, 0), cut(c, 0);
            cpu::Gemm gemm(native);
            const auto run = [&](const Memory& to, int64_t begin, int64_t end) {
              const Tensor y = to.tensor().rows(begin, end), x = ma.tensor().rows(begin, end);
              gemm.run(transposed ? gemm_call(LinearForward{.y = y, .x = x, .w = mb.tensor()})
                                  : gemm_call(LinearBackwardInput{.dx = y, .dy = x, .w = mb.tensor().view({K, N})}));
            };
            run(whole, 0, M);
            for (int64_t begin = 0; begin < M; begin += rows) {
              const int64_t end = M - begin < rows + 16 ? M : begin + rows;
              run(cut, begin, end);
              if (end == M) break;
            }
            EXPECT_TRUE(cut.bits() == whole.bits());
          }
  }
}

// OpenMP keeps the threads of a region for the next one of who began it, so this process then has them.
int64_t threads_of_process() {
  int64_t threads = 0;
  for ([[maybe_unused]] const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) threads++;
  return threads;
}

// How many threads a product wakes on a thread that has had none.
int64_t woken_by(int64_t M, int64_t N, int64_t K, DType type, int threads) {
  int64_t woken = 0;
  std::thread([&] {
    omp_set_num_threads(threads);
    const Arg a = in("a", type, {M, K}), b = in("b", type, {N, K}), c = in("c", type, {M, N});
    Memory ma(a, 0), mb(b, 0), mc(c, 0);
    const int64_t before = threads_of_process();
    multiply(ma.tensor(), mb.tensor(), mc.tensor());
    woken = threads_of_process() - before;
  }).join();
  return woken;
}

// Neither here nor in the library.
TEST(Gemm, AProductOfOneTileWakesNoThread) {
  constexpr int threads = 3;
  for (const DType type : {DType::f32, DType::bf16, DType::f16}) {
    SCOPED_TRACE(name_of(type));
    ASSERT_EQ(cpu::GemmTiles(64, 192).count(), 1);
    EXPECT_EQ(woken_by(64, 192, 1600, type, threads), 0);
    ASSERT_EQ(cpu::GemmTiles(64, 384).count(), 2);
    EXPECT_EQ(woken_by(64, 384, 1600, type, threads), threads - 1);
  }
}

}  // namespace
}  // namespace megalith::test
