#include "kernels/attention/cached_attention.h"

#include "kernels/tensor/check_args.h"

namespace megalith {

namespace {
int64_t heads_of(const Tensor& cache, const Tensor& qkv) {
  return qkv.cols() / cache.shape()[3] - 2 * cache.shape()[1];
}
void expect_cache(const char* op, const Tensor& cache, const Tensor& qkv, const Tensor& rows) {
  expect_compute(op, "qkv", qkv);
  expect_dtype(op, "cache", cache, qkv.dtype());
  CHECK(cache.shape().num_dims() == 4 && cache.shape()[0] % 2 == 0,
        "{}: cache has shape {}, expected (2 * slots, K, T, D)", op, cache.shape().str());
  const int64_t K = cache.shape()[1], D = cache.shape()[3], H = heads_of(cache, qkv);
  CHECK(H > 0 && H % K == 0 && qkv.cols() == (H + 2 * K) * D,
        "{}: qkv has {} columns, which are no multiple of {} key-value heads of {}, and their keys and values", op,
        qkv.cols(), K, D);
  expect(op, "rows", rows, DType::i32, {qkv.rows(), 2});
}
}  // namespace

void keep_keys_values(Stream& s, Tensor cache, Tensor qkv, Tensor rows) {
  expect_cache("keep_keys_values", cache, qkv, rows);
  const int64_t kept = 2 * cache.shape()[1] * cache.shape()[3];
  const double bytes =
      2 * (bytes_of(qkv) / static_cast<double>(qkv.cols()) * static_cast<double>(kept)) + bytes_of(rows);
  s.launch(
      "keep_keys_values", {.flops = 0, .bytes = bytes}, {cache}, [=] { cpu::keep_keys_values(cache, qkv, rows); },
      [=](auto queue) { cuda::keep_keys_values(queue, cache, qkv, rows); });
}

void cached_attention(Stream& s, Tensor out, Tensor qkv, Tensor cache, Tensor rows, int64_t longest) {
  const char* op = "cached_attention";
  expect_cache(op, cache, qkv, rows);
  const int64_t H = heads_of(cache, qkv), K = cache.shape()[1], T = cache.shape()[2], D = cache.shape()[3],
                N = qkv.rows();
  expect_matrix(op, "out", out, cache.dtype(), N, H * D);
  CHECK(0 < longest && longest <= T, "{}: longest is {}, expected 1 to the cache's {} positions", op, longest, T);
  const double read = 2.0 * static_cast<double>(N * K * longest * D);
  s.launch(
      op, {.flops = 2 * read * static_cast<double>(H / K), .bytes = read * size_of(cache.dtype()) + 2 * bytes_of(out)},
      {out}, [=] { cpu::cached_attention(out, qkv, cache, rows, longest); },
      [=](auto queue) { cuda::cached_attention(queue, out, qkv, cache, rows, longest); });
}

}  // namespace megalith
