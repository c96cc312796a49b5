#include "bench/kernel_rows.h"

#include "kernels/activation/gelu.h"
#include "kernels/activation/swiglu.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/rotary.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/elementwise/residual.h"
#include "kernels/embedding/embedding.h"
#include "kernels/linear/fp8.h"
#include "kernels/linear/linear.h"
#include "kernels/loss/cross_entropy.h"
#include "kernels/norm/head_norm.h"
#include "kernels/norm/layernorm.h"
#include "kernels/update/adamw.h"
#include "kernels/update/decide_update.h"

namespace megalith::bench {

namespace {

constexpr DType f32 = DType::f32, bf16 = DType::bf16;
using Launch = std::function<void()>;

void add_linear(std::vector<Row>& rows, const std::string& name, const Model& m, DType t, int64_t I, int64_t O,
                bool bias) {
  const int64_t N = m.B * m.T;
  rows.push_back({"linear_forward " + name, m.name, t, [=](Desk& d) -> Launch {
                    const Tensor y = d.tensor(t, {N, O}), x = d.tensor(t, {N, I}), w = d.tensor(t, {O, I});
                    const Tensor b = bias ? d.tensor(t, {O}) : Tensor();
                    return [=, &d] { launch(d.stream, LinearForward{.y = y, .x = x, .w = w, .b = b}); };
                  }});
  rows.push_back({"linear_backward_input " + name, m.name, t, [=](Desk& d) -> Launch {
                    const Tensor dx = d.tensor(t, {N, I}), dy = d.tensor(t, {N, O}), w = d.tensor(t, {O, I});
                    return [=, &d] { launch(d.stream, LinearBackwardInput{.dx = dx, .dy = dy, .w = w}); };
                  }});
  rows.push_back({"linear_backward_weight " + name, m.name, t, [=](Desk& d) -> Launch {
                    const Tensor dw = d.tensor(f32, {O, I}), dy = d.tensor(t, {N, O}), x = d.tensor(t, {N, I});
                    const Tensor db = bias ? d.tensor(f32, {O}) : Tensor();
                    return [=, &d] { launch(d.stream, LinearBackwardWeight{.dw = dw, .db = db, .dy = dy, .x = x}); };
                  }});
}

void add_attention(std::vector<Row>& rows, const std::string& shape, const AttentionDims& dims, DType t, double p) {
  const int64_t N = dims.B * dims.T, C = dims.H * dims.D, qkv_width = dims.qkv_width();
  const Shape by_row{dims.B, dims.H, dims.T};
  const std::string dropout = p > 0 ? " dropout" : "";
  rows.push_back(
      {"attention_forward" + dropout, shape, t, [=](Desk& d) -> Launch {
         const Tensor out = d.tensor(t, {N, C}), lse = d.tensor(f32, by_row), qkv = d.tensor(t, {N, qkv_width});
         return [=, &d] {
           launch(d.stream, AttentionForward{.out = out, .lse = lse, .qkv = qkv, .dims = dims, .dropout = {.p = p}});
         };
       }});
  rows.push_back(
      {"attention_backward" + dropout, shape, t, [=](Desk& d) -> Launch {
         const int64_t sums = attention_backward_scratch(d.stream.queue().chip, t, dims);
         const Tensor out = d.tensor(t, {N, C}), lse = d.tensor(f32, by_row), qkv = d.tensor(t, {N, qkv_width}),
                      dout = d.tensor(t, {N, C}), delta = d.tensor(f32, by_row), dqkv = d.tensor(t, {N, qkv_width}),
                      scratch = sums > 0 ? d.tensor(f32, {sums}) : Tensor{};
         launch(d.stream, AttentionForward{.out = out, .lse = lse, .qkv = qkv, .dims = dims, .dropout = {.p = p}});
         return [=, &d] {
           launch(d.stream, AttentionBackward{.dqkv = dqkv,
                                              .delta = delta,
                                              .dout = dout,
                                              .out = out,
                                              .lse = lse,
                                              .qkv = qkv,
                                              .dims = dims,
                                              .dropout = {.p = p},
                                              .scratch = scratch});
         };
       }});
}

}  // namespace

std::vector<Row> rows_of(const Model& m, DType t) {
  const int64_t N = m.B * m.T, C = m.C;
  std::vector<Row> rows;
  const auto add = [&](const std::string& op, std::function<Launch(Desk&)> setup) {
    rows.push_back({op, m.name, t, std::move(setup)});
  };
  add_linear(rows, "qkv", m, t, C, 3 * C, true);
  add_linear(rows, "proj", m, t, C, C, true);
  add_linear(rows, "up", m, t, C, 4 * C, true);
  add_linear(rows, "down", m, t, 4 * C, C, true);
  add_linear(rows, "head", m, t, C, m.columns, false);
  // GELU fused with its product, to compare with "up" forward, "down" backward and the GELU's own rows.
  add("linear_gelu_forward up", [=](Desk& d) -> Launch {
    const Tensor y = d.tensor(t, {N, 4 * C}), h = d.tensor(t, {N, 4 * C}), x = d.tensor(t, {N, C}),
                 w = d.tensor(t, {4 * C, C}), b = d.tensor(t, {4 * C});
    return [=, &d] { launch(d.stream, LinearGeluForward{.y = y, .h = h, .x = x, .w = w, .b = b}); };
  });
  add("linear_backward_input_gelu down", [=](Desk& d) -> Launch {
    const Tensor dh = d.tensor(t, {N, 4 * C}), dy = d.tensor(t, {N, C}), w = d.tensor(t, {C, 4 * C}),
                 h = d.tensor(t, {N, 4 * C});
    return [=, &d] { launch(d.stream, LinearBackwardInputGelu{.dh = dh, .dy = dy, .w = w, .h = h}); };
  });
  // The part of "up" backward_weight apart from its product.
  add("linear_backward_bias up", [=](Desk& d) -> Launch {
    const Tensor db = d.zeros(f32, {4 * C}), dy = d.tensor(t, {N, 4 * C});
    return [=, &d] { launch(d.stream, LinearBackwardBias{.db = db, .dy = dy}); };
  });
  for (double p : {0.0, 0.1}) add_attention(rows, m.name, {m.B, m.T, m.H, C / m.H}, t, p);

  add("gelu_forward", [=](Desk& d) -> Launch {
    const Tensor y = d.tensor(t, {N, 4 * C}), x = d.tensor(t, {N, 4 * C});
    return [=, &d] { launch(d.stream, GeluForward{.y = y, .x = x}); };
  });
  add("gelu_backward", [=](Desk& d) -> Launch {
    const Tensor dx = d.tensor(t, {N, 4 * C}), dy = d.tensor(t, {N, 4 * C}), x = d.tensor(t, {N, 4 * C});
    return [=, &d] { launch(d.stream, GeluBackward{.dx = dx, .dy = dy, .x = x}); };
  });
  add("layernorm_forward", [=](Desk& d) -> Launch {
    const Tensor y = d.tensor(t, {N, C}), stat = d.tensor(f32, {N, 2}), x = d.tensor(t, {N, C}), w = d.tensor(t, {C}),
                 b = d.tensor(t, {C});
    return [=, &d] { launch(d.stream, LayerNormForward{.y = y, .stat = stat, .x = x, .w = w, .b = b}); };
  });
  add("layernorm_backward", [=](Desk& d) -> Launch {
    // Accumulated in every round, for which f32 and bf16 have enough range.
    const Tensor dx = d.zeros(t, {N, C}), dw = d.zeros(f32, {C}), db = d.zeros(f32, {C}), dy = d.tensor(t, {N, C}),
                 x = d.tensor(t, {N, C}), stat = d.tensor(f32, {N, 2}), w = d.tensor(t, {C});
    return [=, &d] {
      launch(d.stream, LayerNormBackward{.dx = dx, .dw = dw, .db = db, .dy = dy, .x = x, .stat = stat, .w = w});
    };
  });
  for (double p : {0.0, 0.1}) {
    const std::string dropout = p > 0 ? " dropout" : "";
    add("residual_forward" + dropout, [=](Desk& d) -> Launch {
      const Tensor y = d.tensor(t, {N, C}), x = d.tensor(t, {N, C}), h = d.tensor(t, {N, C}), b = d.tensor(t, {C});
      return [=, &d] { launch(d.stream, ResidualForward{.y = y, .x = x, .h = h, .b = b, .dropout = {.p = p}}); };
    });
    add("residual_backward" + dropout, [=](Desk& d) -> Launch {
      const Tensor dy = d.tensor(t, {N, C}), dh = p > 0 ? d.tensor(t, {N, C}) : dy, db = d.tensor(f32, {C});
      return [=, &d] { launch(d.stream, ResidualBackward{.dh = dh, .db = db, .dy = dy, .dropout = {.p = p}}); };
    });
    add("residual_layernorm_forward" + dropout, [=](Desk& d) -> Launch {
      const Tensor y = d.tensor(t, {N, C}), ln = d.tensor(t, {N, C}), stat = d.tensor(f32, {N, 2}),
                   x = d.tensor(t, {N, C}), h = d.tensor(t, {N, C}), h_b = d.tensor(t, {C}), w = d.tensor(t, {C}),
                   b = d.tensor(t, {C});
      return [=, &d] {
        launch(d.stream,
               ResidualLayerNormForward{
                   .y = y, .ln = ln, .stat = stat, .x = x, .h = h, .h_b = h_b, .w = w, .b = b, .dropout = {.p = p}});
      };
    });
    add("residual_layernorm_backward" + dropout, [=](Desk& d) -> Launch {
      const Tensor dx = d.zeros(t, {N, C}), dh = p > 0 ? d.tensor(t, {N, C}) : dx, dh_b = d.zeros(f32, {C}),
                   dw = d.zeros(f32, {C}), db = d.zeros(f32, {C}), dln = d.tensor(t, {N, C}), y = d.tensor(t, {N, C}),
                   stat = d.tensor(f32, {N, 2}), w = d.tensor(t, {C});
      return [=, &d] {
        launch(d.stream, ResidualLayerNormBackward{.dx = dx,
                                                   .dh = dh,
                                                   .dh_b = dh_b,
                                                   .dw = dw,
                                                   .db = db,
                                                   .dln = dln,
                                                   .y = y,
                                                   .stat = stat,
                                                   .w = w,
                                                   .dropout = {.p = p}});
      };
    });
  }
  add("embedding_forward", [=](Desk& d) -> Launch {
    const Tensor y = d.tensor(t, {N, C}), wte = d.tensor(t, {m.columns, C}), wpe = d.tensor(t, {m.T, C});
    const Tensor tokens = d.tokens(N, m.V);
    return [=, &d] {
      launch(d.stream, EmbeddingForward{
                           .y = y, .tokens = tokens, .wte = wte, .wpe = wpe, .T = m.T, .part = whole_vocabulary(m.V)});
    };
  });
  add("embedding_backward", [=](Desk& d) -> Launch {
    const Tensor dwte = d.tensor(f32, {m.columns, C}), dwpe = d.tensor(f32, {m.T, C}), dy = d.tensor(t, {N, C});
    const Tensor tokens = d.tokens(N, m.V);
    return [=, &d] {
      launch(d.stream,
             EmbeddingBackward{
                 .dwte = dwte, .dwpe = dwpe, .dy = dy, .tokens = tokens, .T = m.T, .part = whole_vocabulary(m.V)});
    };
  });
  add("cross_entropy_forward", [=](Desk& d) -> Launch {
    const Tensor losses = d.tensor(f32, {N}), logits = d.tensor(t, {N, m.columns}), targets = d.tokens(N, m.V);
    return [=, &d] {
      launch(d.stream, CrossEntropyForward{
                           .losses = losses, .logits = logits, .targets = targets, .part = whole_vocabulary(m.V)});
    };
  });
  add("cross_entropy_forward_backward", [=](Desk& d) -> Launch {
    const Tensor losses = d.tensor(f32, {N}), logits = d.tensor(t, {N, m.columns}), targets = d.tokens(N, m.V);
    return [=, &d] {
      launch(d.stream, CrossEntropyForwardBackward{.losses = losses,
                                                   .logits = logits,
                                                   .targets = targets,
                                                   .part = whole_vocabulary(m.V),
                                                   .scale = 1.0 / double(N)});
    };
  });
  add("adamw_update", [=](Desk& d) -> Launch {
    const Shape shape{m.parameters};
    const Tensor master = d.tensor(f32, shape), m1 = d.tensor(f32, shape), v = d.arena.tensor(f32, shape),
                 g = d.tensor(f32, shape), state = d.zeros(DType::f64, {UpdateState::numel});
    const Tensor working = t == f32 ? Tensor() : d.tensor(t, shape);
    launch(d.stream, Fill{.y = v, .value = 1});
    launch(
        d.stream,
        DecideUpdate{.state = state, .sums = d.zeros(DType::f64, {2}), .rules = {}, .adamw = {.learning_rate = 1e-4}});
    return [=, &d] {
      launch(d.stream, AdamWUpdate{.master = master,
                                   .m = m1,
                                   .v = v,
                                   .working = working,
                                   .grad = g,
                                   .state = state,
                                   .adamw = {.learning_rate = 1e-4}});
    };
  });
  if (t == bf16) return rows;
  add("accumulate_square_sum", [=](Desk& d) -> Launch {
    const Tensor x = d.tensor(f32, {m.parameters}), out = d.zeros(DType::f64, {1});
    return [=, &d] { launch(d.stream, AccumulateSquareSum{.out = out, .x = x}); };
  });
  add("fill", [=](Desk& d) -> Launch {
    const Tensor x = d.tensor(f32, {m.parameters});
    return [=, &d] { launch(d.stream, Fill{.y = x, .value = 0}); };
  });
  add("normal_fill", [=](Desk& d) -> Launch {
    const Tensor x = d.tensor(f32, {m.parameters});
    return [=, &d] { launch(d.stream, NormalFill{.y = x, .seed = 1, .stream = 2, .begin = 0, .std = 0.02}); };
  });
  return rows;
}

// Four heads to a key-value head, as Llama 3 and Mistral have, or five where four do not divide them; SwiGLU of as many
// weights as GPT-2's feed-forward layer.
std::vector<Row> rows_of_choices(const Model& m, DType t) {
  const int64_t N = m.B * m.T, C = m.C, F = 8 * C / 3 / 64 * 64;
  const AttentionDims dims{.B = m.B, .T = m.T, .H = m.H, .D = C / m.H, .key_value_heads = m.H / (m.H % 4 == 0 ? 4 : 5)};
  const int64_t heads = dims.H + dims.kv();
  std::vector<Row> rows;
  const auto add = [&](const std::string& op, std::function<Launch(Desk&)> setup) {
    rows.push_back({op, m.name, t, std::move(setup)});
  };
  const NormRule rms{.centered = false};
  add("rmsnorm_forward", [=](Desk& d) -> Launch {
    const Tensor y = d.tensor(t, {N, C}), stat = d.tensor(f32, {N, 2}), x = d.tensor(t, {N, C}), w = d.tensor(t, {C});
    return [=, &d] { launch(d.stream, LayerNormForward{.y = y, .stat = stat, .x = x, .w = w, .rule = rms}); };
  });
  add("rmsnorm_backward", [=](Desk& d) -> Launch {
    const Tensor dx = d.zeros(t, {N, C}), dw = d.zeros(f32, {C}), dy = d.tensor(t, {N, C}), x = d.tensor(t, {N, C}),
                 stat = d.tensor(f32, {N, 2}), w = d.tensor(t, {C});
    return [=, &d] {
      launch(d.stream, LayerNormBackward{.dx = dx, .dw = dw, .dy = dy, .x = x, .stat = stat, .w = w, .rule = rms});
    };
  });
  add("residual_rmsnorm_forward", [=](Desk& d) -> Launch {
    const Tensor y = d.tensor(t, {N, C}), ln = d.tensor(t, {N, C}), stat = d.tensor(f32, {N, 2}),
                 x = d.tensor(t, {N, C}), h = d.tensor(t, {N, C}), w = d.tensor(t, {C});
    return [=, &d] {
      launch(d.stream, ResidualLayerNormForward{.y = y, .ln = ln, .stat = stat, .x = x, .h = h, .w = w, .rule = rms});
    };
  });
  add("residual_rmsnorm_backward", [=](Desk& d) -> Launch {
    const Tensor dx = d.zeros(t, {N, C}), dw = d.zeros(f32, {C}), dln = d.tensor(t, {N, C}), y = d.tensor(t, {N, C}),
                 stat = d.tensor(f32, {N, 2}), w = d.tensor(t, {C});
    return [=, &d] {
      launch(d.stream, ResidualLayerNormBackward{
                           .dx = dx, .dh = dx, .dw = dw, .dln = dln, .y = y, .stat = stat, .w = w, .rule = rms});
    };
  });
  add("swiglu_forward", [=](Desk& d) -> Launch {
    const Tensor y = d.tensor(t, {N, F}), x = d.tensor(t, {N, 2 * F});
    return [=, &d] { launch(d.stream, SwigluForward{.y = y, .x = x}); };
  });
  add("swiglu_backward", [=](Desk& d) -> Launch {
    const Tensor dx = d.tensor(t, {N, 2 * F}), dy = d.tensor(t, {N, F}), x = d.tensor(t, {N, 2 * F});
    return [=, &d] { launch(d.stream, SwigluBackward{.dx = dx, .dy = dy, .x = x}); };
  });
  for (const bool forward : {true, false})
    add(forward ? "rotate forward" : "rotate backward", [=](Desk& d) -> Launch {
      const Tensor qkv = d.tensor(t, {N, dims.qkv_width()});
      return [=, &d, turns = make_rotation(dims.D / 2, 10000, {})] {
        launch(d.stream, Rotate{.qkv = qkv, .dims = dims, .rotation = turns, .positions = {}, .forward = forward});
      };
    });
  add("head_norm_forward", [=](Desk& d) -> Launch {
    const Tensor y = d.tensor(t, {N, dims.qkv_width()}), rstd = d.tensor(f32, {N, heads}),
                 x = d.tensor(t, {N, dims.qkv_width()}), q_w = d.tensor(t, {dims.D}), k_w = d.tensor(t, {dims.D});
    return [=, &d] {
      launch(d.stream,
             HeadNormForward{.y = y, .rstd = rstd, .x = x, .q_w = q_w, .k_w = k_w, .dims = dims, .epsilon = 1e-6f});
    };
  });
  add("head_norm_backward", [=](Desk& d) -> Launch {
    const Tensor dx = d.zeros(t, {N, dims.qkv_width()}), dq_w = d.zeros(f32, {dims.D}), dk_w = d.zeros(f32, {dims.D}),
                 x = d.tensor(t, {N, dims.qkv_width()}), rstd = d.tensor(f32, {N, heads}), q_w = d.tensor(t, {dims.D}),
                 k_w = d.tensor(t, {dims.D});
    return [=, &d] {
      launch(d.stream,
             HeadNormBackward{
                 .d = dx, .dq_w = dq_w, .dk_w = dk_w, .x = x, .rstd = rstd, .q_w = q_w, .k_w = k_w, .dims = dims});
    };
  });
  add_attention(rows, std::string(m.name) + " grouped", dims, t, 0);
  return rows;
}

std::vector<Row> fp8_rows() {
  constexpr int64_t N = 8192, C = 4096, F = 14336, M = 2 * F;
  constexpr DType e4m3 = DType::e4m3, e5m2 = DType::e5m2;
  const Model model{"8B", 1, N, C, 32, 128256, 128256, 0};
  std::vector<Row> rows;
  add_linear(rows, "up", model, bf16, C, M, false);
  const auto add = [&](const std::string& op, DType type, std::function<Launch(Desk&)> setup) {
    rows.push_back({op, model.name, type, std::move(setup)});
  };
  const auto product = [&](const std::string& op, Shape y, DType of_y, Shape a, DType of_a, Shape b) {
    add("fp8_product " + op, e4m3, [=](Desk& d) -> Launch {
      const Fp8Product made{.y = d.zeros(of_y, y),
                            .a = d.tensor(of_a, a),
                            .b = d.tensor(e4m3, b),
                            .a_unscale = d.zeros(f32, {1}),
                            .b_unscale = d.zeros(f32, {1})};
      return [=, &d] { launch(d.stream, made); };
    });
  };
  product("up", {N, M}, bf16, {N, C}, e4m3, {M, C});
  product("backward_input up", {N, C}, bf16, {N, M}, e5m2, {C, M});
  product("backward_weight up", {M, C}, f32, {M, N}, e5m2, {C, N});
  for (const bool straight : {true, false})
    for (const bool transposed : {true, false}) {
      if (!straight && !transposed) continue;
      const std::string forms = straight && transposed ? "both" : straight ? "straight" : "transposed";
      add("cast_to_fp8 " + forms, bf16, [=](Desk& d) -> Launch {
        const CastToFp8 cast{.y = straight ? d.arena.tensor(e5m2, {N, M}) : Tensor{},
                             .transposed = transposed ? d.arena.tensor(e5m2, {M, N}) : Tensor{},
                             .unscale = d.zeros(f32, {1}),
                             .x = d.tensor(bf16, {N, M}),
                             .amax = d.tensor(f32, {1})};
        return [=, &d] { launch(d.stream, cast); };
      });
    }
  add("transpose_fp8", e4m3, [=](Desk& d) -> Launch {
    const TransposeFp8 of_weight{.y = d.arena.tensor(e4m3, {C, M}), .x = d.tensor(e4m3, {M, C})};
    return [=, &d] { launch(d.stream, of_weight); };
  });
  add("largest_magnitude", bf16, [=](Desk& d) -> Launch {
    const LargestMagnitude of_x{.amax = d.zeros(f32, {1}), .x = d.tensor(bf16, {N, C})};
    return [=, &d] { launch(d.stream, of_x); };
  });
  for (const bool largest : {false, true}) {
    const std::string finds = largest ? " largest" : "";
    add("swiglu_backward" + finds, bf16, [=](Desk& d) -> Launch {
      const SwigluBackward op{.dx = d.tensor(bf16, {N, M}),
                              .dy = d.tensor(bf16, {N, F}),
                              .x = d.tensor(bf16, {N, M}),
                              .largest = largest ? Largest{d.zeros(f32, {1}), N} : Largest{}};
      return [=, &d] { launch(d.stream, op); };
    });
    add("rmsnorm_forward" + finds, bf16, [=](Desk& d) -> Launch {
      const LayerNormForward op{.y = d.tensor(bf16, {N, C}),
                                .stat = d.tensor(f32, {N, 2}),
                                .x = d.tensor(bf16, {N, C}),
                                .w = d.tensor(bf16, {C}),
                                .rule = {.centered = false},
                                .largest = largest ? Largest{d.zeros(f32, {1}), N} : Largest{}};
      return [=, &d] { launch(d.stream, op); };
    });
  }
  return rows;
}

std::vector<Row> attention_rows_of_cpu(DType t) {
  std::vector<Row> rows;
  for (int64_t T : {64, 256, 1024, 2048})
    for (int64_t D : {64, 80, 128}) {
      const AttentionDims dims{2048 / T, T, 768 / D, D};
      add_attention(rows, fmt::format("B{} T{} H{} D{}", dims.B, T, dims.H, D), dims, t, 0);
      // The products of one head without a mask, for comparison.
      const std::string shape = fmt::format("T{} D{}", T, D);
      rows.push_back({"linear_forward scores", shape, t, [=](Desk& d) -> Launch {
                        const Tensor s = d.tensor(t, {T, T}), q = d.tensor(t, {T, D}), k = d.tensor(t, {T, D});
                        return [=, &d] { launch(d.stream, LinearForward{.y = s, .x = q, .w = k}); };
                      }});
      rows.push_back({"linear_backward_input values", shape, t, [=](Desk& d) -> Launch {
                        const Tensor out = d.tensor(t, {T, D}), p = d.tensor(t, {T, T}), v = d.tensor(t, {T, D});
                        return [=, &d] { launch(d.stream, LinearBackwardInput{.dx = out, .dy = p, .w = v}); };
                      }});
    }
  return rows;
}

std::vector<Row> attention_rows() {
  std::vector<Row> rows;
  for (int64_t T : {1024, 4096})
    for (int64_t D : {64, 112, 128}) {
      const AttentionDims dims{16384 / T, T, 2048 / D, D};
      for (double p : {0.0, 0.1})
        if (p == 0 || T == 1024)
          add_attention(rows, fmt::format("B{} T{} H{} D{}", dims.B, T, dims.H, D), dims, bf16, p);
    }
  // The heads of Llama 3 1B, 8B and 70B, and of Qwen 2.5 7B.
  for (const AttentionDims& dims : {AttentionDims{4, 2048, 32, 64, 0, 8}, AttentionDims{1, 8192, 32, 128, 0, 8},
                                    AttentionDims{1, 8192, 28, 128, 0, 4}, AttentionDims{1, 8192, 64, 128, 0, 8}})
    add_attention(rows, fmt::format("B{} T{} H{}/{} D{}", dims.B, dims.T, dims.H, dims.kv(), dims.D), dims, bf16, 0);
  return rows;
}

}  // namespace megalith::bench
