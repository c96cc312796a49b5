// cuBLASLt on the simulated GPU of tests/simt: what kernels/linear/cublaslt_present.cpp finds when it opens the
// library. What is wrong with a call it says where the real one's documentation does: attributes of another size are
// refused as they are set, their values when they are used (CUDA 13.0's library, tried without a GPU, takes any number
// for an epilogue), and layouts that do not fit, types that do not go together, a GELU's matrix of a leading dimension
// that 8 does not divide, and too little workspace by the calls that see all of it. Where a real kernel would fault,
// the stream throws.
//
// Its algorithms (algorithm.h) differ in the order of their sums, and so in bits. The ones with atomics add in another
// order each time.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/system/check.h"
#include "kernels/tensor/tensor.h"
#include "tests/simt/simt.h"
#include "tests/simulated_cublaslt/algorithm.h"
#include "tests/simulated_cublaslt/control.h"

using namespace megalith;
using simulated_cublaslt::Algorithm;
using simulated_cublaslt::Problem;

struct cublasLtContext {};

namespace {

simulated_cublaslt::Control& control() {
  static simulated_cublaslt::Control the_one;
  return the_one;
}
size_t version() { return control().version ? control().version.load() : CUBLAS_VERSION; }

template <class T>
cublasStatus_t set(T& member, const void* value, size_t bytes) {
  if (!value || bytes != sizeof(T)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&member, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

size_t needed(const Algorithm& a, const Problem& p) { return a.workspace(p) + control().more_workspace; }

float value_at(cudaDataType type, const void* p, int64_t i) {
  switch (type) {
    case CUDA_R_16BF: return static_cast<float>(static_cast<const bfloat16*>(p)[i]);
    case CUDA_R_16F: return static_cast<float>(static_cast<const float16*>(p)[i]);
    case CUDA_R_8F_E4M3: return float8_e4m3::value_of(static_cast<const uint8_t*>(p)[i]);
    case CUDA_R_8F_E5M2: return float8_e5m2::value_of(static_cast<const uint8_t*>(p)[i]);
    default: return static_cast<const float*>(p)[i];
  }
}
void put(cudaDataType type, void* p, int64_t i, float v) {
  switch (type) {
    case CUDA_R_16BF: static_cast<bfloat16*>(p)[i] = bfloat16(v); break;
    case CUDA_R_16F: static_cast<float16*>(p)[i] = float16(v); break;
    default: static_cast<float*>(p)[i] = v;
  }
}

// In double: what a kernel takes the tanh by is nobody's business.
double gelu_gradient(double x) {
  const double c = std::sqrt(2 / 3.14159265358979323846), t = std::tanh(c * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * c * (1 + 3 * 0.044715 * x * x);
}

// Everything of a call, as it was when it was made.
struct Call {
  Problem p;
  Algorithm algorithm;
  const void *a, *b, *c;
  void *d, *workspace;
  size_t workspace_bytes;
  float alpha, beta;

  void execute() const;

 private:
  void touches() const;
};

int64_t span(const cublasLtMatrixLayout& l) {
  return (static_cast<int64_t>(l.cols - 1) * l.ld + static_cast<int64_t>(l.rows)) * simulated_cublaslt::size_of(l.type);
}
bool overlap(const void* x, int64_t x_bytes, const void* y, int64_t y_bytes) {
  const auto a = reinterpret_cast<uintptr_t>(x), b = reinterpret_cast<uintptr_t>(y);
  return a < b + static_cast<uintptr_t>(y_bytes) && b < a + static_cast<uintptr_t>(x_bytes);
}

// The kernel's accesses, and what it may not be given.
void Call::touches() const {
  for (const auto& [matrix, layout] : {std::pair{a, p.a}, {b, p.b}}) {
    simt::reads_by_library(matrix, span(layout));
    CHECK(!overlap(matrix, span(layout), d, span(p.d)), "a GEMM's result overlaps a factor");
  }
  // An epilogue loads and stores its vector or matrix as the kernel stores D.
  const bool has_vector =
      p.is(CUBLASLT_EPILOGUE_BIAS) || p.is(CUBLASLT_EPILOGUE_BGRADA) || p.is(CUBLASLT_EPILOGUE_BGRADB);
  const void* const vector = has_vector ? p.matmul.bias : nullptr;
  const void* const matrix_of_gelu = p.is(CUBLASLT_EPILOGUE_DGELU) ? p.matmul.aux : nullptr;
  for (const auto& [address, type] : {std::pair{a, p.a.type},
                                      {b, p.b.type},
                                      {static_cast<const void*>(d), p.d.type},
                                      {vector, p.bias_type()},
                                      {matrix_of_gelu, p.d.type}})
    CHECK(reinterpret_cast<uintptr_t>(address) % static_cast<uintptr_t>(algorithm.alignment(type)) == 0,
          "misaligned address: algorithm {} wants addresses on boundaries of {} bytes", algorithm.id,
          algorithm.alignment(type));
  if (beta != 0) simt::reads_by_library(c, span(p.d));
  if (p.is(CUBLASLT_EPILOGUE_BIAS))
    simt::reads_by_library(p.matmul.bias, p.m * simulated_cublaslt::size_of(p.bias_type()));
  if (p.is(CUBLASLT_EPILOGUE_DGELU))
    simt::reads_by_library(p.matmul.aux, ((p.n - 1) * p.matmul.aux_ld + p.m) * simulated_cublaslt::size_of(p.d.type));
}

void Call::execute() const {
  touches();
  const int64_t m = p.m, n = p.n, k = p.k, splits = algorithm.splits, block = algorithm.block;
  std::vector<float> left(static_cast<size_t>(m * k)), right(static_cast<size_t>(k * n));  // (k, m) and (n, k)
  for (int64_t h = 0; h < k; h++)
    for (int64_t i = 0; i < m; i++)
      left[static_cast<size_t>(h * m + i)] =
          value_at(p.a.type, a, p.matmul.transa == CUBLAS_OP_T ? h + i * p.a.ld : i + h * p.a.ld);
  for (int64_t j = 0; j < n; j++)
    for (int64_t h = 0; h < k; h++)
      right[static_cast<size_t>(j * k + h)] =
          value_at(p.b.type, b, p.matmul.transb == CUBLAS_OP_T ? j + h * p.b.ld : h + j * p.b.ld);

  // The parts of a split sum lie in the workspace.
  std::vector<float> own(splits > 1 ? 0 : static_cast<size_t>(m * n));
  const bool shared = splits > 1 && algorithm.reduction == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  if (splits > 1 && !shared) own.resize(static_cast<size_t>(splits * m * n));  // which atomics would have added up
  float* const parts = shared ? static_cast<float*>(workspace) : own.data();
  if (shared) simt::writes_by_library(workspace, splits * m * n * 4);
  std::vector<float> sum(static_cast<size_t>(m));
  for (int64_t s = 0; s < splits; s++)
    for (int64_t j = 0; j < n; j++) {
      float* const to = parts + (s * n + j) * m;
      std::fill_n(to, m, 0.f);
      const int64_t end = k * (s + 1) / splits;
      for (int64_t h0 = k * s / splits; h0 < end; h0 += block) {
        std::fill(sum.begin(), sum.end(), 0.f);
        for (int64_t h = h0; h < std::min(end, h0 + block); h++) {
          const float factor = right[static_cast<size_t>(j * k + h)];
          const float* const column = left.data() + h * m;
          for (int64_t i = 0; i < m; i++) sum[static_cast<size_t>(i)] += column[i] * factor;
        }
        for (int64_t i = 0; i < m; i++) to[i] += sum[static_cast<size_t>(i)];
      }
    }

  float scale = alpha;
  for (const float* of : {p.matmul.a_scale, p.matmul.b_scale}) {
    if (!of) continue;
    simt::reads_by_library(of, sizeof(float));
    scale *= *of;
  }
  static int64_t race = 0;
  const int64_t first = algorithm.reduction == CUBLASLT_REDUCTION_SCHEME_INPLACE ? race++ : 0;
  const bool biased = p.is(CUBLASLT_EPILOGUE_BIAS), gelu = p.is(CUBLASLT_EPILOGUE_DGELU);
  const bool rounds_twice = splits > 1 && m % 2 != 0;  // as cuBLASLt 13.1 does on an H100
  for (int64_t j = 0; j < n; j++)
    for (int64_t i = 0; i < m; i++) {
      float v = 0;
      for (int64_t s = 0; s < splits; s++) v += scale * parts[((first + s) % splits * n + j) * m + i];
      if (beta != 0) v += beta * value_at(p.c.type, c, i + j * p.c.ld);
      if (biased && rounds_twice) {
        char once[sizeof(float)];
        put(p.d.type, once, 0, v);
        v = value_at(p.d.type, once, 0);
      }
      if (biased) v += value_at(p.bias_type(), p.matmul.bias, i);
      if (gelu) v *= static_cast<float>(gelu_gradient(value_at(p.d.type, p.matmul.aux, i + j * p.matmul.aux_ld)));
      put(p.d.type, d, i + j * p.d.ld, v);
    }
  for (int64_t j = 0; j < n; j++)
    simt::writes_by_library(static_cast<char*>(d) + j * p.d.ld * simulated_cublaslt::size_of(p.d.type),
                            m * simulated_cublaslt::size_of(p.d.type));

  // Sums of a factor over k, stored and not added, in blocks as the product's.
  for (const bool of_a : {true, false}) {
    if (!p.is(of_a ? CUBLASLT_EPILOGUE_BGRADA : CUBLASLT_EPILOGUE_BGRADB)) continue;
    const int64_t length = of_a ? m : n;
    void* const to = const_cast<void*>(p.matmul.bias);
    simt::writes_by_library(to, length * simulated_cublaslt::size_of(p.bias_type()));
    CHECK(!overlap(to, length * 4, workspace, static_cast<int64_t>(workspace_bytes)),
          "a bias gradient lies in the workspace that the GEMM has");
    for (int64_t i = 0; i < length; i++) {
      float v = 0;
      for (int64_t h0 = 0; h0 < k; h0 += block) {
        float part = 0;
        for (int64_t h = h0; h < std::min(k, h0 + block); h++)
          part += of_a ? left[static_cast<size_t>(h * m + i)] : right[static_cast<size_t>(i * k + h)];
        v += part;
      }
      put(p.bias_type(), to, i, v);
    }
  }
}

// The status of an algorithm for a problem; of success, what it is.
cublasStatus_t check(const cublasLtMatmulAlgo_t& words, const Problem& p, Algorithm& found) {
  const Algorithm* known = simulated_cublaslt::find_algorithm(words, version(), simt::chip().major);
  if (!known) return CUBLAS_STATUS_NOT_SUPPORTED;
  found = *known;
  return known->takes(p) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

}  // namespace

extern "C" {

simulated_cublaslt::Control* simulated_cublaslt_control() { return &control(); }

size_t cublasLtGetVersion() { return version(); }
const char* cublasLtGetStatusName(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS: return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED: return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_INVALID_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
    default: return "CUBLAS_STATUS_???";
  }
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = new cublasLtContext;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type, uint64_t rows,
                                          uint64_t cols, int64_t ld) {
  *layout = new cublasLtMatrixLayout{type, rows, cols, ld};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete layout;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* matmul, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  if (compute != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;  // here
  *matmul = new cublasLtMatmulDesc;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t matmul) {
  delete matmul;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t matmul, cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t bytes) {
  if (!matmul) return CUBLAS_STATUS_INVALID_VALUE;
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA: return set(matmul->transa, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB: return set(matmul->transb, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE: return set(matmul->epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return set(matmul->bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE: return set(matmul->bias_type, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER: return set(matmul->aux, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD: return set(matmul->aux_ld, value, bytes);
    case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER: return set(matmul->a_scale, value, bytes);
    case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER: return set(matmul->b_scale, value, bytes);
    case CUBLASLT_MATMUL_DESC_FAST_ACCUM: return set(matmul->fast_accumulation, value, bytes);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = new cublasLtMatmulPreference;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete preference;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                                                    size_t bytes) {
  if (!preference) return CUBLAS_STATUS_INVALID_VALUE;
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES: return set(preference->workspace, value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK: return set(preference->reductions, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES: return set(preference->alignment_a, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES: return set(preference->alignment_b, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES: return set(preference->alignment_c, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES: return set(preference->alignment_d, value, bytes);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t matmul, cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                                              cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t preference,
                                              int wanted, cublasLtMatmulHeuristicResult_t* results, int* count) {
  control().asked++;
  *count = 0;
  if (!preference || wanted <= 0 || !results) return CUBLAS_STATUS_INVALID_VALUE;
  const Problem p = simulated_cublaslt::problem(matmul, a, b, c, d);
  if (p.status != CUBLAS_STATUS_SUCCESS) return p.status;
  if (control().no_heuristic) return CUBLAS_STATUS_NOT_SUPPORTED;
  for (const Algorithm& algorithm : simulated_cublaslt::best_first(p)) {
    if (*count == wanted) break;
    if (!algorithm.takes(p) || !algorithm.suits(*preference, p) || needed(algorithm, p) > preference->workspace)
      continue;
    results[(*count)++] = {.algo = algorithm.words(version(), simt::chip().major),
                           .workspaceSize = needed(algorithm, p),
                           .state = CUBLAS_STATUS_SUCCESS,
                           .wavesCount = 1,
                           .reserved = {}};
  }
  return *count ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t matmul, cublasLtMatrixLayout_t a,
                                       cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t* algorithm, cublasLtMatmulHeuristicResult_t* result) {
  control().checked++;
  if (!algorithm || !result) return CUBLAS_STATUS_INVALID_VALUE;
  if (control().no_check) return CUBLAS_STATUS_NOT_SUPPORTED;
  const Problem p = simulated_cublaslt::problem(matmul, a, b, c, d);
  Algorithm found;
  const cublasStatus_t status = p.status != CUBLAS_STATUS_SUCCESS ? p.status : check(*algorithm, p, found);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  *result = {.algo = *algorithm,
             .workspaceSize = needed(found, p),
             .state = CUBLAS_STATUS_SUCCESS,
             .wavesCount = 1,
             .reserved = {}};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t* algorithm,
                                                    cublasLtMatmulAlgoConfigAttributes_t attribute, void* value,
                                                    size_t bytes, size_t* written) {
  const Algorithm* known = simulated_cublaslt::find_algorithm(*algorithm, version(), simt::chip().major);
  if (!known || !value || bytes != 4) return CUBLAS_STATUS_INVALID_VALUE;
  const int32_t number = attribute == CUBLASLT_ALGO_CONFIG_ID                 ? known->id
                         : attribute == CUBLASLT_ALGO_CONFIG_TILE_ID          ? known->block
                         : attribute == CUBLASLT_ALGO_CONFIG_SPLITK_NUM       ? known->splits
                         : attribute == CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME ? known->reduction
                                                                              : 0;
  std::memcpy(value, &number, bytes);
  if (written) *written = bytes;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t matmul, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout,
                              const void* beta, const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                              size_t workspace_bytes, cudaStream_t stream) {
  if (!handle || !alpha || !beta || !a || !b || !c || !d || !algorithm) return CUBLAS_STATUS_INVALID_VALUE;
  Call call{.p = simulated_cublaslt::problem(matmul, a_layout, b_layout, c_layout, d_layout),
            .algorithm = {},
            .a = a,
            .b = b,
            .c = c,
            .d = d,
            .workspace = workspace,
            .workspace_bytes = workspace_bytes,
            .alpha = *static_cast<const float*>(alpha),
            .beta = *static_cast<const float*>(beta)};
  if (call.p.status != CUBLAS_STATUS_SUCCESS) return call.p.status;
  if (const auto status = check(*algorithm, call.p, call.algorithm); status != CUBLAS_STATUS_SUCCESS) return status;
  if (needed(call.algorithm, call.p) > workspace_bytes || (workspace_bytes && !workspace) ||
      reinterpret_cast<uintptr_t>(workspace) % 256)
    return CUBLAS_STATUS_INVALID_VALUE;
  control().enqueued++;
  control().last_algorithm = call.algorithm.id;
  control().last_splits = call.algorithm.splits;
  control().last_epilogue = static_cast<int>(call.p.matmul.epilogue);
  simt::submit(stream, [call] { call.execute(); });
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
