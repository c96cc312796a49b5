// Ops that do two things in one pass: their twins are those of the two, one after the other.
#include "cases.h"
#include "kernels/layernorm.h"

namespace megalith::test {

namespace {
constexpr DType f32 = DType::f32;

// What a twin of other names does to `d`: pairs of its names and ours.
using Names = std::vector<std::pair<std::string, std::string>>;
void run_twin(const std::function<void(Doubles&)>& twin, Doubles& d, const Names& in, const Names& out) {
  Doubles theirs;
  for (const auto& names : {in, out})
    for (const auto& [name, ours] : names) theirs[name] = d[ours];
  twin(theirs);
  for (const auto& [name, ours] : out) d[ours] = theirs[name];
}
}  // namespace

Case residual_layernorm_forward_case(int64_t N, int64_t C, double p, DType t) {
  const auto residual = residual_forward_case(N, C, p, t).twin, norm = layernorm_forward_case(N, C, t).twin;
  return {.op = "residual_layernorm_forward",
          .shape = fmt::format("{}x{} p {}", N, C, p),
          .dtype = t,
          .args = {out("y", t, {N, C}), out("ln", t, {N, C}), out("stat", f32, {N, 2}), in("x", t, {N, C}, 3, 1),
                   in("h", t, {N, C}), in("h_b", t, {C}), in("w", t, {C}, 0.5, 1), in("b", t, {C})},
          .run =
              [p](Stream& s, const Tensors& a) {
                residual_layernorm_forward(s, a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], mask_of(p));
              },
          .twin =
              [=](Doubles& d) {
                run_twin(residual, d, {{"x", "x"}, {"h", "h"}, {"b", "h_b"}}, {{"y", "y"}});
                d["stored"] = d["y"];
                if (t != f32)
                  for (double& v : d["stored"]) v = rounded(v, t);
                run_twin(norm, d, {{"x", "stored"}, {"w", "w"}, {"b", "b"}}, {{"y", "ln"}, {"stat", "stat"}});
              }};
}

Case residual_layernorm_backward_case(int64_t N, int64_t C, double p, DType t) {
  const auto norm = layernorm_backward_case(N, C, t).twin, residual = residual_backward_case(N, C, p, f32).twin;
  Case c{.op = "residual_layernorm_backward",
         .shape = fmt::format("{}x{} p {}", N, C, p),
         .dtype = t,
         .args = {out("dx", t, {N, C}), out("dh", t, {N, C}), out("dh_b", f32, {C}), out("dw", f32, {C}),
                  out("db", f32, {C}), in("dln", t, {N, C}), in("y", t, {N, C}, 3, 1), in("stat", f32, {N, 2}),
                  in("w", t, {C}, 0.5, 1)},
         .run =
             [p](Stream& s, const Tensors& a) {
               residual_layernorm_backward(s, a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], mask_of(p));
             },
         .twin =
             [=](Doubles& d) {
               run_twin(norm, d, {{"dy", "dln"}, {"x", "y"}, {"stat", "stat"}, {"w", "w"}},
                        {{"dx", "dx"}, {"dw", "dw"}, {"db", "db"}});
               run_twin(residual, d, {{"dy", "dx"}}, {{"dh", "dh"}, {"db", "dh_b"}});
             },
         .accumulates = {"dx", "dh_b", "dw", "db"}};
  const Case of_norm = layernorm_backward_case(N, C, t);  // dln, y and the statistics of y are its
  for (size_t i : {0, 1, 2}) c.args[5 + i].values = of_norm.args[3 + i].values;
  return c;
}

}  // namespace megalith::test
