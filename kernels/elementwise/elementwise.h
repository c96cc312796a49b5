// Ops on whole tensors: fills, copies and sums. Shapes are compared by their number of elements. Sums do not depend on
// the number of threads: partial sums over fixed blocks, in f64, are added in order.
#pragma once

#include "kernels/stream/stream.h"
#include "kernels/tensor/columns.h"
#include "kernels/tensor/tensor.h"

namespace megalith {

// y = value; any dtype except those of 8 bits.
struct Fill {
  static constexpr const char* name = "fill";
  Tensor y;  // written
  double value;
};

// y = x, converted when one is f32 and the other bf16 or f16; one may then be the front of the other's memory. Types of
// 8 bits have an even number of elements from an even address on.
struct Copy {
  static constexpr const char* name = "copy";
  Tensor y;  // written
  Tensor x;
};

// y += x.
struct Add {
  static constexpr const char* name = "add";
  Tensor y;  // accumulates; f32, bf16, f16 or f64
  Tensor x;  // same dtype as y
};

// y = the sum of the rows of x, added in f32 in order.
struct SumRows {
  static constexpr const char* name = "sum_rows";
  Tensor y;  // (n) f32 or bf16; written, or accumulates if `add`
  Tensor x;  // (R, n) bf16
  bool add;
};

// out += scale * sum(x).
struct AccumulateSum {
  static constexpr const char* name = "accumulate_sum";
  Tensor out;  // (1) f64, accumulates
  Tensor x;    // f32
  double scale;
};

// out += sum(x^2).
struct AccumulateSquareSum {
  static constexpr const char* name = "accumulate_square_sum";
  Tensor out;  // (1) f64, accumulates
  Tensor x;    // f32
};

// y[i] = std * normal(index in the whole parameter), a pure function of (seed, stream, index), so that any range of any
// split can be initialised anywhere. y holds elements [begin, begin + y.numel()) of the flattened (rows, columns.count)
// part of a (rows, columns.total) matrix. With all columns, or if no columns are given, the index is begin + i. GPUs
// use the CPU's random words; their log, sin and cos in f64 may make a number differ in the last bit.
struct NormalFill {
  static constexpr const char* name = "normal_fill";
  Tensor y;  // f32, written
  uint64_t seed, stream;
  int64_t begin;
  double std;
  Columns columns{};
};

void launch(Stream& s, const Fill& op);
void launch(Stream& s, const Copy& op);
void launch(Stream& s, const Add& op);
void launch(Stream& s, const SumRows& op);
void launch(Stream& s, const AccumulateSum& op);
void launch(Stream& s, const AccumulateSquareSum& op);
void launch(Stream& s, const NormalFill& op);
namespace cpu {
void run(Queue& queue, const Fill& op);
void run(Queue& queue, const Copy& op);
void run(Queue& queue, const Add& op);
void run(Queue& queue, const SumRows& op);
void run(Queue& queue, const AccumulateSum& op);
void run(Queue& queue, const AccumulateSquareSum& op);
void run(Queue& queue, const NormalFill& op);
}  // namespace cpu
namespace cuda {
void run(Queue queue, const Fill& op);
void run(Queue queue, const Copy& op);
void run(Queue queue, const Add& op);
void run(Queue queue, const SumRows& op);
void run(Queue queue, const AccumulateSum& op);
void run(Queue queue, const AccumulateSquareSum& op);
void run(Queue queue, const NormalFill& op);
}  // namespace cuda

}  // namespace megalith
