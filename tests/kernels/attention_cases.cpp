// Cases of attention, and of what is done to its queries and keys.
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
          .run =
              [=](Stream& s, const Tensors& a) {
                launch(
                    s,
                    HeadNormForward{
                        .y = a[0], .rstd = a[1], .x = a[2], .q_w = a[3], .k_w = a[4], .dims = dims, .epsilon = 1e-2f});
              },
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
         .run =
             [=](Stream& s, const Tensors& a) {
               launch(s, HeadNormBackward{.d = a[0],
                                          .dq_w = a[1],
                                          .dk_w = a[2],
                                          .x = a[3],
                                          .rstd = a[4],
                                          .q_w = a[5],
                                          .k_w = a[6],
                                          .dims = dims});
             },
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
               launch(
                   s,
                   Rotate{.qkv = a[0], .dims = dims, .rotation = rotation, .positions = positions, .forward = forward});
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
      .run =
          [=](Stream& s, const Tensors& a) {
            launch(s, AttentionForward{.out = a[0],
                                       .lse = a[1],
                                       .qkv = a[2],
                                       .dims = dims,
                                       .dropout = mask_of(p),
                                       .starts = starts_in(a, 3)});
          },
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

Arg attention_scratch(const AttentionDims& dims, DType t) {
  const int64_t needed = attention_backward_scratch({.generation = 9}, t, dims);
  Arg arg;
  if (needed > 0) arg = out("scratch", f32, {needed});
  arg.name = "scratch";
  arg.scratch = true;
  return arg;
}

Case attention_backward_case(const AttentionDims& dims, double p, DType t, const Documents& documents) {
  const int64_t N = dims.B * dims.T, C = dims.H * dims.D;
  const Shape rows{dims.B, dims.H, dims.T};
  Case c{.op = "attention_backward",
         .shape = dims_str(dims, p, documents),
         .dtype = t,
         .args = {out("dqkv", t, {N, dims.qkv_width()}), out("delta", f32, rows), in("dout", t, {N, C}),
                  in("out", t, {N, C}), in("lse", f32, rows), in("qkv", t, {N, dims.qkv_width()}),
                  attention_scratch(dims, t)},
         .run =
             [=](Stream& s, const Tensors& a) {
               launch(s, AttentionBackward{.dqkv = a[0],
                                           .delta = a[1],
                                           .dout = a[2],
                                           .out = a[3],
                                           .lse = a[4],
                                           .qkv = a[5],
                                           .dims = dims,
                                           .dropout = mask_of(p),
                                           .starts = starts_in(a, 7),
                                           .scratch = a[6]});
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
