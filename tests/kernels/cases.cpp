// The ops inside a block.
#include "cases.h"

#include <algorithm>
#include <numbers>

#include "kernels/gemm_cpu.h"
#include "kernels/head_norm.h"
#include "kernels/linear.h"
#include "kernels/philox.h"
#include "kernels/residual.h"
#include "kernels/swiglu.h"

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

thread_local const Tensor* drawn_now = nullptr;  // by the op that is called
}  // namespace

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
          .run = [form](Stream& s, const Tensors& a) { gelu_forward(s, a[0], a[1], form); },
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
          .run = [form](Stream& s, const Tensors& a) { gelu_backward(s, a[0], a[1], a[2], form); },
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
          .run = [](Stream& s, const Tensors& a) { swiglu_forward(s, a[0], a[1]); },
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
          .run = [](Stream& s, const Tensors& a) { swiglu_backward(s, a[0], a[1], a[2]); },
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

Case layernorm_forward_case(int64_t N, int64_t C, DType t, const NormForm& form) {
  return {.op = "layernorm_forward",
          .shape = fmt::format("{}x{}{}", N, C, name_of(form)),
          .dtype = t,
          .args = {out("y", t, {N, C}), out("stat", f32, {N, 2}), in("x", t, {N, C}, 3, 1), in("w", t, {C}, 0.5, 1),
                   in("b", t, form.bias ? Shape{C} : Shape{})},
          .run = [form](Stream& s, const Tensors& a) { layernorm_forward(s, a[0], a[1], a[2], a[3], a[4], form.rule); },
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

Case layernorm_backward_case(int64_t N, int64_t C, DType t, const NormForm& form) {
  Case c{
      .op = "layernorm_backward",
      .shape = fmt::format("{}x{}{}", N, C, name_of(form)),
      .dtype = t,
      .args = {out("dx", t, {N, C}), out("dw", f32, {C}), out("db", f32, form.bias ? Shape{C} : Shape{}),
               in("dy", t, {N, C}), in("x", t, {N, C}, 3, 1), in("stat", f32, {N, 2}), in("w", t, {C}, 0.5, 1)},
      .run = [form](Stream& s,
                    const Tensors& a) { layernorm_backward(s, a[0], a[1], a[2], a[3], a[4], a[5], a[6], form.rule); },
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
                const double g = d["dy"][at(n * C + k)] * d["w"][at(k)], xhat = (d["x"][at(n * C + k)] - mean) * rstd;
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
  return {.op = "linear_forward",
          .shape = fmt::format("{}x{} to {}{}", N, I, O, bias ? " bias" : ""),
          .dtype = t,
          .args = {out("y", t, {N, O}), in("x", t, {N, I}), in("w", t, {O, I}), in("b", t, bias ? Shape{O} : Shape{})},
          .run = [](Stream& s, const Tensors& a) { linear_forward(s, a[0], a[1], a[2], a[3]); },
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
          .run = [](Stream& s, const Tensors& a) { linear_backward_input(s, a[0], a[1], a[2]); },
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
          .run = [add](Stream& s, const Tensors& a) { linear_backward_weight(s, a[0], a[1], a[2], a[3], add); },
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

Case dropout_case(int64_t N, int64_t C, double p, DType t) {
  return {.op = "dropout",
          .shape = fmt::format("{}x{} p {}", N, C, p),
          .dtype = t,
          .args = {out("y", t, {N, C}), in("x", t, {N, C})},
          .run = [p](Stream& s, const Tensors& a) { dropout(s, a[0], a[1], mask_of(p)); },
          .twin =
              [=](Doubles& d) {
                for (int64_t n = 0; n < N; n++)
                  for (int64_t c = 0; c < C; c++)
                    d["y"][at(n * C + c)] =
                        d["x"][at(n * C + c)] * keep_factor(mask_of(p), uint64_t(n), 0, uint64_t(c));
              }};
}

Case residual_forward_case(int64_t N, int64_t C, double p, DType t, bool bias) {
  return {.op = "residual_forward",
          .shape = fmt::format("{}x{} p {}{}", N, C, p, bias ? "" : " no bias"),
          .dtype = t,
          .args = {out("y", t, {N, C}), in("x", t, {N, C}), in("h", t, {N, C}), in("b", t, bias ? Shape{C} : Shape{})},
          .run = [p](Stream& s, const Tensors& a) { residual_forward(s, a[0], a[1], a[2], a[3], mask_of(p)); },
          .twin =
              [=](Doubles& d) {
                for (int64_t n = 0; n < N; n++)
                  for (int64_t c = 0; c < C; c++)
                    d["y"][at(n * C + c)] =
                        d["x"][at(n * C + c)] + keep_factor(mask_of(p), uint64_t(n), 0, uint64_t(c)) *
                                                    (d["h"][at(n * C + c)] + (bias ? d["b"][at(c)] : 0));
              }};
}

Case residual_backward_case(int64_t N, int64_t C, double p, DType t, bool bias) {
  return {.op = "residual_backward",
          .shape = fmt::format("{}x{} p {}{}", N, C, p, bias ? "" : " no bias"),
          .dtype = t,
          .args = {out("dh", t, {N, C}), out("db", f32, bias ? Shape{C} : Shape{}), in("dy", t, {N, C})},
          .run = [p](Stream& s, const Tensors& a) { residual_backward(s, a[0], a[1], a[2], mask_of(p)); },
          .twin =
              [=](Doubles& d) {
                for (int64_t n = 0; n < N; n++)
                  for (int64_t c = 0; c < C; c++) {
                    const double dh = d["dy"][at(n * C + c)] * keep_factor(mask_of(p), uint64_t(n), 0, uint64_t(c));
                    d["dh"][at(n * C + c)] = dh;
                    if (bias) d["db"][at(c)] += rounded(dh, t);  // the sum of what was written
                  }
              },
          .accumulates = {"db"}};
}

namespace {
// q, k and v of one head, the probabilities and the factors of the mask: what both passes begin with.
struct Head {
  Head(Doubles& d, const AttentionDims& dims, const Dropout& drop, int64_t b, int64_t h)
      : T(dims.T), D(dims.D), p(at(T * T)), keep(at(T * T)), lse(at(T)) {
    const int64_t K = dims.kv(), shared = h / (dims.H / K);
    const auto head_of = [&](int64_t number) {
      Values m(at(T * D));
      for (int64_t i = 0; i < T * D; i++)
        m[at(i)] = d["qkv"][at((b * T + i / D) * dims.qkv_width() + number * D + i % D)];
      return m;
    };
    q = head_of(h), k = head_of(dims.H + shared), v = head_of(dims.H + K + shared);
    const Values& starts = d["starts"];
    for (int64_t i = 0; i < T; i++) {
      double sum = 0;
      for (int64_t j = starts.empty() ? 0 : int64_t(starts[at(b * T + i)]); j <= i; j++) {
        double dot = 0;
        for (int64_t c = 0; c < D; c++) dot += q[at(i * D + c)] * k[at(j * D + c)];
        p[at(i * T + j)] = std::exp(dot / std::sqrt(double(D)));
        sum += p[at(i * T + j)];
        const uint64_t group = uint64_t(dims.first_head + h) << 32;
        keep[at(i * T + j)] = keep_factor(drop, uint64_t(b * T + i), group, uint64_t(j));
      }
      for (int64_t j = 0; j <= i; j++) p[at(i * T + j)] /= sum;
      lse[at(i)] = std::log(sum);
    }
  }
  int64_t T, D;
  Values q, k, v, p, keep, lse;
};
void for_each_head(Doubles& d, const AttentionDims& dims, const Dropout& drop,
                   const std::function<void(int64_t b, int64_t h, const Head& head)>& use) {
  for (int64_t b = 0; b < dims.B; b++)
    for (int64_t h = 0; h < dims.H; h++) use(b, h, Head(d, dims, drop, b, h));
}
std::string dims_str(const AttentionDims& a, double p, const Documents& documents) {
  return fmt::format("B{} T{} H{}{} D{} p {}{}", a.B, a.T, a.H, a.kv() == a.H ? "" : fmt::format(" of {}", a.kv()), a.D,
                     p, name_of(documents));
}
// Keeps documents apart, if there are any: the case has the argument `starts`, the last.
void add_starts(Case& c, const Documents& documents, int64_t B, int64_t T) {
  if (!documents.empty()) c.args.push_back(starts_of(documents, B, T));
}
Tensor starts_in(const Tensors& a, size_t others) { return a.size() > others ? a.back() : Tensor{}; }
}  // namespace

Case head_norm_forward_case(const AttentionDims& dims, DType t) {
  const int64_t N = dims.B * dims.T, heads = dims.H + dims.kv(), D = dims.D, width = dims.qkv_width();
  return {.op = "head_norm_forward",
          .shape = fmt::format("{} rows H{} of {} D{}", N, dims.H, dims.kv(), D),
          .dtype = t,
          .args = {out("y", t, {N, width}), out("rstd", f32, {N, heads}), in("x", t, {N, width}, 2),
                   in("q_w", t, {D}, 0.5, 1), in("k_w", t, {D}, 0.4, -1)},
          .run = [=](Stream& s, const Tensors& a) { head_norm_forward(s, a[0], a[1], a[2], a[3], a[4], dims, 1e-2f); },
          .twin =
              [=](Doubles& d) {
                for (int64_t n = 0; n < N; n++)
                  for (int64_t h = 0; h < heads + dims.kv(); h++) {
                    double squares = 0;
                    const int64_t first = n * width + h * D;
                    for (int64_t c = 0; c < D; c++) squares += std::pow(d["x"][at(first + c)], 2);
                    const double rstd = h < heads ? 1 / std::sqrt(squares / double(D) + double(1e-2f)) : 1;
                    if (h < heads) d["rstd"][at(n * heads + h)] = rstd;
                    for (int64_t c = 0; c < D; c++) {
                      const double w = h < dims.H ? d["q_w"][at(c)] : h < heads ? d["k_w"][at(c)] : 1;
                      d["y"][at(first + c)] = d["x"][at(first + c)] * rstd * w;
                    }
                  }
              }};
}

Case head_norm_backward_case(const AttentionDims& dims, DType t) {
  const int64_t N = dims.B * dims.T, heads = dims.H + dims.kv(), D = dims.D, width = dims.qkv_width();
  Case c{.op = "head_norm_backward",
         .shape = fmt::format("{} rows H{} of {} D{}", N, dims.H, dims.kv(), D),
         .dtype = t,
         .args = {out("d", t, {N, width}), out("dq_w", f32, {D}), out("dk_w", f32, {D}), in("x", t, {N, width}, 2),
                  in("rstd", f32, {N, heads}), in("q_w", t, {D}, 0.5, 1), in("k_w", t, {D}, 0.4, -1)},
         .run = [=](Stream& s,
                    const Tensors& a) { head_norm_backward(s, a[0], a[1], a[2], a[3], a[4], a[5], a[6], dims); },
         .twin =
             [=](Doubles& d) {
               for (int64_t n = 0; n < N; n++)
                 for (int64_t h = 0; h < heads; h++) {
                   const int64_t first = n * width + h * D;
                   const double rstd = d["rstd"][at(n * heads + h)];
                   const Values& w = d[h < dims.H ? "q_w" : "k_w"];
                   Values& dw = d[h < dims.H ? "dq_w" : "dk_w"];
                   double dot = 0;
                   for (int64_t k = 0; k < D; k++) {
                     const double xhat = d["x"][at(first + k)] * rstd;
                     dot += d["d"][at(first + k)] * w[at(k)] * xhat / double(D);
                     dw[at(k)] += d["d"][at(first + k)] * xhat;
                   }
                   for (int64_t k = 0; k < D; k++) {
                     double& v = d["d"][at(first + k)];
                     v = rstd * (v * w[at(k)] - d["x"][at(first + k)] * rstd * dot);
                   }
                 }
             },
         .accumulates = {"d", "dq_w", "dk_w"}};
  Case forward = head_norm_forward_case(dims, t);
  Doubles d = doubles(forward);
  forward.twin(d);
  for (size_t i = 0; i < d["rstd"].size(); i++) c.args[4].values[i] = rounded(d["rstd"][i], f32);
  return c;
}

Case rotate_case(const AttentionDims& dims, int64_t pairs, DType t, bool forward, const Documents& documents,
                 bool kept) {
  const int64_t N = dims.B * dims.T;
  const RotaryScaling scaling{.factor = 4, .original_context = 100};
  const Rotation rotation = make_rotation(pairs, 50, scaling);
  Case c{.op = "rotate",
         .shape = fmt::format("B{} T{} H{} of {} D{} pairs {}{}{}{}", dims.B, dims.T, dims.H, dims.kv(), dims.D, pairs,
                              forward ? "" : " back", name_of(documents), kept ? " kept" : ""),
         .dtype = t,
         .args = {out("qkv", t, {N, dims.qkv_width()})},
         .run =
             [=](Stream& s, const Tensors& a) {
               RowPositions positions;
               if (a.size() > 1) (kept ? positions.rows : positions.starts) = a[1];
               rotate(s, a[0], dims, rotation, positions, forward);
             },
         .twin =
             [=](Doubles& d) {
               const Values& starts = d["starts"];
               const Values& rows = d["rows"];
               for (int64_t n = 0; n < N; n++)
                 for (int64_t h = 0; h < dims.H + dims.kv(); h++)
                   for (int64_t i = 0; i < pairs; i++) {
                     double f = std::pow(50, -double(i) / double(pairs));
                     const double waves = scaling.original_context * f / (2 * std::numbers::pi);
                     if (waves < 1)
                       f /= 4;
                     else if (waves < 4)
                       f = (4 - waves) / 3 * f / 4 + (waves - 1) / 3 * f;
                     double position = double(n % dims.T);
                     if (!starts.empty()) position -= starts[at(n)];
                     if (!rows.empty()) position = rows[at(2 * n + 1)];
                     const double angle = (forward ? 1 : -1) * position * f;
                     double& x = d["qkv"][at(n * dims.qkv_width() + h * dims.D + i)];
                     double& y = d["qkv"][at(n * dims.qkv_width() + h * dims.D + i + pairs)];
                     const double before = x;
                     x = x * std::cos(angle) - y * std::sin(angle);
                     y = y * std::cos(angle) + before * std::sin(angle);
                   }
             },
         .accumulates = {"qkv"}};
  if (!documents.empty()) c.args.push_back(starts_of(documents, dims.B, dims.T));
  if (kept) c.args.push_back(integers("rows", {N, 2}, 0, 1 << 17));
  return c;
}

Case attention_forward_case(const AttentionDims& dims, double p, DType t, const Documents& documents) {
  const int64_t N = dims.B * dims.T, C = dims.H * dims.D;
  Case made{
      .op = "attention_forward",
      .shape = dims_str(dims, p, documents),
      .dtype = t,
      .args = {out("out", t, {N, C}), out("lse", f32, {dims.B, dims.H, dims.T}), in("qkv", t, {N, dims.qkv_width()})},
      .run = [=](Stream& s,
                 const Tensors& a) { attention_forward(s, a[0], a[1], a[2], dims, mask_of(p), starts_in(a, 3)); },
      .twin =
          [=](Doubles& d) {
            for_each_head(d, dims, mask_of(p), [&](int64_t b, int64_t h, const Head& head) {
              const int64_t T = dims.T, D = dims.D;
              for (int64_t i = 0; i < T; i++) {
                d["lse"][at((b * dims.H + h) * T + i)] = head.lse[at(i)];
                for (int64_t c = 0; c < D; c++) {
                  double sum = 0;
                  for (int64_t j = 0; j <= i; j++)
                    sum += head.p[at(i * T + j)] * head.keep[at(i * T + j)] * head.v[at(j * D + c)];
                  d["out"][at((b * T + i) * C + h * D + c)] = sum;
                }
              }
            });
          }};
  add_starts(made, documents, dims.B, dims.T);
  return made;
}

Case attention_backward_case(const AttentionDims& dims, double p, DType t, const Documents& documents) {
  const int64_t N = dims.B * dims.T, C = dims.H * dims.D;
  const Shape rows{dims.B, dims.H, dims.T};
  Case c{.op = "attention_backward",
         .shape = dims_str(dims, p, documents),
         .dtype = t,
         .args = {out("dqkv", t, {N, dims.qkv_width()}), out("delta", f32, rows), in("dout", t, {N, C}),
                  in("out", t, {N, C}), in("lse", f32, rows), in("qkv", t, {N, dims.qkv_width()})},
         .run =
             [=](Stream& s, const Tensors& a) {
               attention_backward(s, a[0], a[1], a[2], a[3], a[4], a[5], dims, mask_of(p), starts_in(a, 6));
             },
         .twin =
             [=](Doubles& d) {
               for_each_head(d, dims, mask_of(p), [&](int64_t b, int64_t h, const Head& head) {
                 const int64_t T = dims.T, D = dims.D;
                 Values dq(at(T * D)), dk(at(T * D)), dv(at(T * D));
                 for (int64_t i = 0; i < T; i++) {
                   const double *out = &d["out"][at((b * T + i) * C + h * D)],
                                *dout = &d["dout"][at((b * T + i) * C + h * D)];
                   double delta = 0;
                   for (int64_t k = 0; k < D; k++) delta += out[k] * dout[k];
                   for (int64_t j = 0; j <= i; j++) {
                     const double prob = head.p[at(i * T + j)], keep = head.keep[at(i * T + j)];
                     double dp = 0;
                     for (int64_t k = 0; k < D; k++) dp += dout[k] * head.v[at(j * D + k)] * keep;
                     const double ds = prob * (dp - delta) / std::sqrt(double(D));
                     for (int64_t k = 0; k < D; k++) {
                       dq[at(i * D + k)] += ds * head.k[at(j * D + k)];
                       dk[at(j * D + k)] += ds * head.q[at(i * D + k)];
                       dv[at(j * D + k)] += prob * keep * dout[k];
                     }
                   }
                 }
                 const int64_t shared = dims.H + h / dims.group();
                 const bool is_first = h % dims.group() == 0;
                 for (int64_t i = 0; i < T * D; i++) {
                   const int64_t row = (b * T + i / D) * dims.qkv_width() + i % D;
                   double &key = d["dqkv"][at(row + shared * D)],
                          &value = d["dqkv"][at(row + (shared + dims.kv()) * D)];
                   d["dqkv"][at(row + h * D)] = dq[at(i)];
                   key = (is_first ? 0 : key) + dk[at(i)];
                   value = (is_first ? 0 : value) + dv[at(i)];
                 }
               });
             }};
  c.args[1].scratch = true;
  add_starts(c, documents, dims.B, dims.T);
  Case forward = attention_forward_case(dims, p, t, documents);
  Doubles d = doubles(forward);
  forward.twin(d);
  for (size_t i = 0; i < d["out"].size(); i++) c.args[3].values[i] = rounded(d["out"][i], t);
  for (size_t i = 0; i < d["lse"].size(); i++) c.args[4].values[i] = rounded(d["lse"][i], f32);
  return c;
}

}  // namespace megalith::test
