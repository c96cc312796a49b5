#include "cases.h"

#include <algorithm>
#include <numbers>

#include "kernels/adamw.h"
#include "kernels/cross_entropy.h"
#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/gelu.h"
#include "kernels/gemm_cpu.h"
#include "kernels/layernorm.h"
#include "kernels/linear.h"
#include "kernels/philox.h"
#include "kernels/residual.h"

namespace megalith::test {

namespace {
using Tensors = std::vector<Tensor>;
constexpr DType f32 = DType::f32, f64 = DType::f64;
size_t at(int64_t i) { return static_cast<size_t>(i); }
Dropout mask_of(double p) { return {.p = p, .seed = 11, .step = 3, .site = 5, .first_row = 1000}; }

double gelu(double x) { return x / 2 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x))); }
double gelu_derivative(double x) {
  const double u = std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x), tanh = std::tanh(u);
  return (1 + tanh) / 2 + x / 2 * (1 - tanh * tanh) * std::sqrt(2 / std::numbers::pi) * (1 + 3 * 0.044715 * x * x);
}
}  // namespace

double keep_factor(const Dropout& d, uint64_t row, uint64_t group, uint64_t column) {
  if (d.p == 0) return 1;
  const PhiloxBlock key = philox(d.seed, uint64_t(d.step), uint64_t(d.site));
  const PhiloxBlock block =
      philox(uint64_t{key[1]} << 32 | key[0], uint64_t(d.first_row) + row, group + column / 64 * 16 + column % 16);
  return block[column % 64 / 16] < static_cast<uint32_t>(d.p * 4294967296.0) ? 0 : 1 / (1 - d.p);
}

Case gelu_forward_case(int64_t N, int64_t C, DType t) {
  return {.op = "gelu_forward",
          .shape = fmt::format("{}x{}", N, C),
          .dtype = t,
          .args = {out("y", t, {N, C}), in("x", t, {N, C}, 2)},
          .run = [](Stream& s, const Tensors& a) { gelu_forward(s, a[0], a[1]); },
          .twin =
              [](Doubles& d) {
                for (size_t i = 0; i < d["x"].size(); i++) d["y"][i] = gelu(d["x"][i]);
              }};
}

Case gelu_backward_case(int64_t N, int64_t C, DType t) {
  return {.op = "gelu_backward",
          .shape = fmt::format("{}x{}", N, C),
          .dtype = t,
          .args = {out("dx", t, {N, C}), in("dy", t, {N, C}), in("x", t, {N, C}, 2)},
          .run = [](Stream& s, const Tensors& a) { gelu_backward(s, a[0], a[1], a[2]); },
          .twin =
              [](Doubles& d) {
                for (size_t i = 0; i < d["x"].size(); i++) d["dx"][i] = d["dy"][i] * gelu_derivative(d["x"][i]);
              }};
}

Case layernorm_forward_case(int64_t N, int64_t C, DType t) {
  return {.op = "layernorm_forward",
          .shape = fmt::format("{}x{}", N, C),
          .dtype = t,
          .args = {out("y", t, {N, C}), out("stat", f32, {N, 2}), in("x", t, {N, C}, 3, 1), in("w", t, {C}, 0.5, 1),
                   in("b", t, {C})},
          .run = [](Stream& s, const Tensors& a) { layernorm_forward(s, a[0], a[1], a[2], a[3], a[4]); },
          .twin =
              [N, C](Doubles& d) {
                for (int64_t n = 0; n < N; n++) {
                  double mean = 0, variance = 0;
                  for (int64_t c = 0; c < C; c++) mean += d["x"][at(n * C + c)] / double(C);
                  for (int64_t c = 0; c < C; c++) variance += std::pow(d["x"][at(n * C + c)] - mean, 2) / double(C);
                  const double rstd = 1 / std::sqrt(variance + 1e-5);
                  for (int64_t c = 0; c < C; c++)
                    d["y"][at(n * C + c)] = (d["x"][at(n * C + c)] - mean) * rstd * d["w"][at(c)] + d["b"][at(c)];
                  d["stat"][at(2 * n)] = mean;
                  d["stat"][at(2 * n + 1)] = rstd;
                }
              }};
}

Case layernorm_backward_case(int64_t N, int64_t C, DType t) {
  Case c{.op = "layernorm_backward",
         .shape = fmt::format("{}x{}", N, C),
         .dtype = t,
         .args = {out("dx", t, {N, C}), out("dw", f32, {C}), out("db", f32, {C}), in("dy", t, {N, C}),
                  in("x", t, {N, C}, 3, 1), in("stat", f32, {N, 2}), in("w", t, {C}, 0.5, 1)},
         .run = [](Stream& s, const Tensors& a) { layernorm_backward(s, a[0], a[1], a[2], a[3], a[4], a[5], a[6]); },
         .twin =
             [N, C](Doubles& d) {
               for (int64_t n = 0; n < N; n++) {
                 const double mean = d["stat"][at(2 * n)], rstd = d["stat"][at(2 * n + 1)];
                 double sum = 0, dot = 0;
                 for (int64_t k = 0; k < C; k++) {
                   const double dy = d["dy"][at(n * C + k)], xhat = (d["x"][at(n * C + k)] - mean) * rstd;
                   sum += dy * d["w"][at(k)];
                   dot += dy * d["w"][at(k)] * xhat;
                   d["dw"][at(k)] += dy * xhat;
                   d["db"][at(k)] += dy;
                 }
                 for (int64_t k = 0; k < C; k++) {
                   const double g = d["dy"][at(n * C + k)] * d["w"][at(k)],
                                xhat = (d["x"][at(n * C + k)] - mean) * rstd;
                   d["dx"][at(n * C + k)] += rstd * (g - sum / double(C) - xhat * dot / double(C));
                 }
               }
             }};
  c.accumulates = {"dx", "dw", "db"};
  // The statistics of x itself, as the forward pass saves them.
  Case forward = layernorm_forward_case(N, C, t);
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
                for (int64_t n = 0; n < N; n++)
                  for (int64_t o = 0; o < O; o++) {
                    double sum = bias ? d["b"][at(o)] : 0;
                    for (int64_t i = 0; i < I; i++) sum += d["x"][at(n * I + i)] * d["w"][at(o * I + i)];
                    d["y"][at(n * O + o)] = sum;
                  }
              },
          .same_for_any_threads = t == DType::f32 || !cpu::has_fast_bf16()};
}

Case linear_backward_input_case(int64_t N, int64_t I, int64_t O, DType t) {
  return {.op = "linear_backward_input",
          .shape = fmt::format("{}x{} to {}", N, I, O),
          .dtype = t,
          .args = {out("dx", t, {N, I}), in("dy", t, {N, O}), in("w", t, {O, I})},
          .run = [](Stream& s, const Tensors& a) { linear_backward_input(s, a[0], a[1], a[2]); },
          .twin =
              [=](Doubles& d) {
                for (int64_t n = 0; n < N; n++)
                  for (int64_t i = 0; i < I; i++) {
                    double sum = 0;
                    for (int64_t o = 0; o < O; o++) sum += d["dy"][at(n * O + o)] * d["w"][at(o * I + i)];
                    d["dx"][at(n * I + i)] = sum;
                  }
              },
          .same_for_any_threads = t == DType::f32 || !cpu::has_fast_bf16()};
}

Case linear_backward_weight_case(int64_t N, int64_t I, int64_t O, bool bias, DType t) {
  return {.op = "linear_backward_weight",
          .shape = fmt::format("{}x{} to {}{}", N, I, O, bias ? " bias" : ""),
          .dtype = t,
          .args = {out("dw", f32, {O, I}), out("db", f32, bias ? Shape{O} : Shape{}), in("dy", t, {N, O}),
                   in("x", t, {N, I})},
          .run = [](Stream& s, const Tensors& a) { linear_backward_weight(s, a[0], a[1], a[2], a[3]); },
          .twin =
              [=](Doubles& d) {
                for (int64_t n = 0; n < N; n++)
                  for (int64_t o = 0; o < O; o++) {
                    const double dy = d["dy"][at(n * O + o)];
                    for (int64_t i = 0; i < I; i++) d["dw"][at(o * I + i)] += dy * d["x"][at(n * I + i)];
                    if (bias) d["db"][at(o)] += dy;
                  }
              },
          .same_for_any_threads = t == DType::f32 || !cpu::has_fast_bf16(),
          .accumulates = {"dw", "db"}};
}

Case embedding_forward_case(int64_t B, int64_t T, int64_t C, int64_t V, DType t) {
  return {
      .op = "embedding_forward",
      .shape = fmt::format("{}x{}x{} of {}", B, T, C, V),
      .dtype = t,
      .args = {out("y", t, {B * T, C}), integers("tokens", {B * T}, 0, V), in("wte", t, {V, C}),
               in("wpe", t, {T + 2, C})},
      .run = [=](Stream& s, const Tensors& a) { embedding_forward(s, a[0], a[1], a[2], a[3], T, whole_vocabulary(V)); },
      .twin =
          [=](Doubles& d) {
            for (int64_t n = 0; n < B * T; n++)
              for (int64_t c = 0; c < C; c++)
                d["y"][at(n * C + c)] = d["wte"][at(int64_t(d["tokens"][at(n)]) * C + c)] + d["wpe"][at(n % T * C + c)];
          }};
}

Case embedding_backward_case(int64_t B, int64_t T, int64_t C, int64_t V, DType t) {
  return {.op = "embedding_backward",
          .shape = fmt::format("{}x{}x{} of {}", B, T, C, V),
          .dtype = t,
          .args = {out("dwte", f32, {V, C}), out("dwpe", f32, {T + 2, C}), in("dy", t, {B * T, C}),
                   integers("tokens", {B * T}, 0, V)},
          .run = [=](Stream& s,
                     const Tensors& a) { embedding_backward(s, a[0], a[1], a[2], a[3], T, whole_vocabulary(V)); },
          .twin =
              [=](Doubles& d) {
                for (int64_t n = 0; n < B * T; n++)
                  for (int64_t c = 0; c < C; c++) {
                    d["dwte"][at(int64_t(d["tokens"][at(n)]) * C + c)] += d["dy"][at(n * C + c)];
                    d["dwpe"][at(n % T * C + c)] += d["dy"][at(n * C + c)];
                  }
              },
          .accumulates = {"dwte", "dwpe"}};
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

Case residual_forward_case(int64_t N, int64_t C, double p, DType t) {
  return {.op = "residual_forward",
          .shape = fmt::format("{}x{} p {}", N, C, p),
          .dtype = t,
          .args = {out("y", t, {N, C}), in("x", t, {N, C}), in("h", t, {N, C}), in("b", t, {C})},
          .run = [p](Stream& s, const Tensors& a) { residual_forward(s, a[0], a[1], a[2], a[3], mask_of(p)); },
          .twin =
              [=](Doubles& d) {
                for (int64_t n = 0; n < N; n++)
                  for (int64_t c = 0; c < C; c++)
                    d["y"][at(n * C + c)] =
                        d["x"][at(n * C + c)] +
                        keep_factor(mask_of(p), uint64_t(n), 0, uint64_t(c)) * (d["h"][at(n * C + c)] + d["b"][at(c)]);
              }};
}

Case residual_backward_case(int64_t N, int64_t C, double p, DType t) {
  return {.op = "residual_backward",
          .shape = fmt::format("{}x{} p {}", N, C, p),
          .dtype = t,
          .args = {out("dh", t, {N, C}), out("db", f32, {C}), in("dy", t, {N, C})},
          .run = [p](Stream& s, const Tensors& a) { residual_backward(s, a[0], a[1], a[2], mask_of(p)); },
          .twin =
              [=](Doubles& d) {
                for (int64_t n = 0; n < N; n++)
                  for (int64_t c = 0; c < C; c++) {
                    const double dh = d["dy"][at(n * C + c)] * keep_factor(mask_of(p), uint64_t(n), 0, uint64_t(c));
                    d["dh"][at(n * C + c)] = dh;
                    d["db"][at(c)] += rounded(dh, t);  // the sum of what was written
                  }
              },
          .accumulates = {"db"}};
}

namespace {
// q, k and v of one head, the probabilities and the factors of the mask: what both passes begin with.
struct Head {
  Head(Doubles& d, const AttentionDims& dims, const Dropout& drop, int64_t b, int64_t h)
      : T(dims.T), D(dims.D), p(at(T * T)), keep(at(T * T)), lse(at(T)) {
    const int64_t width = dims.H * D;
    const auto part = [&](int64_t which) {
      Values m(at(T * D));
      for (int64_t i = 0; i < T * D; i++)
        m[at(i)] = d["qkv"][at((b * T + i / D) * 3 * width + which * width + h * D + i % D)];
      return m;
    };
    q = part(0), k = part(1), v = part(2);
    for (int64_t i = 0; i < T; i++) {
      double sum = 0;
      for (int64_t j = 0; j <= i; j++) {
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
std::string dims_str(const AttentionDims& a, double p) {
  return fmt::format("B{} T{} H{} D{} p {}", a.B, a.T, a.H, a.D, p);
}
}  // namespace

Case attention_forward_case(const AttentionDims& dims, double p, DType t) {
  const int64_t N = dims.B * dims.T, C = dims.H * dims.D;
  return {.op = "attention_forward",
          .shape = dims_str(dims, p),
          .dtype = t,
          .args = {out("out", t, {N, C}), out("lse", f32, {dims.B, dims.H, dims.T}), in("qkv", t, {N, 3 * C})},
          .run = [=](Stream& s, const Tensors& a) { attention_forward(s, a[0], a[1], a[2], dims, mask_of(p)); },
          .twin =
              [=](Doubles& d) {
                for (int64_t b = 0; b < dims.B; b++)
                  for (int64_t h = 0; h < dims.H; h++) {
                    const Head head(d, dims, mask_of(p), b, h);
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
                  }
              }};
}

Case attention_backward_case(const AttentionDims& dims, double p, DType t) {
  const int64_t N = dims.B * dims.T, C = dims.H * dims.D;
  const Shape rows{dims.B, dims.H, dims.T};
  Case c{.op = "attention_backward",
         .shape = dims_str(dims, p),
         .dtype = t,
         .args = {out("dqkv", t, {N, 3 * C}), out("delta", f32, rows), in("dout", t, {N, C}), in("out", t, {N, C}),
                  in("lse", f32, rows), in("qkv", t, {N, 3 * C})},
         .run = [=](Stream& s,
                    const Tensors& a) { attention_backward(s, a[0], a[1], a[2], a[3], a[4], a[5], dims, mask_of(p)); },
         .twin =
             [=](Doubles& d) {
               for (int64_t b = 0; b < dims.B; b++)
                 for (int64_t h = 0; h < dims.H; h++) {
                   const Head head(d, dims, mask_of(p), b, h);
                   const int64_t T = dims.T, D = dims.D;
                   Values dq(at(T * D)), dk(at(T * D)), dv(at(T * D));
                   for (int64_t i = 0; i < T; i++) {
                     const auto row = [&](const std::string& name, int64_t k) {
                       return d[name][at((b * T + i) * C + h * D + k)];
                     };
                     double delta = 0;
                     for (int64_t k = 0; k < D; k++) delta += row("out", k) * row("dout", k);
                     for (int64_t j = 0; j <= i; j++) {
                       const double prob = head.p[at(i * T + j)], keep = head.keep[at(i * T + j)];
                       double dp = 0;
                       for (int64_t k = 0; k < D; k++) dp += row("dout", k) * head.v[at(j * D + k)] * keep;
                       const double ds = prob * (dp - delta) / std::sqrt(double(D));
                       for (int64_t k = 0; k < D; k++) {
                         dq[at(i * D + k)] += ds * head.k[at(j * D + k)];
                         dk[at(j * D + k)] += ds * head.q[at(i * D + k)];
                         dv[at(j * D + k)] += prob * keep * row("dout", k);
                       }
                     }
                   }
                   for (int64_t i = 0; i < T * D; i++) {
                     const int64_t first = (b * T + i / D) * 3 * C + h * D + i % D;
                     d["dqkv"][at(first)] = dq[at(i)];
                     d["dqkv"][at(first + C)] = dk[at(i)];
                     d["dqkv"][at(first + 2 * C)] = dv[at(i)];
                   }
                 }
             }};
  c.args[1].scratch = true;
  Case forward = attention_forward_case(dims, p, t);
  Doubles d = doubles(forward);
  forward.twin(d);
  for (size_t i = 0; i < d["out"].size(); i++) c.args[3].values[i] = rounded(d["out"][i], t);
  for (size_t i = 0; i < d["lse"].size(); i++) c.args[4].values[i] = rounded(d["lse"][i], f32);
  return c;
}

namespace {
double log_sum_exp(const Values& z, int64_t first, int64_t V) {
  double top = z[at(first)], sum = 0;
  for (int64_t v = 0; v < V; v++) top = std::max(top, z[at(first + v)]);
  for (int64_t v = 0; v < V; v++) sum += std::exp(z[at(first + v)] - top);
  return top + std::log(sum);
}
void loss_twin(Doubles& d, int64_t N, int64_t V, double scale) {  // scale 0: no gradient
  for (int64_t n = 0; n < N; n++) {
    const auto target = int64_t(d["targets"][at(n)]);
    Values& z = d["logits"];
    const double lse = log_sum_exp(z, n * V, V);
    d["losses"][at(n)] = target < 0 ? 0 : lse - z[at(n * V + target)];
    for (int64_t v = 0; v < V && scale != 0; v++) {
      const double probability = std::exp(z[at(n * V + v)] - lse);
      z[at(n * V + v)] = target < 0 ? 0 : scale * (probability - (v == target ? 1 : 0));
    }
  }
}
}  // namespace

Case cross_entropy_forward_case(int64_t N, int64_t V, DType t) {
  Case c{.op = "cross_entropy_forward",
         .shape = fmt::format("{}x{}", N, V),
         .dtype = t,
         .args = {out("losses", f32, {N}), in("logits", t, {N, V}, 3), integers("targets", {N}, -1, V)},
         .run = [=](Stream& s, const Tensors& a) { cross_entropy_forward(s, a[0], a[1], a[2], whole_vocabulary(V)); },
         .twin = [=](Doubles& d) { loss_twin(d, N, V, 0); }};
  c.args[1].any_shape = true;
  if (N > 1) c.args[2].values[1] = -1;
  return c;
}

Case cross_entropy_forward_backward_case(int64_t N, int64_t V, DType t) {
  Case c = cross_entropy_forward_case(N, V, t);
  c.op = "cross_entropy_forward_backward";
  c.args[1].written = true;
  c.run = [=](Stream& s, const Tensors& a) {
    cross_entropy_forward_backward(s, a[0], a[1], a[2], whole_vocabulary(V), 0.125);
  };
  c.twin = [=](Doubles& d) { loss_twin(d, N, V, 0.125); };
  return c;
}

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

Case normal_fill_case(int64_t begin, int64_t n) {
  Case c{.op = "normal_fill",
         .shape = fmt::format("{} from {}", n, begin),
         .dtype = f32,
         .args = {out("y", f32, {n})},
         .run = [=](Stream& s, const Tensors& a) { normal_fill(s, a[0], 7, 9, begin, 0.02); },
         .twin =
             [=](Doubles& d) {
               for (int64_t i = begin; i < begin + n; i++) {
                 const PhiloxBlock words = philox(7, 9, uint64_t(i / 4));
                 const size_t first = i % 4 < 2 ? 0 : 2;
                 const double radius = std::sqrt(-2 * std::log(double(uniform(words[first]))));
                 const double angle = 2 * std::numbers::pi * double(uniform(words[first + 1]));
                 d["y"][at(i - begin)] = 0.02 * radius * (i % 2 == 0 ? std::cos(angle) : std::sin(angle));
               }
             }};
  c.args[0].any_shape = true;
  return c;
}

}  // namespace megalith::test
