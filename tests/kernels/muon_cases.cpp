// Muon's ops beside products, against its formulas in doubles.
#include "kernels/update/muon.h"

#include <cmath>

#include "cases.h"
#include "kernels/elementwise/transpose.h"

namespace megalith::test {

namespace {

Values values_of_state(double scale, Decision decision) {
  UpdateState state{};
  state.decision = double(decision);
  state.scale = scale;
  Values values(size_t{UpdateState::numel});
  std::memcpy(values.data(), &state, sizeof state);
  return values;
}

double drawn_state(double value, uint32_t word) {
  bfloat16 rounded;
  rounded.bits = stochastic_bf16(static_cast<float>(value), word);
  return static_cast<double>(static_cast<float>(rounded));
}

std::string muon_words(Decision decision, const StateTypes& types) {
  return fmt::format("decision {}, {} of {}{}", int(decision), name_of(types.moments), name_of(types.master),
                     types.rounding.stochastic ? " rounded at random" : "");
}

}  // namespace

Case muon_momentum_case(int64_t n, Decision decision, const StateTypes& types) {
  Case c{.op = "muon_momentum",
         .shape = fmt::format("{} {}", n, muon_words(decision, types)),
         .dtype = f32,
         .args = {out("m", types.moments, {n}), out("grad", f32, {n}), in("state", f64, {UpdateState::numel})},
         .run =
             [rounding = types.rounding](Stream& s, const Tensors& x) {
               launch(s, MuonMomentum{.m = x[0], .grad = x[1], .state = x[2], .rounding = rounding});
             },
         .twin =
             [=](Doubles& d) {
               for (size_t i = 0; i < at(n) && decision == Decision::update; i++) {
                 double &m = d["m"][i], &g = d["grad"][i];
                 g *= 0.7;
                 m = 0.95 * m + 0.05 * g;
                 g = 0.05 * g + 0.95 * m;
                 if (types.rounding.stochastic && types.moments == bf16)
                   m = drawn_state(m, types.rounding.words(int64_t(i))[1]);
               }
             }};
  c.args[2].values = values_of_state(0.7, decision);
  return c;
}

Case scale_to_unit_norm_case(int64_t rows, int64_t cols, DType t, double size) {
  Case c{.op = "scale_to_unit_norm",
         .shape = fmt::format("{}x{} size {}", rows, cols, size),
         .dtype = t,
         .args = {out("x", t, {rows, cols})},
         .run = [](Stream& s, const Tensors& x) { launch(s, ScaleToUnitNorm{.x = x[0]}); },
         .twin =
             [](Doubles& d) {
               double sum = 0;
               for (const double v : d["x"]) sum += v * v;
               for (double& v : d["x"]) v /= std::max(std::sqrt(sum), 1e-7);
             }};
  c.args[0].any_shape = true;
  for (double& v : c.args[0].values) v = rounded(size * v, t);
  return c;
}

Case newton_schulz_polynomial_case(int64_t k, DType t) {
  return {
      .op = "newton_schulz_polynomial",
      .shape = fmt::format("{}", k),
      .dtype = t,
      .args = {out("y", t, {k, k}), in("a", t, {k, k}), in("b", t, {k, k})},
      .run = [](Stream& s, const Tensors& x) { launch(s, NewtonSchulzPolynomial{.y = x[0], .a = x[1], .b = x[2]}); },
      .twin =
          [=](Doubles& d) {
            for (size_t i = 0; i < at(k * k); i++)
              d["y"][i] = (i / at(k) == i % at(k) ? 3.4445 : 0) - 4.7750 * d["a"][i] + 2.0315 * d["b"][i];
          }};
}

Case columns_case(bool put, int64_t rows, Columns columns, DType t) {
  const Arg whole = put ? out("whole", t, {rows, columns.total}) : in("whole", t, {rows, columns.total}),
            part = put ? in("part", t, {rows, columns.count}) : out("part", t, {rows, columns.count});
  return {.op = put ? "put_columns" : "take_columns",
          .shape = fmt::format("{} rows, {} of {} from {} on", rows, columns.count, columns.total, columns.begin),
          .dtype = t,
          .args = {whole, part},
          .run =
              [=](Stream& s, const Tensors& x) {
                put ? launch(s, PutColumns{.whole = x[0], .part = x[1], .columns = columns})
                    : launch(s, TakeColumns{.part = x[1], .whole = x[0], .columns = columns});
              },
          .twin =
              [=](Doubles& d) {
                for (int64_t r = 0; r < rows; r++)
                  for (int64_t c = 0; c < columns.count; c++) {
                    double &in_whole = d["whole"][at(r * columns.total + columns.begin + c)],
                           &in_part = d["part"][at(r * columns.count + c)];
                    put ? in_whole = in_part : in_part = in_whole;
                  }
              }};
}

Case muon_update_case(int64_t n, bool has_working, DType t, Decision decision, const StateTypes& types) {
  const Muon muon{.learning_rate = 3e-2, .weight_decay = 0.1, .size = 1.7};
  Case c{.op = "muon_update",
         .shape = fmt::format("{}{} {}", n, has_working ? " working" : "", muon_words(decision, types)),
         .dtype = t,
         .args = {out("master", types.master, {n}), out("working", t, has_working ? Shape{n} : Shape{}),
                  in("direction", f32, {n}), in("state", f64, {UpdateState::numel})},
         .run =
             [=, rounding = types.rounding](Stream& s, const Tensors& x) {
               launch(s, MuonUpdate{.master = x[0],
                                    .working = x[1],
                                    .direction = x[2],
                                    .state = x[3],
                                    .muon = muon,
                                    .rounding = rounding});
             },
         .twin =
             [=](Doubles& d) {
               for (size_t i = 0; i < at(n) && decision == Decision::update; i++) {
                 double& p = d["master"][i];
                 p = p - 3e-2 * 0.1 * p - 3e-2 * 1.7 * d["direction"][i];
                 if (types.master == bf16)
                   p = types.rounding.stochastic ? drawn_state(p, types.rounding.words(int64_t(i))[0])
                                                 : rounded(p, bf16);
                 if (has_working) d["working"][i] = p;
               }
             }};
  c.args[3].values = values_of_state(1, decision);
  return c;
}

Case transpose_case(int64_t rows, int64_t cols, DType t) {
  return {.op = "transpose",
          .shape = fmt::format("{}x{}", rows, cols),
          .dtype = t,
          .args = {out("y", t, {cols, rows}), in("x", t, {rows, cols})},
          .run = [](Stream& s, const Tensors& x) { launch(s, Transpose{.y = x[0], .x = x[1]}); },
          .twin =
              [=](Doubles& d) {
                for (int64_t r = 0; r < rows; r++)
                  for (int64_t c = 0; c < cols; c++) d["y"][at(c * rows + r)] = d["x"][at(r * cols + c)];
              }};
}

Case join_panels_case(const Panels& p, DType t) {
  return {.op = "join_panels",
          .shape = fmt::format("{} in panels of {}", p.size, p.rows),
          .dtype = t,
          .args = {out("y", t, {p.size, p.size}), in("panels", t, {p.numel()})},
          .run = [=](Stream& s, const Tensors& x) { launch(s, JoinPanels{.y = x[0], .panels = x[1], .form = p}); },
          .twin =
              [=](Doubles& d) {
                size_t next = 0;
                for (int64_t r = 0; r < p.size; r++)
                  for (int64_t c = 0; c < std::min((r / p.rows + 1) * p.rows, p.size); c++)
                    d["y"][at(r * p.size + c)] = d["y"][at(c * p.size + r)] = d["panels"][next++];
                // Within a diagonal block both elements are in the panel; the later row has overwritten the earlier.
                next = 0;
                for (int64_t r = 0; r < p.size; r++)
                  for (int64_t c = 0; c < std::min((r / p.rows + 1) * p.rows, p.size); c++)
                    d["y"][at(r * p.size + c)] = d["panels"][next++];
              }};
}

std::vector<Case> muon_momentum_cases() {
  const StateTypes random{.moments = bf16, .rounding = {.stochastic = true, .key = 5, .stream = 3, .begin = 8}};
  return {muon_momentum_case(1, Decision::update, {}), muon_momentum_case(20011, Decision::update, {}),
          muon_momentum_case(257, Decision::spike, {}), muon_momentum_case(1031, Decision::update, {.moments = bf16}),
          muon_momentum_case(1031, Decision::update, random)};
}

std::vector<Case> scale_to_unit_norm_cases() {
  std::vector<Case> all;
  for (const DType t : {f32, bf16}) {
    all.push_back(scale_to_unit_norm_case(1, 1, t, 1));
    all.push_back(scale_to_unit_norm_case(33, 7, t, 1e-6));
    all.push_back(scale_to_unit_norm_case(5, 3, t, 1e-12));
    all.push_back(scale_to_unit_norm_case(400, 129, t, 1e3));
    all.push_back(scale_to_unit_norm_case(1024, 520, t, 1));  // partial sums of more blocks than one has threads
  }
  return all;
}

std::vector<Case> newton_schulz_polynomial_cases() {
  std::vector<Case> all;
  for (const DType t : {f32, bf16})
    for (const int64_t k : {1, 7, 64, 131}) all.push_back(newton_schulz_polynomial_case(k, t));
  return all;
}

std::vector<Case> columns_cases(bool put) {
  std::vector<Case> all;
  for (const DType t : {f32, bf16})
    for (const Columns& c : {Columns{0, 1, 1}, {3, 5, 11}, {64, 64, 256}}) all.push_back(columns_case(put, 37, c, t));
  return all;
}

std::vector<Case> muon_update_cases() {
  const StateTypes narrow{.master = bf16};
  StateTypes random = narrow;
  random.rounding = {.stochastic = true, .key = 5, .stream = 3, .begin = 8};
  std::vector<Case> all{muon_update_case(1, true, f32, Decision::update, {}),
                        muon_update_case(20011, true, bf16, Decision::update, {}),
                        muon_update_case(257, true, f16, Decision::update, {}),
                        muon_update_case(257, false, f32, Decision::update, {}),
                        muon_update_case(257, true, bf16, Decision::not_finite, {}),
                        muon_update_case(257, false, bf16, Decision::update, narrow),
                        muon_update_case(1031, false, bf16, Decision::update, random)};
  for (const DType t : {f32, bf16, f16})
    for (const StateTypes& types : {narrow, random})
      all.push_back(muon_update_case(259, true, t, Decision::update, types));
  return all;
}

std::vector<Case> transpose_cases() {
  std::vector<Case> all;
  for (const DType t : {f32, bf16})
    for (const auto& [rows, cols] : {std::pair{1, 1}, {33, 7}, {5, 100}, {64, 32}, {131, 70}})
      all.push_back(transpose_case(rows, cols, t));
  return all;
}

std::vector<Case> join_panels_cases() {
  std::vector<Case> all;
  for (const DType t : {f32, bf16})
    for (const Panels& p : {Panels{1, 1}, {7, 7}, {64, 32}, {131, 32}, {160, 64}, {129, 128}})
      all.push_back(join_panels_case(p, t));
  return all;
}

}  // namespace megalith::test
