// The ops of low-rank adapters.
#include <algorithm>

#include "cases.h"
#include "kernels/linear/low_rank.h"

namespace megalith::test {

namespace {
// Calls use(row of b, k, element of the wide matrix).
void each_of_adapter(const AdaptedRows& rows, int64_t r, const std::function<void(int64_t, int64_t, size_t)>& use) {
  int64_t row = 0;
  for (int64_t g = 0; g < rows.count; g++)
    for (int64_t o = 0; o < rows.parts[at(g)].rows; o++, row++)
      for (int64_t k = 0; k < r; k++) use(row, k, at(((rows.parts[at(g)].first + o) * rows.count + g) * r + k));
}
std::string described(const AdaptedRows& rows, int64_t O, int64_t r) {
  std::string name = fmt::format("{}x{}", O, r);
  for (int64_t g = 0; g < rows.count; g++)
    name += fmt::format(" [{}, {})", rows.parts[at(g)].first, rows.parts[at(g)].first + rows.parts[at(g)].rows);
  return name;
}
constexpr double adapter_scale = 0.75;
}  // namespace

Case spread_adapter_case(const AdaptedRows& rows, int64_t O, int64_t r, DType t) {
  return {.op = "spread_adapter",
          .shape = described(rows, O, r),
          .dtype = t,
          .args = {out("wide", t, {O, rows.count * r}), in("b", t, {rows.rows(), r})},
          .run =
              [rows](Stream& s, const Tensors& a) {
                launch(s, SpreadAdapter{.wide = a[0], .b = a[1], .rows = rows, .scale = adapter_scale});
              },
          .twin =
              [=](Doubles& d) {
                std::ranges::fill(d["wide"], 0);
                each_of_adapter(rows, r, [&](int64_t row, int64_t k, size_t to) {
                  d["wide"][to] = adapter_scale * d["b"][at(row * r + k)];
                });
              }};
}

Case collect_adapter_case(const AdaptedRows& rows, int64_t O, int64_t r, bool add) {
  return {.op = "collect_adapter",
          .shape = described(rows, O, r) + (add ? "" : " written"),
          .dtype = f32,
          .args = {out("db", f32, {rows.rows(), r}), in("dwide", f32, {O, rows.count * r})},
          .run =
              [=](Stream& s, const Tensors& a) {
                launch(s, CollectAdapter{.db = a[0], .dwide = a[1], .rows = rows, .scale = adapter_scale, .add = add});
              },
          .twin =
              [=](Doubles& d) {
                each_of_adapter(rows, r, [&](int64_t row, int64_t k, size_t from) {
                  double& to = d["db"][at(row * r + k)];
                  to = (add ? to : 0) + adapter_scale * d["dwide"][from];
                });
              },
          .accumulates = add ? std::set<std::string>{"db"} : std::set<std::string>{}};
}

}  // namespace megalith::test
