// The CUDA implementations behind the ops, in the .cu files. Arguments are as in X.h and were checked by X.cpp, as for
// ops_cpu.h; tensors lie in device memory. A call enqueues and returns; nothing here waits for the device.
// What they share: f32 and bf16 storage, arithmetic in f32, sums in an order that depends on shapes only (no float
// atomics), 16 bytes an access where shape and alignment allow and a plain path where not.
// Kernels are written as device_cuda.h says.
#pragma once

#include "kernels/queue_cuda.h"
#include "kernels/tensor.h"

namespace megalith::cuda {

void fill(Queue queue, Tensor y, double value);
void copy(Queue queue, Tensor y, Tensor x);
void add(Queue queue, Tensor y, Tensor x);

void layernorm_forward(Queue queue, Tensor y, Tensor stat, Tensor x, Tensor w, Tensor b);
void layernorm_backward(Queue queue, Tensor dx, Tensor dw, Tensor db, Tensor dy, Tensor x, Tensor stat, Tensor w);

void linear_forward(Queue queue, Tensor y, Tensor x, Tensor w, Tensor b);
void linear_backward_input(Queue queue, Tensor dx, Tensor dy, Tensor w);
void linear_backward_weight(Queue queue, Tensor dw, Tensor db, Tensor dy, Tensor x);
// out (C) f32 += the sums of the columns of x (N, C).
void add_column_sums(Queue queue, Tensor out, Tensor x);

}  // namespace megalith::cuda
