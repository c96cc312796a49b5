// Ops on whole tensors: fills, copies and sums. Shapes are compared by their number of elements. Sums do not depend on
// the number of threads: partial sums over fixed blocks, in f64, are added in order.
#pragma once

#include "kernels/stream/stream.h"
#include "kernels/tensor/columns.h"
#include "kernels/tensor/tensor.h"

namespace megalith {

// y = value; any dtype.
void fill(Stream& s, Tensor y, double value);

// y = x, converted when one is f32 and the other bf16 or f16; one may then be the front of the other's memory.
void copy(Stream& s, Tensor y, Tensor x);

// y += x; y f32, bf16, f16 or f64, x of the same dtype.
void add(Stream& s, Tensor y, Tensor x);

// y = or += the sum of the rows of x, added in f32 in order; y (n) f32 or bf16, x (R, n) bf16.
void sum_rows(Stream& s, Tensor y, Tensor x, bool add);

// out (1) f64 += scale * sum(x); x f32.
void accumulate_sum(Stream& s, Tensor out, Tensor x, double scale);

// out (1) f64 += sum(x^2); x f32.
void accumulate_square_sum(Stream& s, Tensor out, Tensor x);

// y[i] = std * normal(index in the whole parameter), a pure function of (seed, stream, index), so that any range of any
// split can be initialised anywhere. y f32 is elements [begin, begin + y.numel()) of the flattened (rows,
// columns.count) matrix of these columns of a (rows, columns.total) one; with all columns or none given, the index is
// begin + i.
void normal_fill(Stream& s, Tensor y, uint64_t seed, uint64_t stream, int64_t begin, double std, Columns columns = {});

namespace cpu {
void fill(Tensor y, double value);
void copy(Tensor y, Tensor x);
void add(Tensor y, Tensor x);
void sum_rows(Tensor y, Tensor x, bool add);
void accumulate_sum(Tensor out, Tensor x, double scale);
void accumulate_square_sum(Tensor out, Tensor x);
void normal_fill(Tensor y, uint64_t seed, uint64_t stream, int64_t begin, double std, const Columns& columns);
}  // namespace cpu
namespace cuda {
void fill(Queue queue, Tensor y, double value);
void copy(Queue queue, Tensor y, Tensor x);
void add(Queue queue, Tensor y, Tensor x);
void sum_rows(Queue queue, Tensor y, Tensor x, bool add);
void accumulate_sum(Queue queue, Tensor out, Tensor x, double scale);
void accumulate_square_sum(Queue queue, Tensor out, Tensor x);
// Uses the CPU's random words; log, sin and cos are the device's in f64, so a number may differ in the last bit.
void normal_fill(Queue queue, Tensor y, uint64_t seed, uint64_t stream, int64_t begin, double std,
                 const Columns& columns);
}  // namespace cuda

}  // namespace megalith
