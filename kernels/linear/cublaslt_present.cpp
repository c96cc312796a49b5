// The functions of cuBLASLt that gemm_present.cpp calls, loaded with dlopen at the first call, so that a machine
// without the library or a GPU can do everything else.
#include <cublasLt.h>
#include <dlfcn.h>

#include "kernels/system/check.h"

namespace megalith {

namespace {

#define TEXT_OF(number) #number
#define TEXT(number) TEXT_OF(number)
constexpr const char* file = "libcublasLt.so." TEXT(CUBLAS_VER_MAJOR);

void* library() {
  static void* const handle = [] {
    void* opened = dlopen(file, RTLD_NOW | RTLD_LOCAL);  // never closed
    CHECK(opened,
          "cannot open cuBLASLt, which computes matrix products on GPUs: {}; install the CUDA {} libraries, or add the "
          "folder of {} to LD_LIBRARY_PATH",
          dlerror(), CUBLAS_VER_MAJOR, file);
    return opened;
  }();
  return handle;
}

template <class Function>
Function* find(const char* name) {
  void* address = dlsym(library(), name);
  CHECK(address, "{} has no {}; install CUDA {}.{} or newer", file, name, CUBLAS_VER_MAJOR, CUBLAS_VER_MINOR);
  return reinterpret_cast<Function*>(address);
}

}  // namespace

#define FORWARD(function, ...)                                      \
  static auto* const found = find<decltype(::function)>(#function); \
  return found(__VA_ARGS__)

extern "C" {

size_t cublasLtGetVersion() {
  static auto* const found = find<decltype(::cublasLtGetVersion)>("cublasLtGetVersion");
  return found();
}
const char* cublasLtGetStatusName(cublasStatus_t status) { FORWARD(cublasLtGetStatusName, status); }

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) { FORWARD(cublasLtCreate, handle); }
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) { FORWARD(cublasLtDestroy, handle); }

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type, uint64_t rows,
                                          uint64_t cols, int64_t stride) {
  FORWARD(cublasLtMatrixLayoutCreate, layout, type, rows, cols, stride);
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  FORWARD(cublasLtMatrixLayoutDestroy, layout);
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* matmul, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  FORWARD(cublasLtMatmulDescCreate, matmul, compute, scale);
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t matmul) { FORWARD(cublasLtMatmulDescDestroy, matmul); }
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t matmul, cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t bytes) {
  FORWARD(cublasLtMatmulDescSetAttribute, matmul, attribute, value, bytes);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  FORWARD(cublasLtMatmulPreferenceCreate, preference);
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  FORWARD(cublasLtMatmulPreferenceDestroy, preference);
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                                                    size_t bytes) {
  FORWARD(cublasLtMatmulPreferenceSetAttribute, preference, attribute, value, bytes);
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t matmul,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t* results, int* count) {
  FORWARD(cublasLtMatmulAlgoGetHeuristic, handle, matmul, a, b, c, d, preference, wanted, results, count);
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t matmul, cublasLtMatrixLayout_t a,
                                       cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t* algorithm, cublasLtMatmulHeuristicResult_t* result) {
  FORWARD(cublasLtMatmulAlgoCheck, handle, matmul, a, b, c, d, algorithm, result);
}
cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t* algorithm,
                                                    cublasLtMatmulAlgoConfigAttributes_t attribute, void* value,
                                                    size_t bytes, size_t* written) {
  FORWARD(cublasLtMatmulAlgoConfigGetAttribute, algorithm, attribute, value, bytes, written);
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t matmul, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout,
                              const void* beta, const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                              size_t workspace_bytes, cudaStream_t stream) {
  FORWARD(cublasLtMatmul, handle, matmul, alpha, a, a_layout, b, b_layout, beta, c, c_layout, d, d_layout, algorithm,
          workspace, workspace_bytes, stream);
}

}  // extern "C"

}  // namespace megalith
