// Every backward op against central differences of the forward twin, in doubles: L = sum of dy * y, and an argument dX
// of the backward op must be dL/dX.
#include <gtest/gtest.h>

#include "cases.h"

namespace megalith::test {
namespace {

// Arguments go by name: what the backward op calls x is the forward op's x (or its result, such as stat), what it reads
// as dy is the weight of y in L, and what it writes as dx is compared.
void check_gradient(const Case& forward, Case backward) {
  SCOPED_TRACE(backward.name());
  Doubles at_x = doubles(forward);
  forward.twin(at_x);
  std::map<std::string, const Arg*> names;
  for (const Arg& arg : forward.args) names[arg.name] = &arg;
  std::string result;
  Values weights;
  for (Arg& arg : backward.args) {
    if (names.contains(arg.name))
      for (size_t i = 0; i < arg.values.size(); i++) arg.values[i] = rounded(at_x[arg.name][i], arg.dtype);
    if (!arg.written && arg.name[0] == 'd') result = arg.name.substr(1), weights = arg.values;
  }
  ASSERT_TRUE(names.contains(result)) << result;

  Memories memories(backward, 0);
  Stream s(World::cpu);
  backward.run(s, memories.tensors());
  const auto loss = [&](const std::string& name, size_t i, double step) {
    Doubles d = doubles(forward);
    d[name][i] += step;
    forward.twin(d);
    double sum = 0;
    for (size_t k = 0; k < weights.size(); k++) sum += weights[k] * d[result][k];
    return sum;
  };
  int compared = 0;
  for (size_t a = 0; a < backward.args.size(); a++) {
    const Arg& arg = backward.args[a];
    if (!arg.written || arg.scratch) continue;
    const std::string name = arg.name.substr(1);
    ASSERT_TRUE(names.contains(name)) << arg.name;
    const bool accumulates = backward.accumulates.contains(arg.name);
    for (int64_t i = 0; i < arg.shape.numel(); i++) {
      const double step = 1e-4;
      const double want = (loss(name, size_t(i), step) - loss(name, size_t(i), -step)) / (2 * step);
      const double got = memories.memory[a].get(i) - (accumulates ? arg.values[size_t(i)] : 0);
      ASSERT_NEAR(got, want, 2e-5 * (1 + std::abs(want))) << arg.name << "[" << i << "]";
      compared++;
    }
  }
  EXPECT_GT(compared, 0);
}

TEST(Gradients, Gelu) {
  for (const GeluForm form : {GeluForm::tanh, GeluForm::erf})
    check_gradient(gelu_forward_case(3, 7, f32, form), gelu_backward_case(3, 7, f32, form));
}
TEST(Gradients, SwiGlu) { check_gradient(swiglu_forward_case(3, 7, f32), swiglu_backward_case(3, 7, f32)); }
TEST(Gradients, LayerNorm) {
  check_gradient(layernorm_forward_case(5, 7, f32), layernorm_backward_case(5, 7, f32));
  check_gradient(layernorm_forward_case(2, 33, f32), layernorm_backward_case(2, 33, f32));
  check_gradient(layernorm_forward_case(5, 7, f32, rms_form), layernorm_backward_case(5, 7, f32, rms_form));
}
TEST(Gradients, Linear) {
  check_gradient(linear_forward_case(5, 7, 3, true, f32), linear_backward_input_case(5, 7, 3, f32));
  check_gradient(linear_forward_case(5, 7, 3, true, f32), linear_backward_weight_case(5, 7, 3, true, f32));
}
TEST(Gradients, Embedding) {
  check_gradient(embedding_forward_case(2, 3, 5, whole_vocabulary(4), 2, f32),
                 embedding_backward_case(2, 3, 5, whole_vocabulary(4), 2, f32));
  check_gradient(embedding_forward_case(2, 7, 5, whole_vocabulary(4), 2, f32, {2, 1, 3}),
                 embedding_backward_case(2, 7, 5, whole_vocabulary(4), 2, f32, {2, 1, 3}));
}
TEST(Gradients, Residual) {
  check_gradient(residual_forward_case(4, 7, 0, f32), residual_backward_case(4, 7, 0, f32));
  check_gradient(residual_forward_case(4, 7, 0.3, f32), residual_backward_case(4, 7, 0.3, f32));
}
// The gradient that dx already holds is the twin's affair; here it is 0.
TEST(Gradients, ResidualLayerNorm) {
  for (double p : {0.0, 0.3}) {
    Case backward = residual_layernorm_backward_case(5, 7, p, f32);
    std::fill(backward.args[0].values.begin(), backward.args[0].values.end(), 0);
    check_gradient(residual_layernorm_forward_case(5, 7, p, f32), backward);
    backward = residual_layernorm_backward_case(5, 7, p, f32, rms_form);
    std::fill(backward.args[0].values.begin(), backward.args[0].values.end(), 0);
    check_gradient(residual_layernorm_forward_case(5, 7, p, f32, rms_form), backward);
  }
}
TEST(Gradients, LinearOfGelu) {
  const int64_t N = 5, I = 7, O = 3;
  Case forward = linear_forward_case(N, I, O, false, f32);
  forward.args.push_back(in("h", f32, {N, I}, 2));
  const auto gelu = gelu_forward_case(N, I, f32).twin, linear = forward.twin;
  forward.twin = [=](Doubles& d) {
    Doubles inner;
    inner["x"] = d["h"];
    inner["y"] = d["h"];
    gelu(inner);
    d["x"] = inner["y"];
    linear(d);
  };
  check_gradient(forward, linear_backward_input_gelu_case(N, I, O, f32));
}
TEST(Gradients, Attention) {
  for (double p : {0.0, 0.3})
    for (const AttentionDims& dims : {AttentionDims{1, 1, 1, 3}, {2, 5, 2, 3}, {1, 9, 1, 7}, {2, 5, 6, 3, 0, 2}})
      for (const Documents& documents : {Documents{}, {2, 1, 4}})
        check_gradient(attention_forward_case(dims, p, f32, documents),
                       attention_backward_case(dims, p, f32, documents));
}

TEST(Gradients, CrossEntropy) {
  const Case forward = cross_entropy_forward_case(5, 7, 2, f32);
  const Case both = cross_entropy_forward_backward_case(5, 7, 2, f32);
  Memories memories(both, 0);
  Stream s(World::cpu);
  both.run(s, memories.tensors());
  const auto loss = [&](size_t i, double step) {
    Doubles d = doubles(forward);
    d["logits"][i] += step;
    forward.twin(d);
    double sum = 0;
    for (double v : d["losses"]) sum += v;
    return sum;
  };
  for (size_t i = 0; i < 5 * 9; i++)  // the case's scale is 1/8
    EXPECT_NEAR(memories.memory[1].get(int64_t(i)), (loss(i, 1e-4) - loss(i, -1e-4)) / 2e-4 / 8, 1e-6) << i;
}

}  // namespace
}  // namespace megalith::test
