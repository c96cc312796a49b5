// Softmax and cross-entropy over the vocabulary, fused:
//   losses[n] = log(sum_v exp(z[n, v])) - z[n, target],  dz[n, v] = scale * (softmax(z[n])[v] - [v == target]).
// A row whose target is -1 has loss and gradient 0. Padding columns (vocabulary.h) are never read; their gradient is 0.
#pragma once

#include "kernels/stream/stream.h"
#include "kernels/tensor/tensor.h"
#include "kernels/tensor/vocabulary.h"

namespace megalith {

// The factor of gradients: a number times, unless they are empty, two in device memory, (1) f64 each.
struct GradientScale {
  double factor;
  Tensor in_memory, also_in_memory;
  GradientScale(double f, Tensor m = {}, Tensor n = {}) : factor(f), in_memory(m), also_in_memory(n) {}
};

// The whole vocabulary: every token has its column here, part.count == part.total.

// Writes losses (N) f32; logits (N, at least part.count) f32, bf16 or f16 are read only; targets (N) i32, -1 or a
// token.
void cross_entropy_forward(Stream& s, Tensor losses, Tensor logits, Tensor targets, VocabularyPart part);

// The same, and overwrites the logits with their gradient: no second (N, V) tensor exists, nor an f32 copy.
void cross_entropy_forward_backward(Stream& s, Tensor losses, Tensor logits, Tensor targets, VocabularyPart part,
                                    const GradientScale& scale);

// A divided vocabulary: each part holds the logits of its tokens, and all agree through stats (3, N) f32:
//   row 0  the largest logit, row 1  the sum of exp(z - row 0), row 2  the target's logit.
// The order is
//   softmax_part            stats of the tokens held here
//   (maximum over parts)    of a copy of row 0: never NaN, which is not ordered
//   merge_softmax           the sums become relative to that maximum
//   (sum over parts)        of rows 1 and 2: stats of the whole vocabulary, the same in every part
//   cross_entropy_loss, cross_entropy_gradient
// With one part each step gives the same bits as the whole ops. NaN and infinite logits reach the loss as there.
// Source: Shoeybi et al., Megatron-LM, arXiv 1909.08053, section 3; Milakov and Gimelshein, Online normalizer
// calculation for softmax, arXiv 1805.02867.

// Writes stats from logits (N, at least part.count). The maximum is the lowest finite number and the sum 0 if no token
// is held or the target is -1; row 2 is 0 if the target is not held. So stats are finite if the logits are.
void softmax_part(Stream& s, Tensor stats, Tensor logits, Tensor targets, VocabularyPart part);

// Rescales row 1 to max (N) f32, which is not below row 0 and becomes row 0.
void merge_softmax(Stream& s, Tensor stats, Tensor max);

// Writes losses (N) f32 from the stats of the whole vocabulary.
void cross_entropy_loss(Stream& s, Tensor losses, Tensor stats, Tensor targets);

// Overwrites logits (N, at least part.count), as softmax_part read them, with their gradient; stats are those of the
// whole vocabulary, read only.
void cross_entropy_gradient(Stream& s, Tensor logits, Tensor stats, Tensor targets, VocabularyPart part,
                            const GradientScale& scale);

namespace cpu {
void cross_entropy_forward(Tensor losses, Tensor logits, Tensor targets, const VocabularyPart& part);
void cross_entropy_forward_backward(Tensor losses, Tensor logits, Tensor targets, const VocabularyPart& part,
                                    const GradientScale& scale);
void softmax_part(Tensor stats, Tensor logits, Tensor targets, const VocabularyPart& part);
void merge_softmax(Tensor stats, Tensor max);
void cross_entropy_loss(Tensor losses, Tensor stats, Tensor targets);
void cross_entropy_gradient(Tensor logits, Tensor stats, Tensor targets, const VocabularyPart& part,
                            const GradientScale& scale);
}  // namespace cpu
namespace cuda {
void cross_entropy_forward(Queue queue, Tensor losses, Tensor logits, Tensor targets, const VocabularyPart& part);
void cross_entropy_forward_backward(Queue queue, Tensor losses, Tensor logits, Tensor targets,
                                    const VocabularyPart& part, const GradientScale& scale);
void softmax_part(Queue queue, Tensor stats, Tensor logits, Tensor targets, const VocabularyPart& part);
void merge_softmax(Queue queue, Tensor stats, Tensor max);
void cross_entropy_loss(Queue queue, Tensor losses, Tensor stats, Tensor targets);
void cross_entropy_gradient(Queue queue, Tensor logits, Tensor stats, Tensor targets, const VocabularyPart& part,
                            const GradientScale& scale);
}  // namespace cuda

}  // namespace megalith
