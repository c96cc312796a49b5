#include <cublasLt.h>

#include <algorithm>
#include <exception>
#include <map>
#include <tuple>
#include <utility>

#include "kernels/base/check.h"
#include "kernels/base/device.h"
#include "kernels/gemm_cuda.h"

namespace megalith::cuda {

namespace {

void check(cublasStatus_t status, const char* call) {
  CHECK(status == CUBLAS_STATUS_SUCCESS, "{} failed: {}; does libcublasLt fit the driver?", call,
        cublasLtGetStatusName(status));
}
#define CUBLAS_CHECK(call) check(call, #call)

cudaDataType datatype(DType type) {
  return type == DType::bf16 ? CUDA_R_16BF : type == DType::f16 ? CUDA_R_16F : CUDA_R_32F;
}

// The alignment of an address in bytes, up to the most that the library uses.
uint32_t alignment(const void* p) {
  const auto address = reinterpret_cast<uintptr_t>(p) | 256;
  return static_cast<uint32_t>(address & (~address + 1));
}

struct Descriptors {
  cublasLtMatmulDesc_t matmul = nullptr;
  cublasLtMatrixLayout_t left = nullptr, right = nullptr, result = nullptr;
  cublasLtMatmulAlgo_t algorithm{};
  cublasStatus_t found = CUBLAS_STATUS_NOT_SUPPORTED;  // whether there is one

  Descriptors() = default;
  Descriptors(const Descriptors&) = delete;
  Descriptors& operator=(const Descriptors&) = delete;
  ~Descriptors() {
    for (cublasLtMatrixLayout_t layout : {left, right, result})
      if (layout) cublasLtMatrixLayoutDestroy(layout);
    if (matmul) cublasLtMatmulDescDestroy(matmul);
  }

  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    CUBLAS_CHECK(cublasLtMatmulDescSetAttribute(matmul, attribute, &value, sizeof(value)));
  }
};

struct Preference {
  cublasLtMatmulPreference_t handle = nullptr;
  Preference() { CUBLAS_CHECK(cublasLtMatmulPreferenceCreate(&handle)); }
  ~Preference() { cublasLtMatmulPreferenceDestroy(handle); }
  Preference(const Preference&) = delete;
  Preference& operator=(const Preference&) = delete;

  template <class T>
  void set(cublasLtMatmulPreferenceAttributes_t attribute, const T& value) {
    CUBLAS_CHECK(cublasLtMatmulPreferenceSetAttribute(handle, attribute, &value, sizeof(value)));
  }
};

}  // namespace

// The library stores by columns, so it is asked for C^T = B^T A^T: its left matrix is our b, its rows are our N.
struct Gemm::Library {
  using Key = std::tuple<int64_t, int64_t, int64_t, bool, bool, bool, bool, DType, DType, uint32_t, uint32_t, uint32_t,
                         uint32_t, uint32_t>;

  cublasLtHandle_t handle = nullptr;
  int generation = device::properties().major;
  std::map<Key, Descriptors> cache;

  ~Library() {
    cache.clear();
    if (handle && std::uncaught_exceptions() == 0) cublasLtDestroy(handle);  // device.h, on exceptions
  }

  static Key key(const GemmCall& g) {
    return {g.M,
            g.N,
            g.K,
            g.a_transposed,
            g.b_transposed,
            g.accumulate,
            g.gelu_input != nullptr,
            g.input,
            g.output,
            alignment(g.a),
            alignment(g.b),
            alignment(g.c),
            g.bias ? alignment(g.bias) : 0,
            alignment(g.gelu_input)};
  }

  static cublasLtEpilogue_t epilogue(const GemmCall& g) {
    if (g.gelu_input) return CUBLASLT_EPILOGUE_DGELU;
    return g.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
  }
  // The heuristics look at them too.
  static void set_pointers(Descriptors& d, const GemmCall& g) {
    if (g.bias) d.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, g.bias);
    if (g.gelu_input) d.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, g.gelu_input);
  }

  void describe(Descriptors& d, const GemmCall& g) {
    CUBLAS_CHECK(cublasLtMatmulDescCreate(&d.matmul, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    d.set(CUBLASLT_MATMUL_DESC_TRANSA, g.b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    d.set(CUBLASLT_MATMUL_DESC_TRANSB, g.a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    d.set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue(g));
    if (g.bias) d.set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, datatype(g.output));
    if (g.gelu_input) d.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, g.N);
    const auto layout = [](cublasLtMatrixLayout_t& out, DType type, int64_t rows, int64_t cols) {
      CUBLAS_CHECK(cublasLtMatrixLayoutCreate(&out, datatype(type), static_cast<uint64_t>(rows),
                                              static_cast<uint64_t>(cols), rows));
    };
    layout(d.left, g.input, g.b_transposed ? g.K : g.N, g.b_transposed ? g.N : g.K);
    layout(d.right, g.input, g.a_transposed ? g.M : g.K, g.a_transposed ? g.K : g.M);
    layout(d.result, g.output, g.N, g.M);
  }

  void choose(Descriptors& d, const GemmCall& g) {
    Preference preference;
    preference.set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(workspace_bytes));
    preference.set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                   static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment(g.b));
    preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment(g.a));
    preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment(g.c));
    preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment(g.c));
    cublasLtMatmulHeuristicResult_t found{};
    int count = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(handle, d.matmul, d.left, d.right, d.result, d.result,
                                                                 preference.handle, 1, &found, &count);
    if (status != CUBLAS_STATUS_SUCCESS) {
      d.found = status;
    } else if (count == 1) {
      d.algorithm = found.algo;
      d.found = found.state;  // the rest of it holds only where this is success
    }
  }

  // Asked of the library once for each shape.
  Descriptors& of(const GemmCall& g) {
    const auto [at, added] = cache.try_emplace(key(g));
    if (!added) return at->second;
    try {
      describe(at->second, g);
      set_pointers(at->second, g);
      choose(at->second, g);
    } catch (...) {
      cache.erase(at);
      throw;
    }
    return at->second;
  }
};

Gemm::Gemm() : library_(std::make_unique<Library>()) { CUBLAS_CHECK(cublasLtCreate(&library_->handle)); }
Gemm::~Gemm() = default;

// cuBLASLt's GELU is the tanh form (PyTorch pull request 104061); how exactly it takes the tanh is not documented, so
// only in bf16: the error of the GPU's instruction for it, 2^-11, is as large as the rounding of f16. It runs inside
// the GEMM's kernel, and then is the faster way, on Hopper (llm.c pull request 653, SGLang 34350) and on B200 (SGLang
// 28168). On generations before and after these it was measured to be a slow second pass (llm.c 338, SGLang 34350):
// there the second pass is ours.
bool Gemm::fuses(const GemmCall& call) {
  if (call.output != DType::bf16 || (library_->generation != 9 && library_->generation != 10)) return false;
  // The documented law of the library's second matrix, and vectors of the usual size in it.
  if (call.N % 8 != 0 || alignment(call.gelu_input) < 16 || call.M == 0 || call.N == 0) return false;
  return library_->of(call).found == CUBLAS_STATUS_SUCCESS;
}

void Gemm::run(const Queue& queue, const GemmCall& call) {
  CHECK(!call.accumulate || call.output == DType::f32, "a GEMM adds to f32 only, not to {}", name_of(call.output));
  if (call.M == 0 || call.N == 0) return;
  Descriptors& d = library_->of(call);
  CHECK(d.found == CUBLAS_STATUS_SUCCESS,
        "cuBLASLt has no GEMM of {} x {} x {} from {} to {} with a workspace of {} bytes: {}", call.M, call.N, call.K,
        name_of(call.input), name_of(call.output), workspace_bytes, cublasLtGetStatusName(d.found));
  Library::set_pointers(d, call);
  const float one = 1, beta = call.accumulate ? 1 : 0;
  CUBLAS_CHECK(cublasLtMatmul(library_->handle, d.matmul, &one, call.b, d.left, call.a, d.right, &beta, call.c,
                              d.result, call.c, d.result, &d.algorithm, queue.workspace,
                              static_cast<size_t>(workspace_bytes), queue.stream));
}

}  // namespace megalith::cuda
