#include "kernels/linear/gemm_cpu.h"

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <oneapi/dnnl/dnnl.hpp>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "kernels/linear/few_rows_cpu.h"
#include "kernels/loops/loops_cpu.h"

namespace megalith::cpu {

namespace {
// Returns false on processors other than x86-64, where the library gives these bits other meanings.
bool has_isa([[maybe_unused]] dnnl::cpu_isa wanted) {
#if defined(__x86_64__)
  return (unsigned(dnnl::get_effective_cpu_isa()) & unsigned(wanted)) == unsigned(wanted);
#else
  return false;
#endif
}

bool is_intel() {
#if defined(__x86_64__)
  return __builtin_cpu_is("intel");
#else
  return false;
#endif
}
}  // namespace

bool has_fast_bf16() {
  if (has_isa(dnnl::cpu_isa::avx512_core_amx)) return true;
  return has_isa(dnnl::cpu_isa::avx512_core_bf16) && !is_intel();
}

bool rows_keep_their_bits() { return has_isa(dnnl::cpu_isa::avx512_core); }

// One primitive for each shape, for whole matrices and all threads.
struct Gemm::Primitives {
  using Key = std::tuple<int64_t, int64_t, int64_t, bool, bool, bool, bool, DType>;
  struct Prepared {
    dnnl::matmul primitive;
    dnnl::memory a, b, c, bias;
    std::unordered_map<int, dnnl::memory> arguments;
  };
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  std::map<Key, Prepared> prepared;

  static dnnl::memory::desc matrix(int64_t rows, int64_t cols, DType type, bool transposed) {
    const auto element = type == DType::bf16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
    const dnnl::memory::dims strides = transposed ? dnnl::memory::dims{1, rows} : dnnl::memory::dims{cols, 1};
    return {{rows, cols}, element, strides};
  }

  // Returns no primitive if the library has no such product on this processor. oneDNN 2 has a description before the
  // primitive's; oneDNN 3 merged the two.
  template <class... Matrices>
  dnnl::matmul::primitive_desc describe(const dnnl::primitive_attr& attributes, const Matrices&... matrices) const {
    constexpr bool may_be_empty = true;
#if DNNL_VERSION_MAJOR < 3
    return {dnnl::matmul::desc(matrices...), attributes, engine, may_be_empty};
#else
    return {engine, matrices..., attributes, may_be_empty};
#endif
  }

  Prepared make(const GemmCall& call) {
    const auto a = matrix(call.M, call.K, call.input, call.a_transposed);
    const auto b = matrix(call.K, call.N, call.input, call.b_transposed);
    const auto c = matrix(call.M, call.N, call.output, false);
    const auto bias = matrix(1, call.N, call.input, false);
    dnnl::post_ops post;
    if (call.accumulate) post.append_sum(1.0f);
    dnnl::primitive_attr attributes;
    attributes.set_post_ops(post);
    const bool has_bias = call.bias != nullptr;
    const auto description = has_bias ? describe(attributes, a, b, bias, c) : describe(attributes, a, b, c);
    CHECK(description, "oneDNN {} has no bf16 product of {} x {} x {} on this processor", gemm_version(), call.M,
          call.N, call.K);
    Prepared plan;
    plan.primitive = dnnl::matmul(description);
    plan.a = dnnl::memory(a, engine, DNNL_MEMORY_NONE);
    plan.b = dnnl::memory(b, engine, DNNL_MEMORY_NONE);
    plan.c = dnnl::memory(c, engine, DNNL_MEMORY_NONE);
    // Copies of a dnnl::memory share their handle, so setting it later also changes the argument map.
    plan.arguments = {{DNNL_ARG_SRC, plan.a}, {DNNL_ARG_WEIGHTS, plan.b}, {DNNL_ARG_DST, plan.c}};
    if (has_bias) {
      plan.bias = dnnl::memory(bias, engine, DNNL_MEMORY_NONE);
      plan.arguments.emplace(DNNL_ARG_BIAS, plan.bias);
    }
    return plan;
  }

  void run(const GemmCall& call) {
    const Key key{
        call.M,     call.N, call.K, call.a_transposed, call.b_transposed, call.accumulate, call.bias != nullptr,
        call.output};
    auto it = prepared.find(key);
    if (it == prepared.end()) it = prepared.emplace(key, make(call)).first;
    Prepared& plan = it->second;
    plan.a.set_data_handle(const_cast<void*>(call.a));
    plan.b.set_data_handle(const_cast<void*>(call.b));
    plan.c.set_data_handle(call.c);
    if (call.bias != nullptr) plan.bias.set_data_handle(const_cast<void*>(call.bias));
    plan.primitive.execute(stream, plan.arguments);
    stream.wait();
  }
};

namespace {
// Makes the library use the calling thread only. Outside parallel regions it would use all threads.
class OneThread {
 public:
  OneThread() : threads_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~OneThread() { omp_set_num_threads(threads_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int threads_;
};

// Widens elements [row, row + rows) x [col, col + cols) of a stored matrix.
template <class T>
void widen(float* to, const T* from, int64_t stride, int64_t row, int64_t col, int64_t rows, int64_t cols) {
  for (int64_t r = 0; r < rows; r++) {
    const T* source = from + (row + r) * stride + col;
    float* target = to + r * cols;
#pragma omp simd
    for (int64_t c = 0; c < cols; c++) target[c] = get(source[c]);
  }
}

dnnl_status_t multiply(const GemmCall& call, int64_t m, int64_t n, int64_t k, const float* a, int64_t lda,
                       const float* b, int64_t ldb, bool accumulate, float* c, int64_t ldc) {
  const float scale =
      call.a_unscale ? *static_cast<const float*>(call.a_unscale) * *static_cast<const float*>(call.b_unscale) : 1.0f;
  return dnnl_sgemm(call.a_transposed ? 'T' : 'N', call.b_transposed ? 'T' : 'N', m, n, k, scale, a, lda, b, ldb,
                    accumulate ? 1.0f : 0.0f, c, ldc);
}

dnnl_status_t run_f32(const GemmCall& call, const GemmTiles::Tile& t) {
  const float *a = static_cast<const float*>(call.a), *b = static_cast<const float*>(call.b);
  const float* bias = static_cast<const float*>(call.bias);
  float* c = static_cast<float*>(call.c) + t.row * call.N + t.col;
  const int64_t lda = call.a_transposed ? call.M : call.K, ldb = call.b_transposed ? call.K : call.N;
  const dnnl_status_t status =
      multiply(call, t.rows, t.cols, call.K, a + (call.a_transposed ? t.row : t.row * lda), lda,
               b + (call.b_transposed ? t.col * ldb : t.col), ldb, call.accumulate, c, call.N);
  for (int64_t r = 0; bias != nullptr && r < t.rows; r++)
#pragma omp simd
    for (int64_t i = 0; i < t.cols; i++) c[r * call.N + i] += bias[t.col + i];
  return status;
}

// Runs a tile through f32 copies of A and B, a block of K at a time.
template <class A, class B, class Out>
dnnl_status_t run_widened(const GemmCall& call, const GemmTiles::Tile& t, std::vector<float>& scratch) {
  constexpr int64_t depth = 768;
  scratch.resize(static_cast<size_t>((t.rows + t.cols) * depth + t.rows * t.cols));
  float *a = scratch.data(), *b = a + t.rows * depth, *sums = b + t.cols * depth;
  const auto* from_a = static_cast<const A*>(call.a);
  const auto* from_b = static_cast<const B*>(call.b);
  const bool to_f32 = call.output == DType::f32;
  float* c = to_f32 ? static_cast<float*>(call.c) + t.row * call.N + t.col : sums;
  dnnl_status_t status = dnnl_success;
  for (int64_t first = 0; first < call.K && status == dnnl_success; first += depth) {
    const int64_t k = std::min(depth, call.K - first);
    if (call.a_transposed) {
      widen(a, from_a, call.M, first, t.row, k, t.rows);
    } else {
      widen(a, from_a, call.K, t.row, first, t.rows, k);
    }
    if (call.b_transposed) {
      widen(b, from_b, call.K, t.col, first, t.cols, k);
    } else {
      widen(b, from_b, call.N, first, t.col, k, t.cols);
    }
    status = multiply(call, t.rows, t.cols, k, a, call.a_transposed ? t.rows : k, b, call.b_transposed ? k : t.cols,
                      call.accumulate || first > 0, c, to_f32 ? call.N : t.cols);
  }
  const auto* bias = static_cast<const Out*>(call.bias);
  for (int64_t r = 0; r < t.rows; r++) {
    float* row = c + r * (to_f32 ? call.N : t.cols);
    if (bias != nullptr)
#pragma omp simd
      for (int64_t i = 0; i < t.cols; i++) row[i] += get(bias[t.col + i]);
    if (to_f32) continue;
    Out* target = static_cast<Out*>(call.c) + (t.row + r) * call.N + t.col;
#pragma omp simd
    for (int64_t i = 0; i < t.cols; i++) put(target[i], row[i]);
  }
  return status;
}

template <class A>
dnnl_status_t run_fp8(const GemmCall& call, const GemmTiles::Tile& tile, std::vector<float>& scratch) {
  if (call.output == DType::f32) return run_widened<A, float8_e4m3, float>(call, tile, scratch);
  return run_widened<A, float8_e4m3, bfloat16>(call, tile, scratch);
}

dnnl_status_t run_tile(const GemmCall& call, const GemmTiles::Tile& tile, std::vector<float>& scratch) {
  switch (call.input) {
    case DType::bf16: return run_widened<bfloat16, bfloat16, bfloat16>(call, tile, scratch);
    case DType::f16: return run_widened<float16, float16, float16>(call, tile, scratch);
    case DType::e4m3: return run_fp8<float8_e4m3>(call, tile, scratch);
    case DType::e5m2: return run_fp8<float8_e5m2>(call, tile, scratch);
    default: return run_f32(call, tile);
  }
}

// Returns whether this is a forward pass of few rows, which is bound by reading the weights: few_rows_cpu.h.
bool is_few_rows(const GemmCall& call) {
  return call.M <= few_rows && !call.a_transposed && call.b_transposed && !call.accumulate && !is_8_bit(call.input);
}

void run_few_rows(const GemmCall& call) {
  with_compute_type(call.input, [&](auto tag) {
    using In = decltype(tag);
    const auto *x = static_cast<const In*>(call.a), *w = static_cast<const In*>(call.b),
               *b = static_cast<const In*>(call.bias);
    if (call.output == DType::f32)
      multiply_few_rows(static_cast<float*>(call.c), x, w, b, call.M, call.N, call.K);
    else
      multiply_few_rows(static_cast<In*>(call.c), x, w, b, call.M, call.N, call.K);
  });
}
}  // namespace

const char* vectors_of_ops() {
#if defined(__AVX512F__)
  return "AVX-512";
#elif defined(__AVX2__)
  return "AVX2";
#elif defined(__SSE4_2__)
  return "SSE4.2";
#elif defined(__ARM_NEON)
  return "NEON";
#else
  return "SSE2";
#endif
}

struct Gemm::Scratch {
  std::vector<std::vector<float>> of_thread;
};

std::string gemm_version() {
  const dnnl_version_t& v = *dnnl_version();
  return fmt::format("{}.{}.{}", v.major, v.minor, v.patch);
}

Gemm::Gemm(bool native_bf16)
    : native_bf16_(native_bf16), primitives_(std::make_unique<Primitives>()), scratch_(std::make_unique<Scratch>()) {}
Gemm::~Gemm() = default;

bool Gemm::has_native_bf16() {
  const Primitives primitives;
  const auto any = Primitives::matrix(64, 64, DType::bf16, false);
  return static_cast<bool>(primitives.describe({}, any, any, any));
}

void Gemm::run(const GemmCall& call) {
  CHECK(!call.accumulate || call.output == DType::f32, "a GEMM accumulates in f32, not {}", name_of(call.output));
  if (call.M == 0 || call.N == 0) return;
  if (is_few_rows(call)) return run_few_rows(call);
  if (call.input == DType::bf16 && native_bf16_) {
    primitives_->run(call);
    return;
  }
  const GemmTiles tiles(call.M, call.N);
  scratch_->of_thread.resize(static_cast<size_t>(omp_get_max_threads()));
  std::atomic<int> failed = dnnl_success;  // an exception may not leave a parallel region
  const auto run = [&](int64_t i) {
    const GemmTiles::Tile tile = tiles[i];
    std::vector<float>& scratch = scratch_->of_thread[static_cast<size_t>(omp_get_thread_num())];
    const dnnl_status_t status = run_tile(call, tile, scratch);
    if (status != dnnl_success) failed = status;
  };
  if (tiles.count() == 1) {  // do not wake idle threads
    const OneThread one_thread;
    run(0);
  } else {
    // In a parallel region the library keeps to the calling thread.
#pragma omp parallel for schedule(dynamic) if (omp_get_max_threads() > 1)
    for (int64_t i = 0; i < tiles.count(); i++) run(i);
  }
  CHECK(failed == dnnl_success, "GEMM of {} x {} x {}: oneDNN fails with status {}", call.M, call.N, call.K,
        failed.load());
}

}  // namespace megalith::cpu
