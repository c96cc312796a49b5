// The ops on a vocabulary, whole or a part of it. Padding is NaN wherever an op may only pass over it.
#include <algorithm>
#include <limits>

#include "cases.h"
#include "kernels/embedding/embedding.h"
#include "kernels/loss/cross_entropy.h"
#include "tensor_of.h"

namespace megalith::test {

namespace {

std::string name_of(const VocabularyPart& part, int64_t padding) {
  return fmt::format("tokens [{}, +{}) of {} padding {}", part.first, part.count, part.total, padding);
}
void poison(Values& values, int64_t begin) {
  std::fill(values.begin() + begin, values.end(), std::numeric_limits<double>::quiet_NaN());
}
// (N, part.count + padding), the padding of every row poisoned.
Arg logits_of(int64_t N, const VocabularyPart& part, int64_t padding, DType t) {
  const int64_t width = part.count + padding;
  Arg logits = in("logits", t, {N, width}, 3);
  for (int64_t n = 0; n < N; n++)
    std::fill_n(logits.values.begin() + n * width + part.count, padding, std::numeric_limits<double>::quiet_NaN());
  logits.any_shape = true;
  return logits;
}
Arg targets_of(int64_t N, int64_t V) {
  Arg targets = integers("targets", {N}, -1, V);
  if (N > 1) targets.values[1] = -1;
  return targets;
}
}  // namespace

namespace {
// Row n has this position, whether documents are kept apart or not.
int64_t position_of(Doubles& d, int64_t n, int64_t T) {
  const Values& starts = d["starts"];
  return n % T - (starts.empty() ? 0 : int64_t(starts[at(n)]));
}
Tensor starts_among(const Tensors& a) { return a.size() > 4 ? a[4] : Tensor{}; }
}  // namespace

Case embedding_forward_case(int64_t B, int64_t T, int64_t C, VocabularyPart part, int64_t padding, Types t,
                            const Documents& documents, bool positions) {
  Case made{.op = "embedding_forward",
            .shape = fmt::format("{}x{}x{} {}{}{}{}", B, T, C, name_of(part, padding), name_of(documents),
                                 positions ? "" : " no positions", name_of(t)),
            .dtype = t.branch,
            .args = {out("y", t.residual, {B * T, C}), integers("tokens", {B * T}, 0, part.total),
                     in("wte", t.branch, {part.count + padding, C}),
                     in("wpe", t.branch, positions ? Shape{T + 2, C} : Shape{})},
            .run =
                [=](Stream& s, const Tensors& a) {
                  launch(s, EmbeddingForward{.y = a[0],
                                             .tokens = a[1],
                                             .wte = a[2],
                                             .wpe = a[3],
                                             .T = T,
                                             .part = part,
                                             .starts = starts_among(a)});
                },
            .twin =
                [=](Doubles& d) {
                  for (int64_t n = 0; n < B * T; n++)
                    for (int64_t c = 0; c < C; c++) {
                      const int64_t row = int64_t(d["tokens"][at(n)]) - part.first;
                      const bool held = 0 <= row && row < part.count;
                      const double position = positions ? d["wpe"][at(position_of(d, n, T) * C + c)] : 0;
                      d["y"][at(n * C + c)] = held ? d["wte"][at(row * C + c)] + position : 0;
                    }
                }};
  poison(made.args[2].values, part.count * C);
  if (positions) poison(made.args[3].values, T * C);
  if (!documents.empty()) made.args.push_back(starts_of(documents, B, T));
  return made;
}

Case embedding_backward_case(int64_t B, int64_t T, int64_t C, VocabularyPart part, int64_t padding, DType t,
                             const Documents& documents, bool positions) {
  Case made{
      .op = "embedding_backward",
      .shape = fmt::format("{}x{}x{} {}{}{}", B, T, C, name_of(part, padding), name_of(documents),
                           positions ? "" : " no positions"),
      .dtype = t,
      .args = {out("dwte", f32, {part.count + padding, C}), out("dwpe", f32, positions ? Shape{T + 2, C} : Shape{}),
               in("dy", t, {B * T, C}), integers("tokens", {B * T}, 0, part.total)},
      .run =
          [=](Stream& s, const Tensors& a) {
            launch(s, EmbeddingBackward{.dwte = a[0],
                                        .dwpe = a[1],
                                        .dy = a[2],
                                        .tokens = a[3],
                                        .T = T,
                                        .part = part,
                                        .starts = starts_among(a)});
          },
      .twin =
          [=](Doubles& d) {
            for (int64_t n = 0; n < B * T; n++)
              for (int64_t c = 0; c < C; c++) {
                const int64_t row = int64_t(d["tokens"][at(n)]) - part.first;
                if (0 <= row && row < part.count) d["dwte"][at(row * C + c)] += d["dy"][at(n * C + c)];
                if (positions) d["dwpe"][at(position_of(d, n, T) * C + c)] += d["dy"][at(n * C + c)];
              }
          },
      .accumulates = {"dwte", "dwpe"}};
  if (!documents.empty()) made.args.push_back(starts_of(documents, B, T));
  return made;
}

namespace {
constexpr double largest_of_none = std::numeric_limits<float>::lowest();
double max_of(const Values& z, int64_t first, int64_t V) {
  double top = largest_of_none;
  for (int64_t v = 0; v < V; v++) top = std::max(top, z[at(first + v)]);
  return top;
}
double sum_of(const Values& z, int64_t first, int64_t V, double max) {
  double sum = 0;
  for (int64_t v = 0; v < V; v++) sum += std::exp(z[at(first + v)] - max);
  return sum;
}
void loss_twin(Doubles& d, int64_t N, int64_t V, int64_t padding, double scale) {  // scale 0: no gradient
  for (int64_t n = 0; n < N; n++) {
    const auto target = int64_t(d["targets"][at(n)]);
    Values& z = d["logits"];
    const int64_t first = n * (V + padding);
    const double max = max_of(z, first, V), lse = max + std::log(sum_of(z, first, V, max));
    d["losses"][at(n)] = target < 0 ? 0 : lse - z[at(first + target)];
    for (int64_t v = 0; v < V + padding && scale != 0; v++) {
      const double probability = v < V ? std::exp(z[at(first + v)] - lse) : 0;
      z[at(first + v)] = target < 0 ? 0 : scale * (probability - (v == target ? 1 : 0));
    }
  }
}
constexpr double loss_scale = 0.125;
// A half, a quarter, both or nothing of it in memory, by the number of rows.
void scale_in_memory(Case& c, int64_t N) {
  const auto add = [&](const char* name, double value) {
    c.args.push_back(in(name, f64, {1}));
    c.args.back().values = {value};
  };
  if (N % 4 == 0 || N % 4 == 2) add("scale", 0.5);
  if (N % 4 == 0 || N % 4 == 3) add("share", 0.25);
}
GradientScale scale_of(const Tensors& a, int64_t N) {
  if (N % 4 == 0) return {.factor = 8 * loss_scale, .in_memory = a[3], .also_in_memory = a[4]};
  if (N % 4 == 2) return {.factor = 2 * loss_scale, .in_memory = a[3]};
  if (N % 4 == 3) return {.factor = 4 * loss_scale, .also_in_memory = a[3]};
  return {.factor = loss_scale};
}
}  // namespace

Case cross_entropy_forward_case(int64_t N, int64_t V, int64_t padding, DType t) {
  const VocabularyPart part = whole_vocabulary(V);
  return {.op = "cross_entropy_forward",
          .shape = fmt::format("{}x{} padding {}", N, V, padding),
          .dtype = t,
          .args = {out("losses", f32, {N}), logits_of(N, part, padding, t), targets_of(N, V)},
          .run =
              [=](Stream& s, const Tensors& a) {
                launch(s, CrossEntropyForward{.losses = a[0], .logits = a[1], .targets = a[2], .part = part});
              },
          .twin = [=](Doubles& d) { loss_twin(d, N, V, padding, 0); }};
}

Case cross_entropy_forward_backward_case(int64_t N, int64_t V, int64_t padding, DType t) {
  const VocabularyPart part = whole_vocabulary(V);
  Case c = cross_entropy_forward_case(N, V, padding, t);
  c.op = "cross_entropy_forward_backward";
  c.args[1].written = true;
  c.run = [=](Stream& s, const Tensors& a) {
    launch(s, CrossEntropyForwardBackward{
                  .losses = a[0], .logits = a[1], .targets = a[2], .part = part, .scale = scale_of(a, N)});
  };
  scale_in_memory(c, N);
  c.twin = [=](Doubles& d) { loss_twin(d, N, V, padding, loss_scale); };
  return c;
}

Case softmax_part_case(int64_t N, VocabularyPart part, int64_t padding, DType t) {
  return {.op = "softmax_part",
          .shape = fmt::format("{} rows {}", N, name_of(part, padding)),
          .dtype = t,
          .args = {out("stats", f32, {3, N}), logits_of(N, part, padding, t), targets_of(N, part.total)},
          .run =
              [=](Stream& s, const Tensors& a) {
                launch(s, SoftmaxPart{.stats = a[0], .logits = a[1], .targets = a[2], .part = part});
              },
          .twin =
              [=](Doubles& d) {
                const Values& z = d["logits"];
                for (int64_t n = 0; n < N; n++) {
                  const auto target = int64_t(d["targets"][at(n)]), column = target - part.first;
                  const int64_t V = target < 0 ? 0 : part.count, first = n * (part.count + padding);
                  d["stats"][at(n)] = max_of(z, first, V);
                  d["stats"][at(N + n)] = sum_of(z, first, V, d["stats"][at(n)]);
                  d["stats"][at(2 * N + n)] = 0 <= column && column < V ? z[at(first + column)] : 0;
                }
              }};
}

Case merge_softmax_case(int64_t N) {
  Case c{.op = "merge_softmax",
         .shape = fmt::format("{} rows", N),
         .args = {out("stats", f32, {3, N}), in("max", f32, {N}, 0.5)},
         .run = [](Stream& s, const Tensors& a) { launch(s, MergeSoftmax{.stats = a[0], .max = a[1]}); },
         .twin =
             [=](Doubles& d) {
               for (int64_t n = 0; n < N; n++) {
                 const double max = d["max"][at(n)];
                 if (d["stats"][at(n)] != max) d["stats"][at(N + n)] *= std::exp(d["stats"][at(n)] - max);
                 d["stats"][at(n)] = max;
               }
             }};
  // Every third row has the maximum itself, the next one holds no token, the one after may stand far below.
  Values &stats = c.args[0].values, &max = c.args[1].values;
  for (int64_t n = 0; n < N; n++) {
    stats[at(N + n)] = n % 3 == 1 ? 0 : std::abs(stats[at(N + n)]);
    stats[at(n)] = n % 3 == 0   ? max[at(n)]
                   : n % 3 == 1 ? largest_of_none
                                : rounded(max[at(n)] - 20 * std::abs(stats[at(n)]), f32);
  }
  if (N > 4) max[4] = largest_of_none;  // nor does any other part
  return c;
}

Case cross_entropy_loss_case(int64_t N) {
  Case c{.op = "cross_entropy_loss",
         .shape = fmt::format("{} rows", N),
         .args = {out("losses", f32, {N}), in("stats", f32, {3, N}), targets_of(N, 7)},
         .run = [](Stream& s,
                   const Tensors& a) { launch(s, CrossEntropyLoss{.losses = a[0], .stats = a[1], .targets = a[2]}); },
         .twin =
             [=](Doubles& d) {
               const Values& stats = d["stats"];
               for (int64_t n = 0; n < N; n++)
                 d["losses"][at(n)] =
                     d["targets"][at(n)] < 0 ? 0 : std::log(stats[at(N + n)]) + stats[at(n)] - stats[at(2 * N + n)];
             }};
  for (int64_t n = 0; n < N; n++) {
    double& sum = c.args[1].values[at(N + n)];
    sum = rounded(1 + std::abs(sum), f32);
  }
  return c;
}

Case cross_entropy_gradient_case(int64_t N, VocabularyPart part, int64_t padding, DType t) {
  const int64_t width = part.count + padding;
  Case c{.op = "cross_entropy_gradient",
         .shape = fmt::format("{} rows {}", N, name_of(part, padding)),
         .dtype = t,
         .args = {logits_of(N, part, padding, t), in("stats", f32, {3, N}), targets_of(N, part.total)},
         .run =
             [=](Stream& s, const Tensors& a) {
               launch(s, CrossEntropyGradient{
                             .logits = a[0], .stats = a[1], .targets = a[2], .part = part, .scale = scale_of(a, N)});
             },
         .twin =
             [=](Doubles& d) {
               for (int64_t n = 0; n < N; n++) {
                 const auto target = int64_t(d["targets"][at(n)]);
                 for (int64_t v = 0; v < width; v++) {
                   double& z = d["logits"][at(n * width + v)];
                   const double probability =
                       v < part.count ? std::exp(z - d["stats"][at(n)]) / d["stats"][at(N + n)] : 0;
                   const bool is_target = v < part.count && part.first + v == target;
                   z = target < 0 ? 0 : loss_scale * (probability - (is_target ? 1 : 0));
                 }
               }
             }};
  c.args[0].written = true;
  scale_in_memory(c, N);
  // The other parts hold a somewhat larger logit, and as much of the sum as this one.
  Values& stats = c.args[1].values;
  for (int64_t n = 0; n < N; n++) {
    const double max = part.count > 0 ? max_of(c.args[0].values, n * width, part.count) + 0.5 : 1;
    stats[at(n)] = rounded(max, f32);
    stats[at(N + n)] = rounded(1 + 2 * sum_of(c.args[0].values, n * width, part.count, max), f32);
  }
  return c;
}

}  // namespace megalith::test
