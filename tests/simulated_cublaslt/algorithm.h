// What the simulated cuBLASLt is asked for, checked as far as that goes without its memory, and the algorithms that it
// has for it: they differ in how they cut k, in what they need of memory, and in how the parts of a sum are added.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/simulated_cublaslt/cublasLt.h"

// Matrices lie column by column.
struct cublasLtMatrixLayout {
  cudaDataType type;
  uint64_t rows, cols;
  int64_t ld;
};
struct cublasLtMatmulDesc {
  int32_t transa = CUBLAS_OP_N, transb = CUBLAS_OP_N;
  uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
  const void* aux = nullptr;
  int64_t aux_ld = 0;
  int32_t bias_type = -1;          // D's
  const float* a_scale = nullptr;  // null: 1
  const float* b_scale = nullptr;
  int8_t fast_accumulation = 0;
};
struct cublasLtMatmulPreference {
  uint64_t workspace = 0;
  uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
  uint32_t alignment_a = 256, alignment_b = 256, alignment_c = 256, alignment_d = 256;
};

namespace megalith::simulated_cublaslt {

int64_t size_of(cudaDataType type);

struct Problem {
  cublasStatus_t status = CUBLAS_STATUS_INVALID_VALUE;
  cublasLtMatmulDesc matmul{};
  cublasLtMatrixLayout a{}, b{}, c{}, d{};
  int64_t m = 0, n = 0, k = 0;

  bool is(cublasLtEpilogue_t epilogue) const { return matmul.epilogue == static_cast<uint32_t>(epilogue); }
  cudaDataType bias_type() const { return matmul.bias_type < 0 ? d.type : static_cast<cudaDataType>(matmul.bias_type); }
};
// Null pointers give an invalid one.
Problem problem(const cublasLtMatmulDesc* matmul, const cublasLtMatrixLayout* a, const cublasLtMatrixLayout* b,
                const cublasLtMatrixLayout* c, const cublasLtMatrixLayout* d);

struct Algorithm {
  int id = 0;
  int64_t vector_bytes = 1;  // that its kernel loads and stores at once: addresses and strides are multiples of it
  int block = 1;             // so many products are added before they are added to the sum
  int splits = 1;            // parts of k, each with a sum of its own
  cublasLtReductionScheme_t reduction = CUBLASLT_REDUCTION_SCHEME_NONE;

  int64_t alignment(cudaDataType type) const;
  size_t workspace(const Problem& p) const;
  bool takes(const Problem& p) const;
  bool suits(const cublasLtMatmulPreference& preference, const Problem& p) const;
  cublasLtMatmulAlgo_t words(size_t version, int generation) const;
};
std::vector<Algorithm> best_first(const Problem& p);
// Null where the words are no algorithm of this version for this generation of GPUs.
const Algorithm* find_algorithm(const cublasLtMatmulAlgo_t& words, size_t version, int generation);

}  // namespace megalith::simulated_cublaslt
