// Softmax and cross-entropy over the vocabulary, fused:
//   losses[n] = log(sum_v exp(z[n, v])) - z[n, target],  dz[n, v] = scale * (softmax(z[n])[v] - [v == target]).
// A row whose target is -1 has loss and gradient 0. Padding columns (vocabulary.h) are never read; their gradient is 0.
#pragma once

#include "kernels/stream/stream.h"
#include "kernels/tensor/tensor.h"
#include "kernels/tensor/vocabulary.h"

namespace megalith {

// The factor of gradients: `number` times two numbers in device memory, (1) f64 each; an empty one counts as 1.
struct GradientScale {
  double factor;
  Tensor in_memory{}, also_in_memory{};
};

// The whole vocabulary: every token has its column here, part.count == part.total.
struct CrossEntropyForward {
  static constexpr const char* name = "cross_entropy_forward";
  Tensor losses;   // (N) f32, written
  Tensor logits;   // (N, at least part.count); f32, bf16 or f16
  Tensor targets;  // (N) i32, -1 or a token
  VocabularyPart part;
};

// As above, and overwrites the logits with their gradient: no second (N, V) tensor exists, nor an f32 copy.
struct CrossEntropyForwardBackward {
  static constexpr const char* name = "cross_entropy_forward_backward";
  Tensor losses, logits;  // written
  Tensor targets;
  VocabularyPart part;
  GradientScale scale;
};

// A divided vocabulary: each part holds the logits of its tokens, and all agree through stats (3, N) f32:
//   row 0  the largest logit, row 1  the sum of exp(z - row 0), row 2  the target's logit.
// The order is
//   SoftmaxPart             stats of the tokens held here
//   (maximum over parts)    of a copy of row 0: never NaN, which is not ordered
//   MergeSoftmax            the sums become relative to that maximum
//   (sum over parts)        of rows 1 and 2: stats of the whole vocabulary, the same in every part
//   CrossEntropyLoss, CrossEntropyGradient
// With one part each step gives the same bits as the whole ops. NaN and infinite logits reach the loss as there.
// Source: Shoeybi et al., Megatron-LM, arXiv 1909.08053, section 3; Milakov and Gimelshein, Online normalizer
// calculation for softmax, arXiv 1805.02867.

// The maximum is the lowest finite number and the sum 0 if no token is held or the target is -1; row 2 is 0 if the
// target is not held. So stats are finite if the logits are.
struct SoftmaxPart {
  static constexpr const char* name = "softmax_part";
  Tensor stats;   // written
  Tensor logits;  // (N, at least part.count)
  Tensor targets;
  VocabularyPart part;
};

// Rescales row 1 to max, which is not below row 0 and becomes row 0.
struct MergeSoftmax {
  static constexpr const char* name = "merge_softmax";
  Tensor stats;  // rows 0 and 1 change
  Tensor max;    // (N) f32
};

struct CrossEntropyLoss {
  static constexpr const char* name = "cross_entropy_loss";
  Tensor losses;  // (N) f32, written
  Tensor stats;   // statistics of the whole vocabulary
  Tensor targets;
};

struct CrossEntropyGradient {
  static constexpr const char* name = "cross_entropy_gradient";
  Tensor logits;  // (N, at least part.count), as SoftmaxPart read them; overwritten with their gradient
  Tensor stats;   // statistics of the whole vocabulary
  Tensor targets;
  VocabularyPart part;
  GradientScale scale;
};

void launch(Stream& s, const CrossEntropyForward& op);
void launch(Stream& s, const CrossEntropyForwardBackward& op);
void launch(Stream& s, const SoftmaxPart& op);
void launch(Stream& s, const MergeSoftmax& op);
void launch(Stream& s, const CrossEntropyLoss& op);
void launch(Stream& s, const CrossEntropyGradient& op);
namespace cpu {
void run(Queue& queue, const CrossEntropyForward& op);
void run(Queue& queue, const CrossEntropyForwardBackward& op);
void run(Queue& queue, const SoftmaxPart& op);
void run(Queue& queue, const MergeSoftmax& op);
void run(Queue& queue, const CrossEntropyLoss& op);
void run(Queue& queue, const CrossEntropyGradient& op);
}  // namespace cpu
namespace cuda {
void run(Queue queue, const CrossEntropyForward& op);
void run(Queue queue, const CrossEntropyForwardBackward& op);
void run(Queue queue, const SoftmaxPart& op);
void run(Queue queue, const MergeSoftmax& op);
void run(Queue queue, const CrossEntropyLoss& op);
void run(Queue queue, const CrossEntropyGradient& op);
}  // namespace cuda

}  // namespace megalith
