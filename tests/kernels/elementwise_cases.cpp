// The ops on whole tensors: the update, fills, copies, sums.
#include <algorithm>
#include <numbers>

#include "cases.h"
#include "kernels/adamw.h"
#include "kernels/elementwise.h"
#include "kernels/philox.h"

namespace megalith::test {

Case adamw_case(int64_t n, int64_t update, bool has_working, DType t) {
  const AdamW a{
      .learning_rate = 3e-2, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1, .update = update};
  Case c{.op = "adamw_update",
         .shape = fmt::format("{} update {}{}", n, update, has_working ? " working" : ""),
         .dtype = t,
         .args = {out("master", f32, {n}), out("m", f32, {n}), out("v", f32, {n}),
                  out("working", t, has_working ? Shape{n} : Shape{}), in("grad", f32, {n}), in("scale", f64, {1})},
         .run = [a](Stream& s, const Tensors& x) { adamw_update(s, x[0], x[1], x[2], x[3], x[4], x[5], a); },
         .twin =
             [=](Doubles& d) {
               for (size_t i = 0; i < at(n); i++) {
                 const double g = d["scale"][0] * d["grad"][i];
                 double &m = d["m"][i], &v = d["v"][i], &p = d["master"][i];
                 m = a.beta1 * m + (1 - a.beta1) * g;
                 v = a.beta2 * v + (1 - a.beta2) * g * g;
                 const double mhat = m / (1 - std::pow(a.beta1, double(update)));
                 const double vhat = v / (1 - std::pow(a.beta2, double(update)));
                 p = p - a.learning_rate * a.weight_decay * p - a.learning_rate * mhat / (std::sqrt(vhat) + a.epsilon);
                 if (has_working) d["working"][i] = p;
               }
             }};
  for (double& v : c.args[2].values) v = std::abs(v);
  return c;
}

Case fill_case(int64_t n, DType t) {
  Case c{.op = "fill",
         .shape = fmt::format("{}", n),
         .dtype = t,
         .args = {out("y", t, {n})},
         .run = [](Stream& s, const Tensors& a) { fill(s, a[0], 3); },
         .twin = [](Doubles& d) { std::fill(d["y"].begin(), d["y"].end(), 3.0); }};
  c.args[0].any_shape = true;
  return c;
}

Case copy_case(int64_t n, DType to, DType from) {
  return {.op = "copy",
          .shape = fmt::format("{} from {}", n, name_of(from)),
          .dtype = to,
          .args = {out("y", to, {n}), in("x", from, {n})},
          .run = [](Stream& s, const Tensors& a) { copy(s, a[0], a[1]); },
          .twin = [](Doubles& d) { d["y"] = d["x"]; }};
}

Case add_case(int64_t n, DType t) {
  return {.op = "add",
          .shape = fmt::format("{}", n),
          .dtype = t,
          .args = {out("y", t, {n}), in("x", t, {n})},
          .run = [](Stream& s, const Tensors& a) { add(s, a[0], a[1]); },
          .twin =
              [](Doubles& d) {
                for (size_t i = 0; i < d["x"].size(); i++) d["y"][i] += d["x"][i];
              }};
}

Case accumulate_sum_case(int64_t n) {
  Case c{.op = "accumulate_sum",
         .shape = fmt::format("{}", n),
         .dtype = f32,
         .args = {out("out", f64, {1}), in("x", f32, {n})},
         .run = [](Stream& s, const Tensors& a) { accumulate_sum(s, a[0], a[1], 0.5); },
         .twin =
             [](Doubles& d) {
               for (double x : d["x"]) d["out"][0] += 0.5 * x;
             }};
  c.args[1].any_shape = true;
  return c;
}

Case accumulate_square_sum_case(int64_t n) {
  Case c{.op = "accumulate_square_sum",
         .shape = fmt::format("{}", n),
         .dtype = f32,
         .args = {out("out", f64, {1}), in("x", f32, {n})},
         .run = [](Stream& s, const Tensors& a) { accumulate_square_sum(s, a[0], a[1]); },
         .twin =
             [](Doubles& d) {
               for (double x : d["x"]) d["out"][0] += x * x;
             }};
  c.args[1].any_shape = true;
  return c;
}

Case clip_scale_case(double square_sum, double max_norm) {
  Case c{.op = "clip_scale",
         .shape = fmt::format("{} max {}", square_sum, max_norm),
         .dtype = f64,
         .args = {out("scale", f64, {1}), in("square_sum", f64, {1})},
         .run = [=](Stream& s, const Tensors& a) { clip_scale(s, a[0], a[1], max_norm); },
         .twin =
             [=](Doubles& d) {
               d["scale"][0] = max_norm == 0 ? 1 : std::min(1.0, max_norm / (std::sqrt(d["square_sum"][0]) + 1e-6));
             }};
  c.args[1].values = {square_sum};
  return c;
}

Case normal_fill_case(int64_t begin, int64_t n, Columns columns) {
  Case c{.op = "normal_fill",
         .shape = fmt::format("{} from {} of columns [{}, +{}) of {}", n, begin, columns.begin, columns.count,
                              columns.total),
         .dtype = f32,
         .args = {out("y", f32, {n})},
         .run = [=](Stream& s, const Tensors& a) { normal_fill(s, a[0], 7, 9, begin, 0.02, columns); },
         .twin =
             [=](Doubles& d) {
               for (int64_t k = begin; k < begin + n; k++) {
                 const int64_t i = k / columns.count * columns.total + columns.begin + k % columns.count;
                 const PhiloxBlock words = philox(7, 9, uint64_t(i / 4));
                 const size_t first = i % 4 < 2 ? 0 : 2;
                 const double radius = std::sqrt(-2 * std::log(double(uniform(words[first]))));
                 const double angle = 2 * std::numbers::pi * double(uniform(words[first + 1]));
                 d["y"][at(k - begin)] = 0.02 * radius * (i % 2 == 0 ? std::cos(angle) : std::sin(angle));
               }
             }};
  c.args[0].any_shape = true;
  return c;
}

}  // namespace megalith::test
