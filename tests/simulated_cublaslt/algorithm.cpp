#include "tests/simulated_cublaslt/algorithm.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "kernels/stream/device.h"

namespace megalith::simulated_cublaslt {

namespace {

constexpr Algorithm algorithms[] = {
    {11, 16, 32, 1, CUBLASLT_REDUCTION_SCHEME_NONE},         {12, 16, 8, 1, CUBLASLT_REDUCTION_SCHEME_NONE},
    {21, 16, 32, 2, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE}, {22, 16, 24, 3, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE},
    {31, 16, 32, 3, CUBLASLT_REDUCTION_SCHEME_INPLACE},      {1, 1, 64, 1, CUBLASLT_REDUCTION_SCHEME_NONE},
    {2, 1, 16, 2, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE},
};

constexpr uint64_t mark = 0x73696d756c617465;

bool is_8_bit(cudaDataType type) { return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2; }

// What the documentation asks of factors of 8 bits on Ada and Hopper (cuBLAS, cublasLtMatmul): the left one transposed,
// the right one not, one of them e4m3, a bias of 16 bits, and matrices of whole multiples of 16 bytes.
bool fits_8_bits(const Problem& p) {
  if (!device::properties().has_fp8()) return false;
  if (!is_8_bit(p.b.type) || (p.a.type == CUDA_R_8F_E5M2 && p.b.type == CUDA_R_8F_E5M2)) return false;
  if (p.matmul.transa != CUBLAS_OP_T || p.matmul.transb != CUBLAS_OP_N) return false;
  if (p.k % 16 || p.m % 16 || p.c.type != p.d.type || (p.d.type != CUDA_R_16BF && p.d.type != CUDA_R_32F)) return false;
  return p.is(CUBLASLT_EPILOGUE_DEFAULT) || (p.is(CUBLASLT_EPILOGUE_BIAS) && p.bias_type() == CUDA_R_16BF);
}

// Those that the documentation lists for sums in f32 (cuBLAS, cublasLtMatmul, table of types).
bool types_fit(const Problem& p) {
  if (is_8_bit(p.a.type)) return fits_8_bits(p);
  if (p.matmul.a_scale || p.matmul.b_scale) return false;
  const bool narrow = p.a.type == CUDA_R_16BF || p.a.type == CUDA_R_16F;
  return p.a.type == p.b.type && (narrow || p.a.type == CUDA_R_32F) && p.c.type == p.d.type &&
         (p.d.type == p.a.type || p.d.type == CUDA_R_32F) && p.bias_type() == p.d.type;
}

cublasStatus_t status_of(const Problem& p) {
  for (int32_t op : {p.matmul.transa, p.matmul.transb})
    if (op != CUBLAS_OP_N && op != CUBLAS_OP_T) return CUBLAS_STATUS_INVALID_VALUE;
  for (const cublasLtMatrixLayout& l : {p.a, p.b, p.c, p.d})
    if (l.rows == 0 || l.cols == 0 || l.ld < static_cast<int64_t>(l.rows)) return CUBLAS_STATUS_INVALID_VALUE;
  const auto [a_rows, a_cols] =
      p.matmul.transa == CUBLAS_OP_T ? std::pair(p.a.cols, p.a.rows) : std::pair(p.a.rows, p.a.cols);
  const auto [b_rows, b_cols] =
      p.matmul.transb == CUBLAS_OP_T ? std::pair(p.b.cols, p.b.rows) : std::pair(p.b.rows, p.b.cols);
  if (a_rows != p.d.rows || b_cols != p.d.cols || a_cols != b_rows || p.c.rows != p.d.rows || p.c.cols != p.d.cols ||
      p.c.ld != p.d.ld)
    return CUBLAS_STATUS_INVALID_VALUE;
  switch (p.matmul.epilogue) {
    case CUBLASLT_EPILOGUE_DEFAULT: break;
    case CUBLASLT_EPILOGUE_BIAS:
    case CUBLASLT_EPILOGUE_BGRADA:
    case CUBLASLT_EPILOGUE_BGRADB:
      if (!p.matmul.bias) return CUBLAS_STATUS_INVALID_VALUE;
      break;
    case CUBLASLT_EPILOGUE_DGELU:
      if (!p.matmul.aux || p.matmul.aux_ld < p.m) return CUBLAS_STATUS_INVALID_VALUE;
      if (p.matmul.aux_ld % 8) return CUBLAS_STATUS_NOT_SUPPORTED;
      break;
    default: return CUBLAS_STATUS_INVALID_VALUE;  // or one that nobody here has asked for
  }
  return types_fit(p) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

}  // namespace

int64_t size_of(cudaDataType type) { return type == CUDA_R_32F ? 4 : is_8_bit(type) ? 1 : 2; }

Problem problem(const cublasLtMatmulDesc* matmul, const cublasLtMatrixLayout* a, const cublasLtMatrixLayout* b,
                const cublasLtMatrixLayout* c, const cublasLtMatrixLayout* d) {
  if (!matmul || !a || !b || !c || !d) return {};
  Problem p{.matmul = *matmul, .a = *a, .b = *b, .c = *c, .d = *d};
  p.m = static_cast<int64_t>(d->rows);
  p.n = static_cast<int64_t>(d->cols);
  p.k = static_cast<int64_t>(matmul->transa == CUBLAS_OP_T ? a->rows : a->cols);
  p.status = status_of(p);
  return p;
}

int64_t Algorithm::alignment(cudaDataType type) const { return std::max(vector_bytes, size_of(type)); }

size_t Algorithm::workspace(const Problem& p) const {
  if (reduction != CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE) return 0;
  return static_cast<size_t>((splits * p.m * p.n * 4 + 255) / 256 * 256);
}

// This does not depend on addresses. Kernels that cut k do nothing behind the product, and only some sum their factors.
bool Algorithm::takes(const Problem& p) const {
  for (const cublasLtMatrixLayout& l : {p.a, p.b, p.d})
    if (l.ld * size_of(l.type) % alignment(l.type)) return false;
  const bool sums_factors = p.is(CUBLASLT_EPILOGUE_BGRADA) || p.is(CUBLASLT_EPILOGUE_BGRADB);
  if (splits > 1 && (p.k < splits || p.is(CUBLASLT_EPILOGUE_DGELU))) return false;
  return !sums_factors || id != 12;
}

bool Algorithm::suits(const cublasLtMatmulPreference& preference, const Problem& p) const {
  const auto fits = [&](uint32_t bytes, const cublasLtMatrixLayout& l) { return bytes >= alignment(l.type); };
  return fits(preference.alignment_a, p.a) && fits(preference.alignment_b, p.b) && fits(preference.alignment_c, p.c) &&
         fits(preference.alignment_d, p.d) &&
         (reduction == CUBLASLT_REDUCTION_SCHEME_NONE || (preference.reductions & static_cast<uint32_t>(reduction)));
}

cublasLtMatmulAlgo_t Algorithm::words(size_t version, int generation) const {
  return {{mark, static_cast<uint64_t>(id), version, static_cast<uint64_t>(generation), 0, 0, 0, 0}};
}

// Small results with long sums are split, in kernels with atomics where these are allowed.
std::vector<Algorithm> best_first(const Problem& p) {
  std::vector<Algorithm> all(std::begin(algorithms), std::end(algorithms));
  if (p.k >= 2 * std::max(p.m, p.n))
    std::stable_sort(all.begin(), all.end(), [](const Algorithm& x, const Algorithm& y) {
      const auto rank = [](const Algorithm& a) {
        return a.reduction == CUBLASLT_REDUCTION_SCHEME_INPLACE ? 0 : a.splits > 1 ? 1 : 2;
      };
      return rank(x) < rank(y);
    });
  return all;
}

const Algorithm* find_algorithm(const cublasLtMatmulAlgo_t& words, size_t version, int generation) {
  if (words.data[0] != mark || words.data[2] != version || words.data[3] != static_cast<uint64_t>(generation))
    return nullptr;
  for (const Algorithm& a : algorithms)
    if (static_cast<uint64_t>(a.id) == words.data[1]) return &a;
  return nullptr;
}

}  // namespace megalith::simulated_cublaslt
