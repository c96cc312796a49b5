#include "trainer/schedule/chunk_times.h"

#include <algorithm>
#include <cmath>

#include "trainer/model/spec.h"

namespace megalith {

namespace {

constexpr double layer_time = 1000;   // time of a layer's products in the forward pass, at their best rate
constexpr double bytes_of_value = 2;  // a value of the residual, whatever its type

// GPUs do only products of large matrices at their best rate. Products over `inner` terms take 1 + ramp / inner times
// as long, attention of T positions (1 + attention_ramp / T) / attention_rate times as long as products of as many
// FLOPs, as in trainer/planner/op_time.cpp. Elementwise ops of a layer of width h take passes / h of its products'
// time: two bytes a value at 1.5 TB/s against 230 TFLOP/s (A100), some 9 values a feature and direction.
constexpr double ramp = 176, attention_ramp = 1080, attention_rate = 0.6;
constexpr double forward_passes = 120, backward_passes = 300;

// FLOPs of products in the time in which a byte passes a link. Inside a node: A100 and H100, 0.23 and 0.6 PFLOP/s
// against 240 and 450 GB/s. Between nodes: A100 with an eighth of 400 Gb/s, 0.23 PFLOP/s against 4.8 GB/s, plus a
// quarter. Other networks are up to four times as fast, but an order made for slow messages loses little if they are
// fast (bench/results/pipeline_order.md), while one made for fast messages loses if they are slow.
constexpr double flops_a_byte_in_node = 1100, flops_a_byte_between_nodes = 60000;

constexpr double flops_a_byte_of_node = 4600;  // A100 against all of a node's 400 Gb/s

double forward_flops(const Config& config, int64_t layers, int64_t vocab, int64_t context) {
  ModelConfig model = config.model;
  model.layers = layers;
  model.vocab = vocab;
  return model_flops_per_token(model, context, true) / 3;
}

double products_of_layer(const Config& config) { return forward_flops(config, 1, 0, 0); }

double bytes_of_token(const Config& config) { return bytes_of_value * static_cast<double>(config.model.hidden); }

}  // namespace

std::vector<ChunkTimes> chunk_times(const Config& config, const MeshShape& mesh, const std::vector<int64_t>& layers) {
  const int64_t T = config.batch.sequence_length;
  const auto width = static_cast<double>(config.model.hidden), positions = static_cast<double>(T);
  const double rows = positions * static_cast<double>(config.batch.microbatch_size *
                                                      (config.parallel.prescaled_batch ? 1 : mesh.tensor));
  const double layer = products_of_layer(config), products = layer * (1 + ramp / width),
               attention = (forward_flops(config, 1, 0, T) - layer) * (1 + attention_ramp / positions) / attention_rate;
  // Two sums a layer and direction, each twice round the ring; a rank has its part of the products.
  const double sums = 2.0 * 2.0 * (mesh.tensor - 1) * bytes_of_token(config) * flops_a_byte_in_node;
  const double forward = products + attention + sums + layer * forward_passes / width;
  const bool again = config.memory.activation_checkpointing.kind == ActivationCheckpointing::Kind::each;
  const double input = products + 2.5 * attention + sums + layer * backward_passes / width + (again ? forward : 0);
  const double head = 3 * forward_flops(config, 0, config.model.vocab, T);
  const bool leaves_node = mesh.ranks_per_node > 0 && mesh.batch_ranks() * mesh.tensor > mesh.ranks_per_node;
  const double bytes = config.precision.gradient_reduce == StorageType::fp32 ? 4 : 2;
  // The time of a layer's parameters, each of which takes two FLOPs a row.
  const double sum = mesh.batch_ranks() == 1 ? 0
                                             : bytes * mesh.tensor * layer / 2 / rows *
                                                   (leaves_node ? flops_a_byte_of_node : flops_a_byte_in_node);
  std::vector<ChunkTimes> times;
  for (const int64_t count : layers) {
    const auto of = [&](double flops_of_layer) {
      return std::max<int64_t>(1, std::llround(layer_time * static_cast<double>(count) * flops_of_layer / layer));
    };
    times.push_back({.forward = of(forward),
                     .input = of(input),
                     .weights = of(layer * (1 + ramp / rows)),
                     .sum = std::llround(layer_time * static_cast<double>(count) * sum / layer)});
  }
  times.back().forward += std::llround(layer_time * head / layer);
  return times;
}

int64_t message_time(const Config& config, const MeshShape& mesh) {
  const bool leaves_node = mesh.ranks_per_node > 0 && mesh.stride(Axis::pipeline) * mesh.pipeline > mesh.ranks_per_node;
  // A message is the residual; under sequence parallelism each rank of a tensor-parallel group holds a part of it.
  const double ranks = config.parallel.sequence_parallel ? 1 : mesh.tensor;
  return std::llround(layer_time * bytes_of_token(config) * ranks *
                      (leaves_node ? flops_a_byte_between_nodes : flops_a_byte_in_node) / products_of_layer(config));
}

}  // namespace megalith
