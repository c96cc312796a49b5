#include "kernels/gemm_cpu.h"

#include <map>
#include <oneapi/dnnl/dnnl.hpp>
#include <tuple>
#include <unordered_map>

namespace megalith::cpu {

namespace {
using Key = std::tuple<int64_t, int64_t, int64_t, bool, bool, bool, bool, DType, DType>;

Key key_of(const GemmCall& c) {
  return {c.M, c.N, c.K, c.a_transposed, c.b_transposed, c.accumulate, c.bias != nullptr, c.input, c.output};
}

dnnl::memory::data_type type_of(DType t) {
  return t == DType::bf16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

dnnl::memory::desc matrix(int64_t rows, int64_t cols, DType type, bool transposed) {
  const dnnl::memory::dims strides = transposed ? dnnl::memory::dims{1, rows} : dnnl::memory::dims{cols, 1};
  return {{rows, cols}, type_of(type), strides};
}

struct Plan {
  dnnl::matmul primitive;
  dnnl::memory a, b, c, bias;
  std::unordered_map<int, dnnl::memory> arguments;
};
}  // namespace

struct Gemm::State {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  std::map<Key, Plan> plans;

  Plan make(const GemmCall& call) {
    const auto a = matrix(call.M, call.K, call.input, call.a_transposed);
    const auto b = matrix(call.K, call.N, call.input, call.b_transposed);
    const auto c = matrix(call.M, call.N, call.output, false);
    const auto bias = matrix(1, call.N, call.input, false);
    dnnl::post_ops post;
    if (call.accumulate) post.append_sum(1.0f);
    dnnl::primitive_attr attributes;
    attributes.set_post_ops(post);
    const auto descriptor = call.bias != nullptr ? dnnl::matmul::desc(a, b, bias, c) : dnnl::matmul::desc(a, b, c);
    Plan plan;
    plan.primitive = dnnl::matmul(dnnl::matmul::primitive_desc(descriptor, attributes, engine));
    plan.a = dnnl::memory(a, engine, DNNL_MEMORY_NONE);
    plan.b = dnnl::memory(b, engine, DNNL_MEMORY_NONE);
    plan.c = dnnl::memory(c, engine, DNNL_MEMORY_NONE);
    // dnnl::memory shares its state between copies, so setting a handle later reaches the argument map too.
    plan.arguments = {{DNNL_ARG_SRC, plan.a}, {DNNL_ARG_WEIGHTS, plan.b}, {DNNL_ARG_DST, plan.c}};
    if (call.bias != nullptr) {
      plan.bias = dnnl::memory(bias, engine, DNNL_MEMORY_NONE);
      plan.arguments.emplace(DNNL_ARG_BIAS, plan.bias);
    }
    return plan;
  }
};

Gemm::Gemm() : state_(std::make_unique<State>()) {}
Gemm::~Gemm() = default;

void Gemm::run(const GemmCall& call) {
  if (call.M == 0 || call.N == 0) return;
  auto [it, is_new] = state_->plans.try_emplace(key_of(call));
  Plan& plan = it->second;
  if (is_new) plan = state_->make(call);
  plan.a.set_data_handle(const_cast<void*>(call.a));
  plan.b.set_data_handle(const_cast<void*>(call.b));
  plan.c.set_data_handle(call.c);
  if (call.bias != nullptr) plan.bias.set_data_handle(const_cast<void*>(call.bias));
  plan.primitive.execute(state_->stream, plan.arguments);
  state_->stream.wait();
}

}  // namespace megalith::cpu
