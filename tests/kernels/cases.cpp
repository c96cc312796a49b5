// The ops inside a block.
#include "cases.h"

#include <algorithm>
#include <numbers>

#include "kernels/activation/swiglu.h"
#include "kernels/elementwise/philox.h"
#include "kernels/elementwise/residual.h"
#include "kernels/linear/gemm_cpu.h"
#include "kernels/linear/linear.h"
#include "kernels/norm/head_norm.h"

namespace megalith::test {

namespace {
double gelu(double x) { return x / 2 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x))); }
double gelu_derivative(double x) {
  const double u = std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x), tanh = std::tanh(u);
  return (1 + tanh) / 2 + x / 2 * (1 - tanh * tanh) * std::sqrt(2 / std::numbers::pi) * (1 + 3 * 0.044715 * x * x);
}
double gelu_of(double x, GeluForm form) {
  return form == GeluForm::tanh ? gelu(x) : x / 2 * (1 + std::erf(x / std::numbers::sqrt2));
}
double gelu_derivative_of(double x, GeluForm form) {
  if (form == GeluForm::tanh) return gelu_derivative(x);
  return (1 + std::erf(x / std::numbers::sqrt2)) / 2 + x * std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi);
}

// By the op that is called.
thread_local const Tensor* drawn_now = nullptr;
thread_local Largest found_now;

// While this lives, ops find the largest magnitude. They may throw.
struct Finding {
  Finding(const Tensor& amax, int64_t rows) { found_now = {amax, rows}; }
  ~Finding() { found_now = {}; }
};
}  // namespace

Largest largest_found() { return found_now; }

Case with_largest(Case c, const std::string& of) {
  const Arg& y = *std::ranges::find(c.args, of, &Arg::name);
  const int64_t counted = std::max<int64_t>(1, y.shape[0] - 1), cols = y.shape[1];
  c.twin = [twin = std::move(c.twin), of, counted, cols, type = y.dtype](Doubles& d) {
    twin(d);
    double& largest = d["largest.amax"][0];
    for (size_t i = 0; i < at(counted * cols); i++) largest = std::max(largest, rounded(std::abs(d[of][i]), type));
  };
  c.run = [run = std::move(c.run), counted](Stream& s, Tensors a) {
    const Finding finding{a.back(), counted};
    a.pop_back();
    run(s, a);
  };
  c.shape += " largest";
  c.accumulates.insert("largest.amax");
  c.args.push_back(out("largest.amax", f32, {1}));
  c.args.back().values = {rounded(1e-3, f32)};
  return c;
}

Dropout mask_of(double p) {
  Dropout d{.p = p, .seed = 11, .step = 3, .site = 5, .first_row = 1000};
  if (drawn_now) {
    d.seed = 1, d.step = 2, d.first_row = 300;
    d.drawn = *drawn_now;
  }
  return d;
}

Case drawn_from_memory(Case c) {
  Dropout d = mask_of(0);
  d.first_row = 700;
  std::vector<int32_t> numbers(at(2 * (d.site + 3)));
  write_drawn({numbers.data(), DType::i32, {std::ssize(numbers) / 2, 2}}, d);
  c.args.push_back({.name = "drawn",
                    .dtype = DType::i32,
                    .shape = {std::ssize(numbers) / 2, 2},
                    .values = {numbers.begin(), numbers.end()}});
  c.run = [run = std::move(c.run)](Stream& s, Tensors a) {
    const Tensor drawn = a.back();
    a.pop_back();
    drawn_now = &drawn;
    run(s, a);
    drawn_now = nullptr;
  };
  return c;
}

double keep_factor(const Dropout& d, uint64_t row, uint64_t group, uint64_t column) {
  if (d.p == 0) return 1;
  const PhiloxBlock key = philox(d.seed, uint64_t(d.step), uint64_t(d.site));
  const PhiloxBlock block =
      philox(uint64_t{key[1]} << 32 | key[0], uint64_t(d.first_row) + row, group + column / 64 * 16 + column % 16);
  return block[column % 64 / 16] < static_cast<uint32_t>(d.p * 4294967296.0) ? 0 : 1 / (1 - d.p);
}

Arg starts_of(const Documents& documents, int64_t B, int64_t T) {
  Arg starts{.name = "starts", .dtype = DType::i32, .shape = {B, T}, .values = {}};
  for (size_t next = 0; int64_t(starts.values.size()) < B * T;) {
    const int64_t start = int64_t(starts.values.size()) % T;
    const int64_t end = std::min(T, start + documents[next++ % documents.size()]);
    starts.values.insert(starts.values.end(), at(end - start), double(start));
  }
  return starts;
}

std::string name_of(const Documents& documents) {
  std::string name;
  for (int64_t length : documents) name += fmt::format("{}{}", name.empty() ? " documents " : ",", length);
  return name;
}

Case gelu_forward_case(int64_t N, int64_t C, DType t, GeluForm form) {
  return {.op = "gelu_forward",
          .shape = fmt::format("{}x{}{}", N, C, form == GeluForm::erf ? " by erf" : ""),
          .dtype = t,
          .args = {out("y", t, {N, C}), in("x", t, {N, C}, 2)},
          .run =
              [form](Stream& s, const Tensors& a) {
                launch(s, GeluForward{.y = a[0], .x = a[1], .form = form, .largest = largest_found()});
              },
          .twin =
              [form](Doubles& d) {
                for (size_t i = 0; i < d["x"].size(); i++) d["y"][i] = gelu_of(d["x"][i], form);
              }};
}

Case gelu_backward_case(int64_t N, int64_t C, DType t, GeluForm form) {
  return {.op = "gelu_backward",
          .shape = fmt::format("{}x{}{}", N, C, form == GeluForm::erf ? " by erf" : ""),
          .dtype = t,
          .args = {out("dx", t, {N, C}), in("dy", t, {N, C}), in("x", t, {N, C}, 2)},
          .run =
              [form](Stream& s, const Tensors& a) {
                launch(s, GeluBackward{.dx = a[0], .dy = a[1], .x = a[2], .form = form, .largest = largest_found()});
              },
          .twin =
              [form](Doubles& d) {
                for (size_t i = 0; i < d["x"].size(); i++)
                  d["dx"][i] = d["dy"][i] * gelu_derivative_of(d["x"][i], form);
              }};
}

Case swiglu_forward_case(int64_t N, int64_t F, DType t) {
  return {.op = "swiglu_forward",
          .shape = fmt::format("{}x{}", N, F),
          .dtype = t,
          .args = {out("y", t, {N, F}), in("x", t, {N, 2 * F}, 2)},
          .run = [](Stream& s,
                    const Tensors& a) { launch(s, SwigluForward{.y = a[0], .x = a[1], .largest = largest_found()}); },
          .twin =
              [=](Doubles& d) {
                for (int64_t i = 0; i < N * F; i++) {
                  const double gate = d["x"][at(i + i / F * F)], up = d["x"][at(i + i / F * F + F)];
                  d["y"][at(i)] = gate / (1 + std::exp(-gate)) * up;
                }
              }};
}

Case swiglu_backward_case(int64_t N, int64_t F, DType t) {
  return {.op = "swiglu_backward",
          .shape = fmt::format("{}x{}", N, F),
          .dtype = t,
          .args = {out("dx", t, {N, 2 * F}), in("dy", t, {N, F}), in("x", t, {N, 2 * F}, 2)},
          .run =
              [](Stream& s, const Tensors& a) {
                launch(s, SwigluBackward{.dx = a[0], .dy = a[1], .x = a[2], .largest = largest_found()});
              },
          .twin =
              [=](Doubles& d) {
                for (int64_t i = 0; i < N * F; i++) {
                  const size_t gate = at(i + i / F * F), up = gate + at(F);
                  const double g = d["x"][gate], s = 1 / (1 + std::exp(-g)), dy = d["dy"][at(i)];
                  d["dx"][gate] = dy * d["x"][up] * (s + g * s * (1 - s));
                  d["dx"][up] = dy * g * s;
                }
              }};
}

std::string name_of(const NormForm& form) {
  return fmt::format("{}{}{}", form.rule.centered ? "" : " rms",
                     form.rule.epsilon == 1e-5f ? "" : fmt::format(" epsilon {}", form.rule.epsilon),
                     form.bias ? "" : " no bias");
}

Case layernorm_forward_case(int64_t N, int64_t C, Types t, const NormForm& form) {
  return {.op = "layernorm_forward",
          .shape = fmt::format("{}x{}{}{}", N, C, name_of(form), name_of(t)),
          .dtype = t.branch,
          .args = {out("y", t.branch, {N, C}), out("stat", f32, {N, 2}), in("x", t.residual, {N, C}, 3, 1),
                   in("w", t.branch, {C}, 0.5, 1), in("b", t.branch, form.bias ? Shape{C} : Shape{})},
          .run =
              [form](Stream& s, const Tensors& a) {
                launch(s, LayerNormForward{.y = a[0],
                                           .stat = a[1],
                                           .x = a[2],
                                           .w = a[3],
                                           .b = a[4],
                                           .rule = form.rule,
                                           .largest = largest_found()});
              },
          .twin =
              [N, C, form](Doubles& d) {
                for (int64_t n = 0; n < N; n++) {
                  double mean = 0, variance = 0;
                  for (int64_t c = 0; c < C && form.rule.centered; c++) mean += d["x"][at(n * C + c)] / double(C);
                  for (int64_t c = 0; c < C; c++) variance += std::pow(d["x"][at(n * C + c)] - mean, 2) / double(C);
                  const double rstd = 1 / std::sqrt(variance + double(form.rule.epsilon));
                  for (int64_t c = 0; c < C; c++)
                    d["y"][at(n * C + c)] =
                        (d["x"][at(n * C + c)] - mean) * rstd * d["w"][at(c)] + (form.bias ? d["b"][at(c)] : 0);
                  d["stat"][at(2 * n)] = mean;
                  d["stat"][at(2 * n + 1)] = rstd;
                }
              }};
}

Case layernorm_backward_case(int64_t N, int64_t C, Types t, const NormForm& form) {
  Case c{.op = "layernorm_backward",
         .shape = fmt::format("{}x{}{}{}", N, C, name_of(form), name_of(t)),
         .dtype = t.branch,
         .args = {out("dx", t.residual, {N, C}), out("dw", f32, {C}), out("db", f32, form.bias ? Shape{C} : Shape{}),
                  in("dy", t.branch, {N, C}), in("x", t.residual, {N, C}, 3, 1), in("stat", f32, {N, 2}),
                  in("w", t.branch, {C}, 0.5, 1)},
         .run =
             [form](Stream& s, const Tensors& a) {
               launch(s, LayerNormBackward{.dx = a[0],
                                           .dw = a[1],
                                           .db = a[2],
                                           .dy = a[3],
                                           .x = a[4],
                                           .stat = a[5],
                                           .w = a[6],
                                           .rule = form.rule});
             },
         .twin =
             [N, C, form](Doubles& d) {
               for (int64_t n = 0; n < N; n++) {
                 const double mean = d["stat"][at(2 * n)], rstd = d["stat"][at(2 * n + 1)];
                 double sum = 0, dot = 0;
                 for (int64_t k = 0; k < C; k++) {
                   const double dy = d["dy"][at(n * C + k)], xhat = (d["x"][at(n * C + k)] - mean) * rstd;
                   sum += dy * d["w"][at(k)];
                   dot += dy * d["w"][at(k)] * xhat;
                   d["dw"][at(k)] += dy * xhat;
                   if (form.bias) d["db"][at(k)] += dy;
                 }
                 if (!form.rule.centered) sum = 0;
                 for (int64_t k = 0; k < C; k++) {
                   const double g = d["dy"][at(n * C + k)] * d["w"][at(k)],
                                xhat = (d["x"][at(n * C + k)] - mean) * rstd;
                   d["dx"][at(n * C + k)] += rstd * (g - sum / double(C) - xhat * dot / double(C));
                 }
               }
             }};
  c.accumulates = {"dx", "dw", "db"};
  // The statistics of x itself, as the forward pass saves them.
  Case forward = layernorm_forward_case(N, C, t, form);
  Doubles d = doubles(forward);
  forward.twin(d);
  for (size_t i = 0; i < d["stat"].size(); i++) c.args[5].values[i] = rounded(d["stat"][i], f32);
  return c;
}

Case linear_forward_case(int64_t N, int64_t I, int64_t O, bool bias, DType t) {
  return {
      .op = "linear_forward",
      .shape = fmt::format("{}x{} to {}{}", N, I, O, bias ? " bias" : ""),
      .dtype = t,
      .args = {out("y", t, {N, O}), in("x", t, {N, I}), in("w", t, {O, I}), in("b", t, bias ? Shape{O} : Shape{})},
      .run = [](Stream& s, const Tensors& a) { launch(s, LinearForward{.y = a[0], .x = a[1], .w = a[2], .b = a[3]}); },
      .twin =
          [=](Doubles& d) {
            const Values &x = d["x"], &w = d["w"];
            for (int64_t n = 0; n < N; n++)
              for (int64_t o = 0; o < O; o++) {
                double sum = bias ? d["b"][at(o)] : 0;
                for (int64_t i = 0; i < I; i++) sum += x[at(n * I + i)] * w[at(o * I + i)];
                d["y"][at(n * O + o)] = sum;
              }
          },
      .same_for_any_threads = t != bf16 || !cpu::has_fast_bf16()};
}

Case linear_backward_input_case(int64_t N, int64_t I, int64_t O, DType t) {
  return {.op = "linear_backward_input",
          .shape = fmt::format("{}x{} to {}", N, I, O),
          .dtype = t,
          .args = {out("dx", t, {N, I}), in("dy", t, {N, O}), in("w", t, {O, I})},
          .run = [](Stream& s, const Tensors& a) { launch(s, LinearBackwardInput{.dx = a[0], .dy = a[1], .w = a[2]}); },
          .twin =
              [=](Doubles& d) {
                const Values &dy = d["dy"], &w = d["w"];
                for (int64_t n = 0; n < N; n++)
                  for (int64_t i = 0; i < I; i++) {
                    double sum = 0;
                    for (int64_t o = 0; o < O; o++) sum += dy[at(n * O + o)] * w[at(o * I + i)];
                    d["dx"][at(n * I + i)] = sum;
                  }
              },
          .same_for_any_threads = t != bf16 || !cpu::has_fast_bf16()};
}

Case linear_backward_weight_case(int64_t N, int64_t I, int64_t O, bool bias, DType t, bool add) {
  return {.op = "linear_backward_weight",
          .shape = fmt::format("{}x{} to {}{}{}", N, I, O, bias ? " bias" : "", add ? "" : " written"),
          .dtype = t,
          .args = {out("dw", f32, {O, I}), out("db", f32, bias ? Shape{O} : Shape{}), in("dy", t, {N, O}),
                   in("x", t, {N, I})},
          .run =
              [add](Stream& s, const Tensors& a) {
                launch(s, LinearBackwardWeight{.dw = a[0], .db = a[1], .dy = a[2], .x = a[3], .add = add});
              },
          .twin =
              [=](Doubles& d) {
                const Values& x = d["x"];
                Values& dw = d["dw"];
                if (!add) std::ranges::fill(dw, 0);
                for (int64_t n = 0; n < N; n++)
                  for (int64_t o = 0; o < O; o++) {
                    const double dy = d["dy"][at(n * O + o)];
                    for (int64_t i = 0; i < I; i++) dw[at(o * I + i)] += dy * x[at(n * I + i)];
                    if (bias) d["db"][at(o)] += dy;
                  }
              },
          .same_for_any_threads = t != bf16 || !cpu::has_fast_bf16(),
          .accumulates = add ? std::set<std::string>{"dw", "db"} : std::set<std::string>{"db"},
          .also = bias ? std::vector<std::string>{"linear_backward_bias"} : std::vector<std::string>{}};
}

Case dropout_case(int64_t N, int64_t C, double p, DType t, int64_t first_column) {
  Dropout mask = mask_of(p);
  mask.first_column = first_column;
  return {
      .op = "dropout",
      .shape = fmt::format("{}x{} p {}{}", N, C, p, first_column > 0 ? fmt::format(" from {}", first_column) : ""),
      .dtype = t,
      .args = {out("y", t, {N, C}), in("x", t, {N, C})},
      .run = [mask](Stream& s, const Tensors& a) { launch(s, ApplyDropout{.y = a[0], .x = a[1], .dropout = mask}); },
      .twin =
          [=](Doubles& d) {
            for (int64_t n = 0; n < N; n++)
              for (int64_t c = 0; c < C; c++)
                d["y"][at(n * C + c)] =
                    d["x"][at(n * C + c)] * keep_factor(mask_of(p), uint64_t(n), 0, uint64_t(first_column + c));
          }};
}

Case residual_forward_case(int64_t N, int64_t C, double p, Types t, bool bias) {
  return {.op = "residual_forward",
          .shape = fmt::format("{}x{} p {}{}{}", N, C, p, bias ? "" : " no bias", name_of(t)),
          .dtype = t.branch,
          .args = {out("y", t.residual, {N, C}), in("x", t.residual, {N, C}), in("h", t.branch, {N, C}),
                   in("b", t.branch, bias ? Shape{C} : Shape{})},
          .run =
              [p](Stream& s, const Tensors& a) {
                launch(s, ResidualForward{.y = a[0], .x = a[1], .h = a[2], .b = a[3], .dropout = mask_of(p)});
              },
          .twin =
              [=](Doubles& d) {
                for (int64_t n = 0; n < N; n++)
                  for (int64_t c = 0; c < C; c++)
                    d["y"][at(n * C + c)] =
                        d["x"][at(n * C + c)] + keep_factor(mask_of(p), uint64_t(n), 0, uint64_t(c)) *
                                                    (d["h"][at(n * C + c)] + (bias ? d["b"][at(c)] : 0));
              }};
}

Case residual_backward_case(int64_t N, int64_t C, double p, Types t, bool bias) {
  return {
      .op = "residual_backward",
      .shape = fmt::format("{}x{} p {}{}{}", N, C, p, bias ? "" : " no bias", name_of(t)),
      .dtype = t.branch,
      .args = {out("dh", t.branch, {N, C}), out("db", f32, bias ? Shape{C} : Shape{}), in("dy", t.residual, {N, C})},
      .run =
          [p](Stream& s, const Tensors& a) {
            launch(s, ResidualBackward{.dh = a[0], .db = a[1], .dy = a[2], .dropout = mask_of(p)});
          },
      .twin =
          [=](Doubles& d) {
            for (int64_t n = 0; n < N; n++)
              for (int64_t c = 0; c < C; c++) {
                const double dh = d["dy"][at(n * C + c)] * keep_factor(mask_of(p), uint64_t(n), 0, uint64_t(c));
                d["dh"][at(n * C + c)] = dh;
                if (bias) d["db"][at(c)] += rounded(dh, t.branch);  // the sum of what was written
              }
          },
      .accumulates = {"db"}};
}

}  // namespace megalith::test
