// ldmatrix, mma.sync and wgmma (PTX ISA, "Matrix multiply-accumulate instructions", "Asynchronous warpgroup level
// matrix instructions"): one element type, 16 bits wide, a depth of 16.
#include <cstring>
#include <limits>

#include "tests/ptx/machine.h"
#include "tests/simt/matrix_layout.h"

namespace megalith::ptx {

namespace {
constexpr int depth = 16;

template <bool half>
float number(uint32_t bits) {
  return simt::value_of(half, static_cast<uint16_t>(bits));
}

// Matrix m's row r of 16 bytes is where lane 8 m + r says.
template <int n, bool transposed>
void load_matrices(Warp& w, const Instruction& i, uint32_t) {
  for (int m = 0; m < n; m++) {
    uint16_t values[8][8];
    for (int row = 0; row < 8; row++) {
      const int lane = 8 * m + row;
      std::memcpy(values[row], w.block->access(w, lane, Space::shared, w.address(i, n, lane), 16, false), 16);
    }
    for (int lane = 0; lane < warp_size; lane++)
      w.set<uint32_t>(i, m, lane, simt::part_of_tile(values, lane, transposed));
  }
}

// The left factor, 16 x 16.
template <bool half>
void left_fragments(Warp& w, const Instruction& i, int first, float (*left)[depth]) {
  for (int lane = 0; lane < warp_size; lane++)
    for (int r = 0; r < 4; r++) {
      const auto two = w.get<uint32_t>(i, first + r, lane);
      const auto [row, k] = simt::left_place(lane, r);
      left[row][k] = number<half>(two), left[row][k + 1] = number<half>(two >> 16);
    }
}

// mma.sync.m16n8k16: d = a b + c.
template <bool half>
void multiply(Warp& w, const Instruction& i, uint32_t) {
  float left[16][depth], right[depth][8];
  left_fragments<half>(w, i, 4, left);
  for (int lane = 0; lane < warp_size; lane++)
    for (int r = 0; r < 2; r++) {
      const auto two = w.get<uint32_t>(i, 8 + r, lane);
      const auto [column, k] = simt::right_place(lane, r);
      right[k][column] = number<half>(two), right[k + 1][column] = number<half>(two >> 16);
    }
  float product[16][8] = {};
  for (int row = 0; row < 16; row++)
    for (int k = 0; k < depth; k++)
      for (int column = 0; column < 8; column++) product[row][column] += left[row][k] * right[k][column];
  for (int lane = 0; lane < warp_size; lane++)
    for (int e = 0; e < 4; e++) {
      const auto [row, column] = simt::sum_place(lane, e);
      w.set<float>(i, e, lane, w.get<float>(i, 10 + e, lane) + product[row][column]);
    }
}

// A matrix descriptor ("Matrix descriptor format"), in bytes. Of the swizzle modes only that of 128 bytes is known,
// whose pattern of 8 rows begins on a multiple of 1024, so that the base offset is 0.
struct Descriptor {
  uint64_t start, leading, stride;
};
Descriptor described(uint64_t bits) {
  constexpr uint64_t fields =
      0x3fff | uint64_t{0x3fff} << 16 | uint64_t{0x3fff} << 32 | uint64_t{7} << 49 | uint64_t{3} << 62;
  CHECK((bits & ~fields) == 0, "a matrix descriptor {:#x} with bits outside its fields", bits);
  CHECK(bits >> 62 == 1, "a matrix descriptor {:#x} of swizzle mode {}; known is 1, 128 bytes", bits, bits >> 62);
  CHECK((bits >> 49 & 7) == 0, "a matrix descriptor {:#x} with base offset {}", bits, bits >> 49 & 7);
  const auto field = [&](int at) { return (bits >> at & 0x3fff) * 16; };
  const Descriptor d{field(0), field(16), field(32)};
  CHECK(d.start / 128 % 8 == 0, "a matrix at byte {} of shared memory, where no pattern of 128-byte swizzle begins",
        d.start);
  CHECK(d.stride % 1024 == 0, "a matrix descriptor with a stride of {} bytes, which moves the pattern of its swizzle",
        d.stride);
  return d;
}
// Element (k, n) of a factor. Along k ("K-major"): rows of 128 bytes hold k, eight of them a stride. Along n
// ("MN-major"): rows of 128 bytes hold 64 n, eight of them a stride, the next 64 n a leading offset.
uint64_t address_of(const Descriptor& d, int k, int n, bool along_n) {
  const int row = along_n ? k : n, column = along_n ? n : k;
  const uint64_t linear = d.start + static_cast<uint64_t>(row / 8) * d.stride +
                          static_cast<uint64_t>(row % 8 * 128 + column % 64 * 2) +
                          static_cast<uint64_t>(column / 64) * d.leading;
  return simt::swizzled(static_cast<uint32_t>(linear));
}

// The form of an instruction: sums, then the left factor's registers or descriptor, the right descriptor, scale-d.
template <int n, bool half, bool in_registers>
struct Multiply {
  static constexpr int num_sums = n / 2, left_at = num_sums, right_at = left_at + (in_registers ? 4 : 1),
                       add_at = right_at + 1, rows = 16 * group_warps, threads = warp_size * group_warps;

  using Known = simt::WarpClocks::Row;

  static Warp* warps_of(Warp& w) { return &w.block->warps[static_cast<size_t>(w.index / group_warps * group_warps)]; }
  static bool along_m(const Instruction& i) { return !in_registers && i.numbers[2] != 0; }
  static bool along_n(const Instruction& i) { return i.numbers[in_registers ? 2 : 3] != 0; }

  // A factor's elements by k and row or column; with its reads checked.
  static void read(Block& b, const Warp& of, uint64_t bits, int count, bool along, const Known& known, float* to) {
    const uint32_t warps = 0xfu << of.index / group_warps * group_warps;
    const Descriptor d = described(bits);
    CHECK(d.start % 128 <= (along ? 0 : 128 - 2 * depth), "a matrix at byte {} of shared memory, which leaves its rows",
          d.start);
    for (int k = 0; k < depth; k += along ? 1 : 8)
      for (int c = 0; c < count; c += along ? 8 : 1) {
        uint16_t eight[8];
        std::memcpy(eight, b.read_by_product(address_of(d, k, c, along), 16, known, warps), 16);
        for (int e = 0; e < 8 && to; e++) to[along ? k * count + c + e : (k + e) * count + c] = number<half>(eight[e]);
      }
  }

  static void enqueue(Warp& of, const Instruction& i, uint32_t) {
    Block& b = *of.block;
    Warp* w = warps_of(of);
    auto& group = b.warpgroups[static_cast<size_t>(of.index / group_warps)];
    for (int scale = 0; scale < 2; scale++)
      CHECK(i.numbers[static_cast<size_t>(scale)] == 1, "wgmma with a factor scaled by {}",
            i.numbers[static_cast<size_t>(scale)]);
    const auto same = [&](int slot) {
      const auto first = w->get<uint64_t>(i, slot, 0);
      for (int t = 0; t < threads; t++)
        CHECK(w[t / warp_size].template get<uint64_t>(i, slot, t % warp_size) == first,
              "threads of a warpgroup bring different descriptors to one wgmma");
      return first;
    };
    Product p{.instruction = &i,
              .finish = finish,
              .take = take,
              .group = group.committed,
              .known = b.clocks.common_row(w->index, group_warps),
              .sums = {}};
    p.right = same(right_at);
    read(b, of, p.right, n, along_n(i), p.known, nullptr);
    if (!in_registers) read(b, of, p.left = same(left_at), rows, along_m(i), p.known, nullptr);
    p.add = w->predicate(i, add_at) & 1;
    for (int k = 0; k < group_warps; k++) {
      CHECK(w[k].predicate(i, add_at) == (p.add ? all_lanes : 0),
            "threads of a warpgroup disagree on a wgmma's scale-d");
      for (int s = 0; s < (in_registers ? right_at : num_sums); s++)
        CHECK(w[k].touched[static_cast<size_t>(i.slots[s])] < w[k].fenced,
              "register {} of a wgmma was touched after the last wgmma.fence, or there was none", s);
    }
    bool under_way = false;
    for (const Product& q : group.products) under_way |= q.instruction->slots[0] == i.slots[0];
    if (!under_way) p.sums = take(w, i);
    group.products.push_back(std::move(p));
  }

  static std::vector<float> take(Warp* w, const Instruction& i) {
    std::vector<float> sums;
    for (int t = 0; t < threads; t++)
      for (int s = 0; s < num_sums; s++) {
        sums.push_back(w[t / warp_size].template get<float>(i, s, t % warp_size));
        w[t / warp_size].template set<float>(i, s, t % warp_size, std::numeric_limits<float>::quiet_NaN());
      }
    return sums;
  }

  static void finish(Block& b, Warp* w, const Product& p) {
    const Instruction& i = *p.instruction;
    static float left[rows][depth], by_k[depth * rows], right[depth * n], product[rows][n];
    if (in_registers) {
      for (int k = 0; k < group_warps; k++) left_fragments<half>(w[k], i, left_at, left + 16 * k);
    } else {
      read(b, *w, p.left, rows, along_m(i), p.known, by_k);
      for (int row = 0; row < rows; row++)
        for (int k = 0; k < depth; k++) left[row][k] = by_k[k * rows + row];
    }
    read(b, *w, p.right, n, along_n(i), p.known, right);
    std::memset(product, 0, sizeof(product));
    for (int row = 0; row < rows; row++)
      for (int k = 0; k < depth; k++)
        for (int c = 0; c < n; c++) product[row][c] += left[row][k] * right[k * n + c];
    for (int t = 0; t < threads; t++)
      for (int s = 0; s < num_sums; s++) {
        const auto [row, column] = simt::sum_place(t, s);
        const float before = p.add ? p.sums[static_cast<size_t>(t * num_sums + s)] : 0;
        w[t / warp_size].template set<float>(i, s, t % warp_size, before + product[row][column]);
      }
  }
};

Block::Warpgroup& warpgroup_of(const Warp& w) {
  return w.block->warpgroups[static_cast<size_t>(w.index / group_warps)];
}
void fence(Warp& of, const Instruction&, uint32_t) {
  for (Warp* w = &of; w != &of + group_warps; w++) w->fenced = ++w->now;
}
void commit(Warp& w, const Instruction&, uint32_t) { warpgroup_of(w).committed++; }
void wait(Warp& w, const Instruction& i, uint32_t) {
  auto& group = warpgroup_of(w);
  while (!group.products.empty() && group.products.front().group < group.committed - i.numbers[0]) {
    const Product p = std::move(group.products.front());
    group.products.pop_front();
    p.finish(*w.block, &w, p);
    for (Product& q : group.products)
      if (q.instruction->slots[0] == p.instruction->slots[0]) {
        q.sums = q.take(&w, *q.instruction);
        break;
      }
  }
}

template <int n, bool half>
void add_products(Operations& all) {
  const char* type = half ? "f16" : "bf16";
  const std::string name = fmt::format("wgmma.mma_async.sync.aligned.m64n{}k16.f32.{}.{}", n, type, type);
  all.emplace(name, Operation{fmt::format("{}w=llpnnnn", n / 2), Multiply<n, half, false>::enqueue, Kind::group});
  all.emplace(name, Operation{fmt::format("{}w=4wlpnnn", n / 2), Multiply<n, half, true>::enqueue, Kind::group});
}
template <int... n>
void add_products_of(Operations& all) {
  (add_products<n, false>(all), ...);
  (add_products<n, true>(all), ...);
}
}  // namespace

void add_matrices(Operations& all) {
  const auto add_load = [&](const char* of, const char* form, Execute execute) {
    all.emplace(fmt::format("ldmatrix.sync.aligned.m8n8.{}.shared.b16", of), Operation{form, execute, Kind::aligned});
  };
  add_load("x1", "1w=a", load_matrices<1, false>);
  add_load("x2", "2w=a", load_matrices<2, false>);
  add_load("x4", "4w=a", load_matrices<4, false>);
  add_load("x1.trans", "1w=a", load_matrices<1, true>);
  add_load("x2.trans", "2w=a", load_matrices<2, true>);
  add_load("x4.trans", "4w=a", load_matrices<4, true>);
  const std::string shape = "mma.sync.aligned.m16n8k16.row.col.f32.";
  all.emplace(shape + "bf16.bf16.f32", Operation{"4w=4w2w4w", multiply<false>, Kind::aligned});
  all.emplace(shape + "f16.f16.f32", Operation{"4w=4w2w4w", multiply<true>, Kind::aligned});
  add_products_of<64, 80, 96, 112, 128>(all);
  all.emplace("wgmma.fence.sync.aligned", Operation{"", fence, Kind::group});
  all.emplace("wgmma.commit_group.sync.aligned", Operation{"", commit, Kind::group});
  all.emplace("wgmma.wait_group.sync.aligned", Operation{"n", wait, Kind::group});
}

}  // namespace megalith::ptx
