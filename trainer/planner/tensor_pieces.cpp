#include "trainer/planner/tensor_pieces.h"

#include <algorithm>

#include "trainer/layout/layout.h"
#include "trainer/parallel/edges.h"
#include "trainer/planner/op_time.h"
#include "trainer/planner/transfer_time.h"

namespace megalith {

namespace {

class LayerEstimate {
 public:
  LayerEstimate(const Config& config, const Hardware& hardware, int num_ranks)
      : config_(config),
        hardware_(hardware),
        mesh_(mesh_shape(config, num_ranks)),
        processor_(processor_of(hardware, config.precision.compute, mesh_.ranks_per_node)),
        link_(group_link(mesh_, hardware, 0, Channel::tensor)),
        rows_(batch_plan(config, mesh_, 0).microbatch * config.batch.sequence_length) {}

  int64_t tensor() const { return mesh_.tensor; }

  // Returns seconds.
  double with_pieces(int64_t wanted) const {
    const ModelConfig& m = config_.model;
    const int64_t t = mesh_.tensor, h = m.hidden, attention = m.heads * m.size_of_head() / t,
                  features = m.features() / t;
    const int64_t wide = (m.activation == Activation::swiglu ? 2 : 1) * features;
    const bool sequence = config_.parallel.sequence_parallel;
    const std::vector<Interval> pieces =
        sequence ? pieces_of_ranks(t, rows_ / t, wanted) : pieces_of_rows(rows_, wanted);
    const auto count = static_cast<int64_t>(pieces.size());
    const int64_t ranks = sequence ? pieces.front().size() : 0,
                  rows = sequence ? ranks * (rows_ / t) : pieces.front().size();
    const auto product = [&](int64_t n, int64_t k) { return product_time(rows, n, k); };
    const int64_t qkv = m.qkv_width() / t;
    // If the backward pass has two halves, the products for the gradients of the branches' inputs are cut as well.
    const bool halves = has_halves(config_.parallel.pipeline_schedule);
    const auto transfer = [&](Transfer whole, Transfer some) {
      const bool cut = sequence && count > 1;
      return transfer_time(link_, cut ? some : whole, element_bytes() * static_cast<double>(rows * h), hardware_,
                           static_cast<int>(cut ? ranks : 1));
    };
    if (!sequence) {  // the sum of the attention also overlaps with the first product of the feed-forward layer
      const double sum = transfer(Transfer::all_reduce, Transfer::all_reduce);
      const double backward =
          halves ? together(count, product(h, wide), sum) + together(count, product(h, qkv), sum) : 0;
      return backward + together(count, product(h, features), sum) +
             (m.parallel_residual
                  ? together(count, product(h, attention), sum) + static_cast<double>(count) * product(wide, h)
                  : together(count, product(h, attention) + product(wide, h), sum, 0));
    }
    const double gather = transfer(Transfer::all_gather, Transfer::all_gather_of),
                 scatter = transfer(Transfer::reduce_scatter, Transfer::reduce_scatter_to);
    double seconds = together(count, product(h, features), scatter) + together(count, product(h, attention), scatter);
    if (halves) seconds += together(count, product(h, wide), scatter) + together(count, product(h, qkv), scatter);
    for (const int64_t wide_of : {qkv, wide, attention, features})
      seconds += together(count, product(wide_of, h), gather);
    return seconds;
  }

 private:
  double element_bytes() const { return config_.precision.compute == ComputeType::fp32 ? 4 : 2; }
  double product_time(int64_t m, int64_t n, int64_t k) const {
    const auto size = [](int64_t a, int64_t b) { return static_cast<double>(a) * static_cast<double>(b); };
    const Cost cost{2 * size(m, n) * static_cast<double>(k),
                    element_bytes() * (size(m, n) + size(m, k) + size(n, k)),
                    Cost::Kind::gemm,
                    m,
                    n,
                    k,
                    config_.precision.compute == ComputeType::fp32};
    return op_time(cost, processor_, hardware_);
  }
  // Returns the time of `count` products, each with a transfer that can overlap with the others; `alone` of the
  // transfers overlap with nothing.
  double together(int64_t count, double product, double transfer, int64_t alone = 1) const {
    const auto n = static_cast<double>(count);
    const double overlapping = std::max<double>(count - (count == 1 ? 1 : alone), 0), work = (n - 1) * product;
    const double hidden = std::min(overlapping * transfer, work);
    return n * product + n * transfer - hidden * (1 - hardware_.calibrated.overlap);
  }

  const Config& config_;
  const Hardware& hardware_;
  const MeshShape mesh_;
  const Processor processor_;
  const GroupLink link_;
  const int64_t rows_;
};

}  // namespace

int64_t best_tensor_pieces(const Config& config, const Hardware& hardware, int num_ranks) {
  if (hardware.device.kind == DeviceKind::cpu) return 0;
  const LayerEstimate layer(config, hardware, num_ranks);
  if (layer.tensor() == 1) return 0;
  int64_t best = 1;
  double least = layer.with_pieces(1);
  for (const int64_t pieces : {2, 3, 4, 6, 8})
    if (const double seconds = layer.with_pieces(pieces); seconds < least) {
      best = pieces;
      least = seconds;
    }
  return best;
}

}  // namespace megalith
