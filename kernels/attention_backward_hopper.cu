#include "kernels/attention.h"
#include "kernels/attention_backward_cuda.h"
#include "kernels/attention_warpgroup_tiles.h"

namespace megalith::cuda::attention {

void hopper_backward(Queue queue, Tensor dqkv, Tensor delta, Tensor dout, Tensor lse, Tensor qkv, Tensor starts,
                     const AttentionDims& dims, const Dropout& d) {
  launch_backward<WarpgroupTiles>(queue, dqkv, delta, dout, lse, qkv, starts, dims, d);
}

}  // namespace megalith::cuda::attention
