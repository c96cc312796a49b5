// Ops that do two things in one pass: their twins are those of the two, one after the other.
#include "cases.h"
#include "kernels/linear/gemm_cpu.h"
#include "kernels/linear/linear.h"

namespace megalith::test {

namespace {
// Does to `d` what a twin of other names does; the pairs are its names and ours.
using Names = std::vector<std::pair<std::string, std::string>>;
void run_twin(const std::function<void(Doubles&)>& twin, Doubles& d, const Names& in, const Names& out) {
  Doubles theirs;
  for (const auto& names : {in, out})
    for (const auto& [name, ours] : names) theirs[name] = d[ours];
  twin(theirs);
  for (const auto& [name, ours] : out) d[ours] = theirs[name];
}

// Rows of x and of w for a product that is about 1 and that 16 bits hold to the last one, so that what enters a GELU is
// known: x has about eight numbers +-1, w has +-1/4 and +-1/2. In f32 they are normal values.
Arg row_of_x(const std::string& name, DType t, int64_t N, int64_t K) {
  Arg arg = in(name, t, {N, K}, t == f32 ? 1 / std::sqrt(double(K)) : 1);
  std::mt19937_64 generator(1);
  std::bernoulli_distribution kept(std::min(1.0, 8 / double(K)));
  if (t != f32)
    for (double& v : arg.values) v = kept(generator) ? (v < 0 ? -1 : 1) : 0;
  return arg;
}
Arg row_of_w(const std::string& name, DType t, Shape shape) {
  Arg arg = in(name, t, shape);
  if (t != f32)
    for (double& v : arg.values) v = (v < 0 ? -1 : 1) * (std::abs(v) < 0.6 ? 0.25 : 0.5);
  return arg;
}
}  // namespace

Case residual_layernorm_forward_case(int64_t N, int64_t C, double p, Types t, const NormForm& form) {
  const auto residual = residual_forward_case(N, C, p, t, form.bias).twin,
             norm = layernorm_forward_case(N, C, t, form).twin;
  return {.op = "residual_layernorm_forward",
          .shape = fmt::format("{}x{} p {}{}{}", N, C, p, name_of(form), name_of(t)),
          .dtype = t.branch,
          .args = {out("y", t.residual, {N, C}), out("ln", t.branch, {N, C}), out("stat", f32, {N, 2}),
                   in("x", t.residual, {N, C}, 3, 1), in("h", t.branch, {N, C}),
                   in("h_b", t.branch, form.bias ? Shape{C} : Shape{}), in("w", t.branch, {C}, 0.5, 1),
                   in("b", t.branch, form.bias ? Shape{C} : Shape{})},
          .run =
              [=](Stream& s, const Tensors& a) {
                launch(s, ResidualLayerNormForward{.y = a[0],
                                                   .ln = a[1],
                                                   .stat = a[2],
                                                   .x = a[3],
                                                   .h = a[4],
                                                   .h_b = a[5],
                                                   .w = a[6],
                                                   .b = a[7],
                                                   .dropout = mask_of(p),
                                                   .rule = form.rule,
                                                   .largest = largest_found()});
              },
          .twin =
              [=](Doubles& d) {
                run_twin(residual, d, {{"x", "x"}, {"h", "h"}, {"b", "h_b"}}, {{"y", "y"}});
                d["stored"] = d["y"];
                if (t.residual != f32)
                  for (double& v : d["stored"]) v = rounded(v, t.residual);
                run_twin(norm, d, {{"x", "stored"}, {"w", "w"}, {"b", "b"}}, {{"y", "ln"}, {"stat", "stat"}});
              }};
}

Case residual_layernorm_backward_case(int64_t N, int64_t C, double p, Types t, const NormForm& form) {
  const auto norm = layernorm_backward_case(N, C, t, form).twin,
             residual = residual_backward_case(N, C, p, f32, form.bias).twin;
  Case c{.op = "residual_layernorm_backward",
         .shape = fmt::format("{}x{} p {}{}{}", N, C, p, name_of(form), name_of(t)),
         .dtype = t.branch,
         .args = {out("dx", t.residual, {N, C}), out("dh", t.branch, {N, C}),
                  out("dh_b", f32, form.bias ? Shape{C} : Shape{}), out("dw", f32, {C}),
                  out("db", f32, form.bias ? Shape{C} : Shape{}), in("dln", t.branch, {N, C}),
                  in("y", t.residual, {N, C}, 3, 1), in("stat", f32, {N, 2}), in("w", t.branch, {C}, 0.5, 1)},
         .run =
             [=](Stream& s, const Tensors& a) {
               launch(s, ResidualLayerNormBackward{.dx = a[0],
                                                   .dh = a[1],
                                                   .dh_b = a[2],
                                                   .dw = a[3],
                                                   .db = a[4],
                                                   .dln = a[5],
                                                   .y = a[6],
                                                   .stat = a[7],
                                                   .w = a[8],
                                                   .dropout = mask_of(p),
                                                   .rule = form.rule});
             },
         .twin =
             [=](Doubles& d) {
               run_twin(norm, d, {{"dy", "dln"}, {"x", "y"}, {"stat", "stat"}, {"w", "w"}},
                        {{"dx", "dx"}, {"dw", "dw"}, {"db", "db"}});
               run_twin(residual, d, {{"dy", "dx"}}, {{"dh", "dh"}, {"db", "dh_b"}});
             },
         .accumulates = {"dx", "dh_b", "dw", "db"}};
  const Case of_norm = layernorm_backward_case(N, C, t, form);  // dln, y and the statistics of y are its
  for (size_t i : {0, 1, 2}) c.args[5 + i].values = of_norm.args[3 + i].values;
  return c;
}

Case linear_gelu_forward_case(int64_t N, int64_t I, int64_t O, DType t) {
  const auto linear = linear_forward_case(N, I, O, true, t).twin, gelu = gelu_forward_case(N, O, t).twin;
  return {.op = "linear_gelu_forward",
          .shape = fmt::format("{}x{} to {}", N, I, O),
          .dtype = t,
          .args = {out("y", t, {N, O}), out("h", t, {N, O}), row_of_x("x", t, N, I), row_of_w("w", t, {O, I}),
                   row_of_w("b", t, {O})},
          .run =
              [](Stream& s, const Tensors& a) {
                launch(s, LinearGeluForward{.y = a[0], .h = a[1], .x = a[2], .w = a[3], .b = a[4]});
              },
          .twin =
              [=](Doubles& d) {
                run_twin(linear, d, {{"x", "x"}, {"w", "w"}, {"b", "b"}}, {{"y", "h"}});
                run_twin(gelu, d, {{"x", "h"}}, {{"y", "y"}});
              },
          .same_for_any_threads = t != bf16 || !cpu::has_fast_bf16()};
}

Case linear_backward_input_gelu_case(int64_t N, int64_t I, int64_t O, DType t) {
  const auto linear = linear_backward_input_case(N, I, O, t).twin, gelu = gelu_backward_case(N, I, t).twin;
  return {
      .op = "linear_backward_input_gelu",
      .shape = fmt::format("{}x{} to {}", N, I, O),
      .dtype = t,
      .args = {out("dh", t, {N, I}), row_of_x("dy", t, N, O), row_of_w("w", t, {O, I}), in("h", t, {N, I}, 2)},
      .run = [](Stream& s,
                const Tensors& a) { launch(s, LinearBackwardInputGelu{.dh = a[0], .dy = a[1], .w = a[2], .h = a[3]}); },
      .twin =
          [=](Doubles& d) {
            run_twin(linear, d, {{"dy", "dy"}, {"w", "w"}}, {{"dx", "dh"}});
            d["product"] = d["dh"];
            run_twin(gelu, d, {{"dy", "product"}, {"x", "h"}}, {{"dx", "dh"}});
          },
      .same_for_any_threads = t != bf16 || !cpu::has_fast_bf16()};
}

}  // namespace megalith::test
