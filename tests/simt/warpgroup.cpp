#include "tests/simt/warpgroup.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <deque>
#include <limits>
#include <map>
#include <vector>

#include "tests/simt/machine.h"
#include "tests/simt/matrix_layout.h"

namespace megalith::simt {

namespace {
constexpr int size = 128, warp_size = 32, rows = 64, depth = 16;
using Of = Product::Of;

struct Enqueued {
  WarpClocks::Row known;                      // to all its warps
  std::array<Product, size> of;               // each thread's own
  std::array<std::vector<float>, size> sums;  // as they were; empty: as the product before leaves them
};
using Group = std::vector<Enqueued>;

struct Warpgroup {
  uint32_t block = 0;
  bool begun = false;
  Group open;
  std::deque<Group> committed;

  // Whether a product under way has these sums of thread i.
  bool writes(const float* sums, size_t i) const {
    const auto in = [&](const Group& g) {
      return std::any_of(g.begin(), g.end(), [&](const Enqueued& e) { return e.of[i].sums == sums; });
    };
    return in(open) || std::any_of(committed.begin(), committed.end(), in);
  }
};

Warpgroup& warpgroup() {
  static std::map<int, Warpgroup> all;
  Warpgroup& w = all[running.thread / size];
  if (const uint32_t block = running.actor.block; w.block != block)
    w = {.block = block, .begun = false, .open = {}, .committed = {}};
  return w;
}

// Finds element (row, column) of the matrix at `place`.
const char* address(const MatrixDescriptor& place, int row, int column) {
  const uint32_t byte = place.begin + static_cast<uint32_t>(column / 64) * place.panel +
                        static_cast<uint32_t>(row / 8 * 1024 + row % 8 * 128 + column % 64 * 2);
  return shared_begin() + swizzled(byte);
}
float element(DType type, const MatrixDescriptor& place, int row, int column) {
  uint16_t bits;
  std::memcpy(&bits, address(place, row, column), sizeof(bits));
  return value_of(type == DType::f16, bits);
}
// Both when it is enqueued, since its matrices have to be there, and when it is done: until then it may read them.
void check_reads(const Enqueued& e) {
  const Product& p = e.of[0];
  const auto check = [&](const MatrixDescriptor& place, int num_rows, int num_columns) {
    for (int row = 0; row < num_rows; row++)
      for (int column = 0; column < num_columns; column += 8)
        reads_of_product(address(place, row, column), 16, e.known);
  };
  if (p.of == Of::rows) check(p.left, rows, depth);
  if (p.of == Of::columns) check(p.left, depth, rows);
  if (p.right_by_rows()) check(p.right, p.columns, depth);
  if (!p.right_by_rows()) check(p.right, depth, p.columns);
}

void finish(const Enqueued& e) {
  check_reads(e);
  const Product& p = e.of[0];
  const int n = p.columns;
  std::vector<float> left(rows * depth), right(static_cast<size_t>(n * depth));
  for (int k = 0; k < depth; k++)
    for (int c = 0; c < n; c++)
      right[static_cast<size_t>(c * depth + k)] =
          p.right_by_rows() ? element(p.type, p.right, c, k) : element(p.type, p.right, k, c);
  for (int i = 0; i < size && p.in_fragments(); i++)
    for (int part = 0; part < 4; part++) {
      const auto [row, k] = left_place(i % warp_size, part);
      const unsigned two = e.of[static_cast<size_t>(i)].fragments[static_cast<size_t>(part)];
      for (int half = 0; half < 2; half++)
        left[static_cast<size_t>((i / warp_size * 16 + row) * depth + k + half)] =
            value_of(p.type == DType::f16, static_cast<uint16_t>(two >> 16 * half));
    }
  for (int row = 0; row < rows && !p.in_fragments(); row++)
    for (int k = 0; k < depth; k++)
      left[static_cast<size_t>(row * depth + k)] =
          p.of == Of::rows ? element(p.type, p.left, row, k) : element(p.type, p.left, k, row);
  for (int i = 0; i < size; i++)
    for (int j = 0; j < n / 2; j++) {
      const auto [row, column] = sum_place(i, j);
      const auto& before = e.sums[static_cast<size_t>(i)];
      float* to = e.of[static_cast<size_t>(i)].sums + j;
      float sum = !p.add ? 0 : before.empty() ? *to : before[static_cast<size_t>(j)];
      for (int k = 0; k < depth; k++)
        sum += left[static_cast<size_t>(row * depth + k)] * right[static_cast<size_t>(column * depth + k)];
      *to = sum;
    }
}

// By all threads of the warpgroup; the last to come does it.
template <class T>
void together(const char* operation, const T& mine, void (*act)(void* const* threads), Where where) {
  T copy = mine;
  meet_warpgroup(operation, &copy, act, where);
}
}  // namespace

MatrixDescriptor moved_by(int bytes, MatrixDescriptor m) {
  m.begin += static_cast<uint32_t>(bytes);
  if (m.begin % 32 || m.begin / 128 % 8)
    fault("a matrix at byte " + std::to_string(m.begin) +
          " of shared memory; it begins on a row that is a multiple of 8, on a column that is one of 16");
  return m;
}
MatrixDescriptor matrix_descriptor(const void* p, int panel) {
  return moved_by(static_cast<int>(static_cast<const char*>(p) - shared_begin()), {0, static_cast<uint32_t>(panel)});
}

void product(const Product& mine, Where where) {
  together(
      "a product of the warpgroup", mine,
      [](void* const* threads) {
        Warpgroup& w = warpgroup();
        if (!w.begun) fault("a product with no products_begin since the last products_wait");
        constexpr int warps = size / warp_size;
        Enqueued e{.known = clocks.common_row(running.actor.warp / warps * warps, warps), .of = {}, .sums = {}};
        for (size_t i = 0; i < size; i++) {
          e.of[i] = *static_cast<Product*>(threads[i]);
          const Product &p = e.of[i], &first = e.of[0];
          if (!(p.left == first.left && p.right == first.right && p.columns == first.columns))
            fault("threads of a warpgroup bring different matrices to one product");
          if (!w.writes(p.sums, i)) e.sums[i].assign(p.sums, p.sums + p.columns / 2);
        }
        check_reads(e);
        const Product& p = e.of[0];
        for (size_t i = 0; i < size; i++)
          for (int j = 0; j < p.columns / 2; j++) e.of[i].sums[j] = std::numeric_limits<float>::quiet_NaN();
        w.open.push_back(std::move(e));
      },
      where);
}

void products_begin(Where where) {
  together(
      "products_begin", 0, [](void* const*) { warpgroup().begun = true; }, where);
}
void products_commit(Where where) {
  together(
      "products_commit", 0,
      [](void* const*) {
        Warpgroup& w = warpgroup();
        w.committed.push_back(std::move(w.open));
        w.open.clear();
      },
      where);
}
void products_wait(int but, Where where) {
  together(
      "products_wait", but,
      [](void* const* threads) {
        Warpgroup& w = warpgroup();
        w.begun = false;  // the registers may now be touched
        while (static_cast<int>(w.committed.size()) > *static_cast<int*>(threads[0])) {
          for (Enqueued& e : w.committed.front()) finish(e);
          w.committed.pop_front();
        }
      },
      where);
}

}  // namespace megalith::simt
