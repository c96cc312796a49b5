#include "kernels/loops/warpgroup_cuda.h"
#include "tests/simt/faults.h"

namespace megalith::test {

using namespace cuda;

namespace {
// 128 threads, of which each writes the sums of its row's first two columns: y (64, 64), of which y has room for 64
// x 4. x: small whole numbers.
enum class Fault {
  none,
  not_begun,
  not_published,
  one_warp_only,
  different_places,
  early_read,
  overwritten_before_the_wait,
  overwritten_after_it
};

__device__ void write_sums(float* y, const float (&d)[8][4]) {
  for (int e = 0; e < 4; e++) {
    const int row = warp_index() * 16 + lane_index() / 4 + e / 2 * 8, column = lane_index() % 4 * 2 + e % 2;
    if (column < 4 && blockIdx.x == 0) y[row * 4 + column] = d[0][e];
  }
}

// y = a a^T + p a^T + p b + b^T b, where a (64, 16) is x, and p (64, 16) too, but as fragments; a lies in the second
// group of columns.
template <Fault fault, class T = bfloat16>
__global__ void products(float* y, const float* x, int) {
  constexpr int rows = 64, first = 16;
  T* a = shared_memory<T>();
  const auto element = [&](int row, int column) { return x[(row * 16 + column) % 128]; };
  for (int i = static_cast<int>(threadIdx.x); i < rows * 16; i += warpgroup_size)
    a[swizzled(i / 16, first + i % 16, rows)] = to<T>(element(i / 16, i % 16));
  // p (64, 16) times b (16, 64): b's rows are the first of a second matrix.
  T* b = a + rows * panel_columns;
  for (int i = static_cast<int>(threadIdx.x); i < 16 * panel_columns; i += warpgroup_size)
    b[swizzled(i / panel_columns, i % panel_columns, 16)] = to<T>(element(i / panel_columns, i % 16));
  if (fault != Fault::not_published) publish_shared();
  sync_threads();

  float d[8][4] = {};
  unsigned p[4];
  for (int part = 0; part < 4; part++) {
    const int row = warp_index() * 16 + lane_index() / 4 + part % 2 * 8, k = lane_index() % 4 * 2 + part / 2 * 8;
    p[part] = pack<T>(element(row, k), element(row, k + 1));
  }
  if (fault == Fault::one_warp_only && warp_index() > 0) return;
  const MatrixDescriptor place =
      moved(matrix_descriptor(a), fault == Fault::different_places && warp_index() == 2 ? 0 : swizzled(0, first, rows));
  if (fault != Fault::not_begun) products_begin(d);
  product_of_rows<T, 64, false>(d, place, place);
  product_of_rows<T, 64, true>(d, p, place);
  product_of_weights<T>(d, p, matrix_descriptor(b));
  product_of_columns<T>(d, matrix_descriptor(b), matrix_descriptor(b));
  products_commit();
  if (fault == Fault::early_read) return write_sums(y, d);
  const auto overwrite = [&] {
    for (int i = static_cast<int>(threadIdx.x); i < rows * 16; i += warpgroup_size)
      a[swizzled(i / 16, first + i % 16, rows)] = to<T>(0);
  };
  if (fault == Fault::overwritten_before_the_wait) {
    sync_threads();
    overwrite();
    sync_threads();
  }
  products_wait<0>(d);
  if (fault == Fault::overwritten_after_it) overwrite();
  write_sums(y, d);
}

using Kernel = void (*)(float*, const float*, int);
struct Planted {
  const char* name;
  Kernel kernel;
};
const Planted all[] = {{"products", products<Fault::none>},
                       {"products of f16", products<Fault::none, float16>},
                       {"not_begun", products<Fault::not_begun>},
                       {"not_published", products<Fault::not_published>},
                       {"one_warp_only", products<Fault::one_warp_only>},
                       {"different_places", products<Fault::different_places>},
                       {"early_read", products<Fault::early_read>},
                       {"overwritten_before_the_wait", products<Fault::overwritten_before_the_wait>},
                       {"overwritten_after_it", products<Fault::overwritten_after_it>}};
}  // namespace

void run_planted_products(const char* kernel, Tensor y, Tensor x) {
  for (const Planted& p : all)
    if (std::string_view(p.name) == kernel)
      return launch(Queue{}, {p.name, 1, warpgroup_size, 64 * 1024}, p.kernel, y.data<float>(), x.data<float>(), 0);
  FAIL("no planted kernel {}", kernel);
}

}  // namespace megalith::test
