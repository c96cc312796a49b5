// The ops on whole tensors: the update, fills, copies, sums.
#include <algorithm>
#include <cstring>
#include <numbers>

#include "cases.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/elementwise/philox.h"
#include "kernels/update/adamw.h"
#include "kernels/update/decide_update.h"

namespace megalith::test {

namespace {
Values values_of(const UpdateState& state) {
  Values values(UpdateState::numel);
  std::memcpy(values.data(), &state, sizeof state);
  return values;
}
UpdateState state_of(const Values& values) {
  UpdateState state;
  std::memcpy(&state, values.data(), sizeof state);
  return state;
}

double drawn(double value, uint32_t word) {
  bfloat16 rounded;
  rounded.bits = stochastic_bf16(static_cast<float>(value), word);
  return static_cast<double>(static_cast<float>(rounded));
}
}  // namespace

Case adamw_case(int64_t n, int64_t update, bool has_working, DType t, Decision decision, const StateTypes& types) {
  const AdamW a{.learning_rate = 3e-2, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-2, .weight_decay = 0.1};
  const double scale = 0.7, c1 = 1 - std::pow(a.beta1, double(update)), c2 = 1 - std::pow(a.beta2, double(update));
  UpdateState state{};
  state.decision = double(decision);
  state.scale = scale;
  state.rate = a.learning_rate / c1;
  state.root = 1 / c2;
  Case c{.op = "adamw_update",
         .shape = fmt::format("{} update {}{} decision {}, {} of {}{}", n, update, has_working ? " working" : "",
                              int(decision), name_of(types.moments), name_of(types.master),
                              types.rounding.stochastic ? " rounded at random" : ""),
         .dtype = t,
         .args = {out("master", types.master, {n}), out("m", types.moments, {n}), out("v", types.moments, {n}),
                  out("working", t, has_working ? Shape{n} : Shape{}), in("grad", f32, {n}),
                  in("state", f64, {UpdateState::numel})},
         .run =
             [a, rounding = types.rounding](Stream& s, const Tensors& x) {
               launch(s, AdamWUpdate{.master = x[0],
                                     .m = x[1],
                                     .v = x[2],
                                     .working = x[3],
                                     .grad = x[4],
                                     .state = x[5],
                                     .adamw = a,
                                     .rounding = rounding});
             },
         .twin =
             [=](Doubles& d) {
               for (size_t i = 0; i < at(n) && decision == Decision::update; i++) {
                 const double g = scale * d["grad"][i];
                 double &m = d["m"][i], &v = d["v"][i], &p = d["master"][i];
                 m = a.beta1 * m + (1 - a.beta1) * g;
                 v = a.beta2 * v + (1 - a.beta2) * g * g;
                 p = p - a.learning_rate * a.weight_decay * p -
                     a.learning_rate * (m / c1) / (std::sqrt(v / c2) + a.epsilon);
                 if (types.rounding.stochastic) {
                   const PhiloxBlock words = types.rounding.words(int64_t(i));
                   if (types.master == bf16) p = drawn(p, words[0]);
                   if (types.moments == bf16) m = drawn(m, words[1]);
                   if (types.moments == bf16) v = drawn(v, words[2]);
                 }
                 if (has_working) d["working"][i] = p;
               }
             }};
  for (double& v : c.args[2].values) v = std::abs(v);
  c.args[5].values = values_of(state);
  return c;
}

Case decide_update_case(const std::string& what, const Values& sums, const UpdateRules& rules, const Values& norms,
                        int64_t skipped, const UpdateState& start) {
  const AdamW a{.learning_rate = 3e-2, .beta1 = 0.9, .beta2 = 0.95};
  UpdateState before = start;
  before.updates = 7;
  before.skipped = double(skipped);
  before.num_norms = double(norms.size());
  for (size_t i = 0; i < norms.size(); i++) before.norms[i % UpdateState::window] = norms[i];
  Case c{.op = "decide_update",
         .shape = fmt::format("{}, {} sums, {} norms, skipped {}, max {} above {} most {}, loss scale {}", what,
                              sums.size(), norms.size(), skipped, rules.max_norm, rules.skip_above, rules.most_skipped,
                              start.next_loss_scale),
         .dtype = f64,
         .args = {out("state", f64, {UpdateState::numel}), in("sums", f64, {int64_t(sums.size())})},
         .run =
             [=](Stream& s, const Tensors& x) {
               launch(s, DecideUpdate{.state = x[0], .sums = x[1], .rules = rules, .adamw = a});
             },
         .twin =
             [=](Doubles& d) {
               UpdateState state = state_of(d["state"]);
               double squares = 0;
               for (size_t i = 0; i + 1 < sums.size(); i++) squares += sums[i];
               const LossScaling& scaling = rules.loss_scaling;
               const double factor = scaling.initial > 0 ? before.next_loss_scale : 1;
               const double norm = std::sqrt(squares) / factor, loss = sums.back();
               if (scaling.initial > 0) state.loss_scale = factor;
               Values last(norms.end() - std::min<ptrdiff_t>(norms.end() - norms.begin(), 128), norms.end());
               std::sort(last.begin(), last.end());
               double median = 0;
               if (rules.skip_above > 0 && last.size() >= 16) {
                 const size_t half = last.size() / 2;
                 median = last.size() % 2 ? last[half] : (last[half - 1] + last[half]) / 2;
               }
               Decision decision = Decision::update;
               if (median > 0 && norm > rules.skip_above * median) decision = Decision::spike;
               if (!rules.counts) decision = Decision::nothing;
               if (!std::isfinite(norm) || !std::isfinite(loss)) decision = Decision::not_finite;
               if (!std::isfinite(norm) && std::isfinite(loss) && scaling.dynamic && factor > scaling.minimum)
                 decision = Decision::overflow;
               if (skipped >= rules.most_skipped) decision = Decision::over;
               state.decision = double(decision);
               state.norm = norm;
               state.median = median;
               if (decision == Decision::update) {
                 state.scale = (rules.max_norm == 0 ? 1 : std::min(1.0, rules.max_norm / (norm + 1e-6))) / factor;
                 if (scaling.dynamic) state.good_steps++;
                 if (scaling.dynamic && state.good_steps == double(scaling.window)) {
                   state.next_loss_scale = 2 * factor;
                   state.good_steps = state.overflows = 0;
                 }
                 state.rate = a.learning_rate / (1 - std::pow(a.beta1, 8));
                 state.root = 1 / (1 - std::pow(a.beta2, 8));
                 state.norms[norms.size() % 128] = norm;
                 state.num_norms++;
                 state.updates++;
                 state.skipped = 0;
               } else if (decision == Decision::overflow) {
                 state.good_steps = 0;
                 state.overflows++;
                 if (state.overflows >= double(scaling.delayed_shift))
                   state.next_loss_scale = std::max(scaling.minimum, factor / 2);
               } else if (decision != Decision::nothing) {
                 state.skipped++;
               }
               d["state"] = values_of(state);
             }};
  c.args[0].values = values_of(before);
  c.args[1].values = sums;
  c.args[1].any_shape = true;
  return c;
}

Case fill_case(int64_t n, DType t) {
  Case c{.op = "fill",
         .shape = fmt::format("{}", n),
         .dtype = t,
         .args = {out("y", t, {n})},
         .run = [](Stream& s, const Tensors& a) { launch(s, Fill{.y = a[0], .value = 3}); },
         .twin = [](Doubles& d) { std::fill(d["y"].begin(), d["y"].end(), 3.0); }};
  c.args[0].any_shape = true;
  return c;
}

Case copy_case(int64_t n, DType to, DType from) {
  Case c{.op = "copy",
         .shape = fmt::format("{} from {}", n, name_of(from)),
         .dtype = to,
         .args = {out("y", to, {n}), in("x", from, {n})},
         .run = [](Stream& s, const Tensors& a) { launch(s, Copy{.y = a[0], .x = a[1]}); },
         .twin = [](Doubles& d) { d["y"] = d["x"]; }};
  c.aligned = is_8_bit(to);
  return c;
}

Case add_case(int64_t n, DType t) {
  return {.op = "add",
          .shape = fmt::format("{}", n),
          .dtype = t,
          .args = {out("y", t, {n}), in("x", t, {n})},
          .run = [](Stream& s, const Tensors& a) { launch(s, Add{.y = a[0], .x = a[1]}); },
          .twin =
              [](Doubles& d) {
                for (size_t i = 0; i < d["x"].size(); i++) d["y"][i] += d["x"][i];
              }};
}

Case sum_rows_case(int64_t rows, int64_t n, bool add, DType t) {
  return {.op = "sum_rows",
          .shape = fmt::format("{} x {}{}", rows, n, add ? " added" : ""),
          .dtype = t,
          .args = {out("y", t, {n}), in("x", DType::bf16, {rows, n})},
          .run = [add](Stream& s, const Tensors& a) { launch(s, SumRows{.y = a[0], .x = a[1], .add = add}); },
          .twin =
              [=](Doubles& d) {
                for (size_t i = 0; i < at(n); i++) {
                  double sum = add ? d["y"][i] : 0;
                  for (size_t r = 0; r < at(rows); r++) sum += d["x"][r * at(n) + i];
                  d["y"][i] = sum;
                }
              }};
}

Case accumulate_sum_case(int64_t n) {
  Case c{.op = "accumulate_sum",
         .shape = fmt::format("{}", n),
         .dtype = f32,
         .args = {out("out", f64, {1}), in("x", f32, {n})},
         .run = [](Stream& s, const Tensors& a) { launch(s, AccumulateSum{.out = a[0], .x = a[1], .scale = 0.5}); },
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
         .run = [](Stream& s, const Tensors& a) { launch(s, AccumulateSquareSum{.out = a[0], .x = a[1]}); },
         .twin =
             [](Doubles& d) {
               for (double x : d["x"]) d["out"][0] += x * x;
             }};
  c.args[1].any_shape = true;
  return c;
}

Case normal_fill_case(int64_t begin, int64_t n, Columns columns) {
  Case c{
      .op = "normal_fill",
      .shape =
          fmt::format("{} from {} of columns [{}, +{}) of {}", n, begin, columns.begin, columns.count, columns.total),
      .dtype = f32,
      .args = {out("y", f32, {n})},
      .run =
          [=](Stream& s, const Tensors& a) {
            launch(s, NormalFill{.y = a[0], .seed = 7, .stream = 9, .begin = begin, .std = 0.02, .columns = columns});
          },
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

std::vector<Case> adamw_cases() {
  const StateTypes narrow{.master = DType::bf16, .moments = DType::bf16};
  StateTypes random = narrow;
  random.rounding = {
      .stochastic = true, .key = 99, .stream = 7, .begin = 13, .columns = {.begin = 3, .count = 5, .total = 11}};
  return {
      adamw_case(1, 1, true, DType::f32),
      adamw_case(7, 2, true, DType::bf16),
      adamw_case(257, 10, true, DType::bf16),
      adamw_case(20011, 1000, true, DType::bf16),
      adamw_case(257, 10, true, DType::f16),
      adamw_case(257, 10, true, DType::f32),
      adamw_case(1, 3, false, DType::f32),
      adamw_case(20011, 100, false, DType::f32),
      adamw_case(257, 10, true, DType::bf16, Decision::not_finite),
      adamw_case(257, 10, false, DType::f32, Decision::spike),
      adamw_case(1031, 10, true, DType::bf16, Decision::update, {.moments = DType::bf16}),
      adamw_case(1031, 10, false, DType::bf16, Decision::update, narrow),
      adamw_case(257, 10, true, DType::bf16, Decision::update, narrow),
      adamw_case(257, 10, false, DType::bf16, Decision::update, {.master = DType::bf16}),
      adamw_case(257, 10, true, DType::bf16, Decision::not_finite, narrow),
      adamw_case(1031, 10, false, DType::bf16, Decision::update, random),
      adamw_case(257, 10, true, DType::bf16, Decision::update, random),
      adamw_case(257, 10, true, DType::f32, Decision::update, {.moments = DType::bf16, .rounding = random.rounding})};
}
// 1, 2, ... n in an order of their own; their median is (n + 1) / 2.
Values mixed(int64_t n) {
  Values all;
  for (int64_t i = 0; i < n; i++) all.push_back(static_cast<double>(1 + (i * 61 + 17) % n));
  return all;
}
UpdateState at_scale(double loss_scale, double overflows, double good_steps) {
  UpdateState state{};
  state.next_loss_scale = loss_scale;
  state.overflows = overflows;
  state.good_steps = good_steps;
  return state;
}
std::vector<Case> decide_update_cases() {
  const double infinite = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  const UpdateRules clip{.max_norm = 1}, uncounted{.counts = false}, guard{.max_norm = 1, .skip_above = 2};
  const LossScaling falling{.initial = 16, .dynamic = true, .minimum = 2, .window = 5, .delayed_shift = 2};
  const UpdateRules scaled{.max_norm = 1, .loss_scaling = falling},
      scaled_guard{.skip_above = 2, .loss_scaling = falling}, fixed{.loss_scaling = {.initial = 8}};
  Values many(300, 0.25);  // more than threads that add them up
  many.back() = 3;
  Values long_ago = mixed(128);
  long_ago.insert(long_ago.begin(), 200, 1000.0);
  return {decide_update_case("nothing", {0, 3}, clip, {}),
          decide_update_case("no parts", {3}, clip, {}),
          decide_update_case("no token counts", {0, 0}, uncounted, mixed(16), 2),
          decide_update_case("no token counts, and not finite", {infinite, 0}, uncounted, mixed(16), 2),
          decide_update_case("small", {0.25, 3}, clip, {}),
          decide_update_case("large", {4, 5, 3}, clip, {}),
          decide_update_case("not clipped", {4, 5, 3}, {}, {}),
          decide_update_case("many", many, clip, {}),
          decide_update_case("nan loss", {4, nan}, clip, {}),
          decide_update_case("infinite loss", {4, -infinite}, {}, {}),
          decide_update_case("infinite norm", {4, infinite, 3}, clip, {}, 2),
          decide_update_case("good again", {4, 3}, clip, {}, 2),
          decide_update_case("over", {4, 3}, clip, {}, 3),
          decide_update_case("too few norms", {1e9, 3}, guard, mixed(15)),
          decide_update_case("a spike", {289.1, 3}, guard, mixed(16)),
          decide_update_case("just none", {289, 3}, guard, mixed(16)),
          decide_update_case("a spike", {324.1, 3}, guard, mixed(17)),
          decide_update_case("just none", {324, 3}, guard, mixed(17)),
          decide_update_case("all equal", {101, 3}, guard, Values(100, 5.0)),
          decide_update_case("all equal", {100, 3}, guard, Values(100, 5.0)),
          decide_update_case("a spike", {16641.1, 3}, guard, long_ago),
          decide_update_case("just none", {16641, 3}, guard, long_ago),
          decide_update_case("no guard", {16641.1, 3}, clip, long_ago),
          decide_update_case("a spike without a loss", {1e9, nan}, guard, long_ago),
          decide_update_case("scaled", {4 * 64.0, 3}, scaled, {}, 0, at_scale(8, 2, 3)),
          decide_update_case("a scaled spike", {289.1 * 64, 3}, scaled_guard, mixed(16), 0, at_scale(8, 0, 0)),
          decide_update_case("window is full", {4 * 64.0, 3}, scaled, {}, 0, at_scale(8, 2, 4)),
          decide_update_case("fixed", {infinite, 3}, fixed, {}, 0, at_scale(8, 2, 4)),
          decide_update_case("fixed", {4 * 64.0, 3}, fixed, {}, 1, at_scale(8, 0, 4)),
          decide_update_case("first overflow", {infinite, 3}, scaled, {}, 1, at_scale(8, 0, 3)),
          decide_update_case("second overflow", {infinite, 3}, scaled, {}, 0, at_scale(8, 1, 3)),
          decide_update_case("third overflow", {infinite, 3}, scaled, {}, 0, at_scale(8, 2, 0)),
          decide_update_case("down to the least", {infinite, 3}, scaled, {}, 0, at_scale(3, 2, 0)),
          decide_update_case("at the least", {infinite, 3}, scaled, {}, 0, at_scale(2, 2, 0)),
          decide_update_case("overflow without a loss", {infinite, nan}, scaled, {}, 0, at_scale(8, 2, 0)),
          decide_update_case("overflow, but over", {infinite, 3}, scaled, {}, 3, at_scale(8, 2, 0))};
}
std::vector<Case> fill_cases() {
  return {fill_case(1, DType::f32),      fill_case(7, DType::bf16),   fill_case(40011, DType::f32),
          fill_case(40011, DType::bf16), fill_case(1031, DType::f64), fill_case(1031, DType::i32),
          fill_case(1031, f16)};
}
std::vector<Case> copy_cases() {
  return {copy_case(1, f32, f32),
          copy_case(7, f32, bf16),
          copy_case(7, bf16, f32),
          copy_case(40011, f32, bf16),
          copy_case(40011, bf16, f32),
          copy_case(40011, f32, f32),
          copy_case(40011, bf16, bf16),
          copy_case(1031, DType::f64, DType::f64),
          copy_case(7, f32, f16),
          copy_case(40011, f16, f32),
          copy_case(40011, f32, f16),
          copy_case(1031, f16, f16),
          copy_case(1030, DType::e4m3, DType::e4m3)};
}
std::vector<Case> add_cases() {
  return {add_case(1, DType::f32),      add_case(7, DType::bf16),   add_case(40011, DType::f32),
          add_case(40011, DType::bf16), add_case(1031, DType::f64), add_case(1031, f16)};
}

}  // namespace megalith::test
