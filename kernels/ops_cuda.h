// The CUDA implementations behind the ops, in the .cu files. Arguments are as in X.h and were checked by X.cpp, as for
// ops_cpu.h; tensors lie in device memory. A call enqueues and returns; nothing here waits for the device.
// A device cannot throw: a token or a target beyond the vocabulary gives a row, or a loss, of NaN, never a wrong
// number. What they share: f32 and bf16 storage, arithmetic in f32, sums in an order that depends on shapes only (no
// float atomics), 16 bytes an access where shape and alignment allow and a plain path where not. Kernels are written as
// device_cuda.h says.
#pragma once

#include "kernels/adamw.h"
#include "kernels/attention.h"
#include "kernels/dropout.h"
#include "kernels/elementwise.h"
#include "kernels/queue_cuda.h"
#include "kernels/tensor.h"
#include "kernels/vocabulary.h"

namespace megalith::cuda {

void fill(Queue queue, Tensor y, double value);
void copy(Queue queue, Tensor y, Tensor x);
void add(Queue queue, Tensor y, Tensor x);
void accumulate_sum(Queue queue, Tensor out, Tensor x, double scale);
void accumulate_square_sum(Queue queue, Tensor out, Tensor x);
void clip_scale(Queue queue, Tensor scale, Tensor square_sum, double max_norm);
// The CPU's random words; log, sin and cos are those of the device in f64, so that a number may differ in the last bit.
void normal_fill(Queue queue, Tensor y, uint64_t seed, uint64_t stream, int64_t begin, double std,
                 const Columns& columns);

void embedding_forward(Queue queue, Tensor y, Tensor tokens, Tensor wte, Tensor wpe, int64_t T,
                       const VocabularyPart& part);
void embedding_backward(Queue queue, Tensor dwte, Tensor dwpe, Tensor dy, Tensor tokens, int64_t T,
                        const VocabularyPart& part);

void layernorm_forward(Queue queue, Tensor y, Tensor stat, Tensor x, Tensor w, Tensor b);
void layernorm_backward(Queue queue, Tensor dx, Tensor dw, Tensor db, Tensor dy, Tensor x, Tensor stat, Tensor w);
void residual_layernorm_forward(Queue queue, Tensor y, Tensor ln, Tensor stat, Tensor x, Tensor h, Tensor h_b, Tensor w,
                                Tensor b, const Dropout& d);
void residual_layernorm_backward(Queue queue, Tensor dx, Tensor dh, Tensor dh_b, Tensor dw, Tensor db, Tensor dln,
                                 Tensor y, Tensor stat, Tensor w, const Dropout& d);

void linear_forward(Queue queue, Tensor y, Tensor x, Tensor w, Tensor b);
void linear_backward_input(Queue queue, Tensor dx, Tensor dy, Tensor w);
void linear_gelu_forward(Queue queue, Tensor y, Tensor h, Tensor x, Tensor w, Tensor b);
void linear_backward_input_gelu(Queue queue, Tensor dh, Tensor dy, Tensor w, Tensor h);
void linear_backward_weight(Queue queue, Tensor dw, Tensor db, Tensor dy, Tensor x);
// out (C) f32 += the sums of the columns of x (N, C).
void add_column_sums(Queue queue, Tensor out, Tensor x);

void attention_forward(Queue queue, Tensor out, Tensor lse, Tensor qkv, const AttentionDims& dims, const Dropout& d);
void attention_backward(Queue queue, Tensor dqkv, Tensor delta, Tensor dout, Tensor out, Tensor lse, Tensor qkv,
                        const AttentionDims& dims, const Dropout& d);

void gelu_forward(Queue queue, Tensor y, Tensor x);
void gelu_backward(Queue queue, Tensor dx, Tensor dy, Tensor x);

// The masks are the CPU's.
void dropout(Queue queue, Tensor y, Tensor x, const Dropout& d);
void residual_forward(Queue queue, Tensor y, Tensor x, Tensor h, Tensor b, const Dropout& d);
void residual_backward(Queue queue, Tensor dh, Tensor db, Tensor dy, const Dropout& d);

void cross_entropy_forward(Queue queue, Tensor losses, Tensor logits, Tensor targets, const VocabularyPart& part);
void cross_entropy_forward_backward(Queue queue, Tensor losses, Tensor logits, Tensor targets,
                                    const VocabularyPart& part, double scale);
void softmax_part(Queue queue, Tensor stats, Tensor logits, Tensor targets, const VocabularyPart& part);
void merge_softmax(Queue queue, Tensor stats, Tensor max);
void cross_entropy_loss(Queue queue, Tensor losses, Tensor stats, Tensor targets);
void cross_entropy_gradient(Queue queue, Tensor logits, Tensor stats, Tensor targets, const VocabularyPart& part,
                            double scale);

void adamw_update(Queue queue, Tensor master, Tensor m, Tensor v, Tensor working, Tensor grad, Tensor scale,
                  const AdamW& a);

}  // namespace megalith::cuda
