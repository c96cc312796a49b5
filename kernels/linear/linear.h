// A linear layer, weights stored (out, in):  y = x w^T + b.  GEMMs come from a library; sums are in f32. A GELU before
// or after the layer is part of the op. In backward a library may fuse the two; in forward it may not, since
// recomputing the GELU from its stored input must give the same bits.
#pragma once

#include "kernels/stream/stream.h"
#include "kernels/tensor/tensor.h"

namespace megalith {

// In each op the tensors in a compute type are all f32, all bf16 or all f16.

// y = x w^T + b.
struct LinearForward {
  static constexpr const char* name = "linear_forward";
  Tensor y;    // (N, O), written
  Tensor x;    // (N, I)
  Tensor w;    // (O, I)
  Tensor b{};  // (O); empty: none
};

// h = x w^T + b and y = gelu(h), where gelu reads the stored h: the same bits as GeluForward.
struct LinearGeluForward {
  static constexpr const char* name = "linear_gelu_forward";
  Tensor y, h;  // (N, O), written
  Tensor x, w;
  Tensor b{};
};

// dx = dy w.
struct LinearBackwardInput {
  static constexpr const char* name = "linear_backward_input";
  Tensor dx;  // (N, I), written
  Tensor dy;  // (N, O)
  Tensor w;   // (O, I)
};

// dh = (dy w) * gelu'(h), where x = gelu(h).
struct LinearBackwardInputGelu {
  static constexpr const char* name = "linear_backward_input_gelu";
  Tensor dh;  // (N, I), written
  Tensor dy, w;
  Tensor h;  // (N, I)
};

// db += sum_n dy.
struct LinearBackwardBias {
  static constexpr const char* name = "linear_backward_bias";
  Tensor db;  // (O) f32, accumulates
  Tensor dy;  // (N, O); f32, bf16 or f16
};

// dw += dy^T x, or without `add`, dw = dy^T x and dw is not read. Also computes LinearBackwardBias unless db is empty:
// as an op of its own, except for shapes whose table (kernels/linear/gemm_table.h) says that the fused product is
// faster.
struct LinearBackwardWeight {
  static constexpr const char* name = "linear_backward_weight";
  Tensor dw;    // (O, I) f32, accumulates or is written
  Tensor db{};  // (O) f32, accumulates
  Tensor dy;    // (N, O)
  Tensor x;     // (N, I)
  bool add = true;
};

void launch(Stream& s, const LinearForward& op);
void launch(Stream& s, const LinearGeluForward& op);
void launch(Stream& s, const LinearBackwardInput& op);
void launch(Stream& s, const LinearBackwardInputGelu& op);
void launch(Stream& s, const LinearBackwardBias& op);
void launch(Stream& s, const LinearBackwardWeight& op);
namespace cpu {
void run(Queue& queue, const LinearForward& op);
void run(Queue& queue, const LinearGeluForward& op);
void run(Queue& queue, const LinearBackwardInput& op);
void run(Queue& queue, const LinearBackwardInputGelu& op);
void run(Queue& queue, const LinearBackwardBias& op);
void run(Queue& queue, const LinearBackwardWeight& op);
}  // namespace cpu
namespace cuda {
void run(Queue queue, const LinearForward& op);
void run(Queue queue, const LinearGeluForward& op);
void run(Queue queue, const LinearBackwardInput& op);
void run(Queue queue, const LinearBackwardInputGelu& op);
void run(Queue queue, const LinearBackwardBias& op);
void run(Queue queue, const LinearBackwardWeight& op);
// Returns whether to fuse the bias gradient into the weight gradient's product. Only then may that product get db.
bool sums_bias_gradient(const Queue& queue, const LinearBackwardWeight& op);
// db += the floats at the beginning of the workspace.
void finish_bias_gradient(Queue queue, Tensor db);
}  // namespace cuda

}  // namespace megalith
