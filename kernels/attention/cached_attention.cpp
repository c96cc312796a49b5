#include "kernels/attention/cached_attention.h"

#include "kernels/tensor/check_args.h"

namespace megalith {

namespace {
int64_t heads_of(const Tensor& cache, const Tensor& qkv) {
  return qkv.cols() / cache.shape()[3] - 2 * cache.shape()[1];
}
template <class Op>
void expect_cache(const Op& op) {
  const Tensor &cache = op.cache, &qkv = op.qkv;
  expect_compute(op.name, "qkv", qkv);
  expect_dtype(op.name, "cache", cache, qkv.dtype());
  CHECK(cache.shape().num_dims() == 4 && cache.shape()[0] % 2 == 0,
        "{}: cache has shape {}, expected (2 * slots, K, T, D)", op.name, cache.shape().str());
  const int64_t K = cache.shape()[1], D = cache.shape()[3], H = heads_of(cache, qkv);
  CHECK(H > 0 && H % K == 0 && qkv.cols() == (H + 2 * K) * D,
        "{}: qkv has {} columns, which is not a multiple of {} key-value heads of {}, and their keys and values",
        op.name, qkv.cols(), K, D);
  expect(op.name, "rows", op.rows, DType::i32, {qkv.rows(), 2});
}
}  // namespace

void launch(Stream& s, const KeepKeysValues& op) {
  expect_cache(op);
  const int64_t kept = 2 * op.cache.shape()[1] * op.cache.shape()[3];
  const double bytes =
      2 * (bytes_of(op.qkv) / static_cast<double>(op.qkv.cols()) * static_cast<double>(kept)) + bytes_of(op.rows);
  s.launch(op, {.flops = 0, .bytes = bytes}, {op.cache});
}

void launch(Stream& s, const CachedAttention& op) {
  expect_cache(op);
  const int64_t H = heads_of(op.cache, op.qkv), K = op.cache.shape()[1], T = op.cache.shape()[2],
                D = op.cache.shape()[3], N = op.qkv.rows();
  expect_matrix(op.name, "out", op.out, op.cache.dtype(), N, H * D);
  CHECK(0 < op.longest && op.longest <= T, "{}: longest is {}, expected 1 to the cache's {} positions", op.name,
        op.longest, T);
  const double read = 2.0 * static_cast<double>(N * K * op.longest * D);
  s.launch(op,
           {.flops = 2 * read * static_cast<double>(H / K),
            .bytes = read * size_of(op.cache.dtype()) + 2 * bytes_of(op.out)},
           {op.out});
}

}  // namespace megalith
