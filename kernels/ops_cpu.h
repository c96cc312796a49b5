// The CPU implementations behind the ops, one X_cpu.cpp each. Arguments are as in X.h and were checked by X.cpp.
// What they share: f32 and bf16 storage, arithmetic in f32, and the same bits for any number of threads and wherever
// the memory lies (GEMM in native bf16 apart: gemm_cpu.h).
#pragma once

#include "kernels/adamw.h"
#include "kernels/attention.h"
#include "kernels/dropout.h"
#include "kernels/elementwise.h"
#include "kernels/tensor.h"
#include "kernels/vocabulary.h"

namespace megalith::cpu {

class Gemm;

void fill(Tensor y, double value);
void copy(Tensor y, Tensor x);
void add(Tensor y, Tensor x);
void accumulate_sum(Tensor out, Tensor x, double scale);
void accumulate_square_sum(Tensor out, Tensor x);
void clip_scale(Tensor scale, Tensor square_sum, double max_norm);
void normal_fill(Tensor y, uint64_t seed, uint64_t stream, int64_t begin, double std, const Columns& columns);

void embedding_forward(Tensor y, Tensor tokens, Tensor wte, Tensor wpe, int64_t T, const VocabularyPart& part);
void embedding_backward(Tensor dwte, Tensor dwpe, Tensor dy, Tensor tokens, int64_t T, const VocabularyPart& part);

void layernorm_forward(Tensor y, Tensor stat, Tensor x, Tensor w, Tensor b);
void layernorm_backward(Tensor dx, Tensor dw, Tensor db, Tensor dy, Tensor x, Tensor stat, Tensor w);
void residual_layernorm_forward(Tensor y, Tensor ln, Tensor stat, Tensor x, Tensor h, Tensor h_b, Tensor w, Tensor b,
                                const Dropout& d);
void residual_layernorm_backward(Tensor dx, Tensor dh, Tensor dh_b, Tensor dw, Tensor db, Tensor dln, Tensor y,
                                 Tensor stat, Tensor w, const Dropout& d);

void linear_forward(Gemm& gemm, Tensor y, Tensor x, Tensor w, Tensor b);
void linear_backward_input(Gemm& gemm, Tensor dx, Tensor dy, Tensor w);
void linear_gelu_forward(Gemm& gemm, Tensor y, Tensor h, Tensor x, Tensor w, Tensor b);
void linear_backward_input_gelu(Gemm& gemm, Tensor dh, Tensor dy, Tensor w, Tensor h);
void linear_backward_weight(Gemm& gemm, Tensor dw, Tensor db, Tensor dy, Tensor x);

void gelu_forward(Tensor y, Tensor x);
void gelu_backward(Tensor dx, Tensor dy, Tensor x);

void dropout(Tensor y, Tensor x, const Dropout& d);
void residual_forward(Tensor y, Tensor x, Tensor h, Tensor b, const Dropout& d);
void residual_backward(Tensor dh, Tensor db, Tensor dy, const Dropout& d);

void attention_forward(Tensor out, Tensor lse, Tensor qkv, const AttentionDims& dims, const Dropout& d);
void attention_backward(Tensor dqkv, Tensor delta, Tensor dout, Tensor out, Tensor lse, Tensor qkv,
                        const AttentionDims& dims, const Dropout& d);

void cross_entropy_forward(Tensor losses, Tensor logits, Tensor targets, const VocabularyPart& part);
void cross_entropy_forward_backward(Tensor losses, Tensor logits, Tensor targets, const VocabularyPart& part,
                                    double scale);
void softmax_part(Tensor stats, Tensor logits, Tensor targets, const VocabularyPart& part);
void merge_softmax(Tensor stats, Tensor max);
void cross_entropy_loss(Tensor losses, Tensor stats, Tensor targets);
void cross_entropy_gradient(Tensor logits, Tensor stats, Tensor targets, const VocabularyPart& part, double scale);

void adamw_update(Tensor master, Tensor m, Tensor v, Tensor working, Tensor grad, Tensor scale, const AdamW& a);

}  // namespace megalith::cpu
