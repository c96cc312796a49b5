// Products in 8 bits (kernels/linear/fp8.h) against their formulas in doubles. Scales and casts are exact.
#include "kernels/linear/fp8.h"

#include <cmath>
#include <limits>

#include "cases.h"

namespace megalith::test {

namespace {
constexpr double beyond = std::numeric_limits<double>::infinity();

double scale_of(double amax, DType type) {
  const auto largest = type == DType::e4m3 ? 448.0f : 57344.0f;
  if (amax == beyond) return std::nan("");
  if (amax == 0) return 1;
  return static_cast<double>(std::min(largest / static_cast<float>(amax), 0x1p126f));
}

Case largest_magnitude_case(int64_t n, DType t, const std::string& what, double size) {
  Case c{.op = "largest_magnitude",
         .shape = fmt::format("{} {}", n, what),
         .dtype = t,
         .args = {out("amax", f32, {1}), in("x", t, {n})},
         .run = [](Stream& s, const Tensors& x) { launch(s, LargestMagnitude{.amax = x[0], .x = x[1]}); },
         .twin =
             [](Doubles& d) {
               double& amax = d["amax"][0];
               for (const double v : d["x"]) amax = std::isnan(v) ? beyond : std::max(amax, std::abs(v));
             }};
  c.args[0].values = {rounded(1e-6, f32)};
  c.accumulates = {"amax"};
  c.args[1].any_shape = true;
  for (double& v : c.args[1].values) v = rounded(size * v, t);
  if (what == "with a NaN") c.args[1].values[at(n / 2)] = std::nan("");
  if (what == "with an infinity") c.args[1].values.back() = -beyond;
  return c;
}

struct Cast {
  int64_t rows, cols;
  DType type, from;
  bool straight = true, transposed = true;
  double amax = 6;
};

Case cast_case(const Cast& cast) {
  Case c{.op = "cast_to_fp8",
         .shape = fmt::format("{}x{} to {}{}{} amax {}", cast.rows, cast.cols, name_of(cast.type),
                              cast.straight ? " straight" : "", cast.transposed ? " transposed" : "", cast.amax),
         .dtype = cast.from,
         .args = {out("unscale", f32, {1}), in("x", cast.from, {cast.rows, cast.cols}), in("amax", f32, {1})},
         .run = {},
         .twin = [cast](Doubles& d) {
           const double scale = scale_of(d["amax"][0], cast.type);
           d["unscale"][0] = static_cast<double>(1 / static_cast<float>(scale));
           for (size_t r = 0; r < at(cast.rows); r++)
             for (size_t k = 0; k < at(cast.cols); k++) {
               const double v = rounded(d["x"][r * at(cast.cols) + k] * scale, DType::f32);
               if (cast.straight) d["y"][r * at(cast.cols) + k] = rounded(v, cast.type);
               if (cast.transposed) d["transposed"][k * at(cast.rows) + r] = rounded(v, cast.type);
             }
         }};
  c.aligned = true;
  c.args[2].values = {cast.amax};
  for (double& v : c.args[1].values) v = rounded(std::clamp(v * cast.amax / 6, -cast.amax, cast.amax), cast.from);
  if (cast.straight) c.args.push_back(out("y", cast.type, {cast.rows, cast.cols}));
  if (cast.transposed) c.args.push_back(out("transposed", cast.type, {cast.cols, cast.rows}));
  c.run = [cast](Stream& s, const Tensors& x) {
    launch(s, CastToFp8{.y = cast.straight ? x[3] : Tensor{},
                        .transposed = cast.transposed ? x.back() : Tensor{},
                        .unscale = x[0],
                        .x = x[1],
                        .amax = x[2]});
  };
  return c;
}

Case product_case(int64_t M, int64_t N, int64_t K, DType a, DType y, bool bias, bool add) {
  Case c{.op = "fp8_product",
         .shape = fmt::format("{}x{}x{} {}{}{}", M, N, K, name_of(a), bias ? " bias" : "", add ? " add" : ""),
         .dtype = y,
         .args = {out("y", y, {M, N}), in("a", a, {M, K}, 8), in("b", DType::e4m3, {N, K}, 8),
                  in("a_unscale", f32, {1}), in("b_unscale", f32, {1})},
         .run =
             [bias, add](Stream& s, const Tensors& x) {
               launch(s, Fp8Product{.y = x[0],
                                    .a = x[1],
                                    .b = x[2],
                                    .a_unscale = x[3],
                                    .b_unscale = x[4],
                                    .bias = bias ? x[5] : Tensor{},
                                    .add = add});
             },
         .twin =
             [=](Doubles& d) {
               for (size_t m = 0; m < at(M); m++)
                 for (size_t n = 0; n < at(N); n++) {
                   double sum = 0;
                   for (size_t k = 0; k < at(K); k++) sum += d["a"][m * at(K) + k] * d["b"][n * at(K) + k];
                   double& to = d["y"][m * at(N) + n];
                   to = (add ? to : 0) + sum * d["a_unscale"][0] * d["b_unscale"][0] + (bias ? d["bias"][n] : 0);
                 }
             }};
  c.aligned = true;
  c.args[3].values = {static_cast<double>(0.0123f)};
  c.args[4].values = {static_cast<double>(0.37f)};
  if (bias) c.args.push_back(in("bias", y, {N}));
  if (add) c.accumulates = {"y"};
  return c;
}
}  // namespace

std::vector<Case> largest_magnitude_cases() {
  std::vector<Case> all;
  for (const DType t : {f32, bf16, f16})
    for (const auto& [n, what, size] : {std::tuple{1, "", 1.0},
                                        {7, "", 1.0},
                                        {4096, "small", 1e-4},
                                        {20011, "", 1.0},
                                        {300000, "", 1.0},
                                        {64, "zeros", 0.0},
                                        {1000, "with a NaN", 1.0},
                                        {1000, "with an infinity", 1.0}})
      all.push_back(largest_magnitude_case(n, t, what, size));
  return all;
}

std::vector<Case> cast_to_fp8_cases() {
  std::vector<Case> all;
  for (const DType from : {f32, bf16, f16})
    for (const DType type : {DType::e4m3, DType::e5m2})
      for (const auto& [rows, cols] : {std::pair{16, 16}, {48, 64}, {64, 144}, {144, 80}})
        all.push_back(cast_case({.rows = rows, .cols = cols, .type = type, .from = from}));
  const Cast one{.rows = 32, .cols = 80, .type = DType::e4m3, .from = bf16};
  for (const bool straight : {false, true}) {
    Cast part = one;
    part.straight = straight;
    part.transposed = !straight;
    if (straight) part.rows = 33;
    all.push_back(cast_case(part));
  }
  for (const double amax : {0.0, 1e-38, 3e38}) {
    Cast extreme = one;
    extreme.amax = rounded(amax, bf16);
    all.push_back(cast_case(extreme));
  }
  return all;
}

std::vector<Case> transpose_fp8_cases() {
  std::vector<Case> all;
  for (const DType type : {DType::e4m3, DType::e5m2})
    for (const auto& [rows, cols] : {std::pair{16, 16}, {48, 64}, {144, 80}}) {
      all.push_back({.op = "transpose_fp8",
                     .shape = fmt::format("{}x{}", rows, cols),
                     .dtype = type,
                     .args = {out("y", type, {cols, rows}), in("x", type, {rows, cols}, 8)},
                     .run = [](Stream& s, const Tensors& x) { launch(s, TransposeFp8{.y = x[0], .x = x[1]}); },
                     .twin =
                         [rows = rows, cols = cols](Doubles& d) {
                           for (size_t r = 0; r < at(rows); r++)
                             for (size_t c = 0; c < at(cols); c++) d["y"][c * at(rows) + r] = d["x"][r * at(cols) + c];
                         }});
      all.back().aligned = true;
    }
  return all;
}

std::vector<Case> fp8_product_cases() {
  std::vector<Case> all;
  for (const auto& [M, N, K] : {std::tuple{1, 16, 16}, {33, 48, 64}, {70, 256, 32}, {5, 768, 112}, {48, 64, 1600}}) {
    all.push_back(product_case(M, N, K, DType::e4m3, bf16, true, false));
    all.push_back(product_case(M, N, K, DType::e5m2, bf16, false, false));
    all.push_back(product_case(M, N, K, DType::e5m2, f32, false, false));
    all.push_back(product_case(M, N, K, DType::e5m2, f32, false, true));
  }
  return all;
}

}  // namespace megalith::test
