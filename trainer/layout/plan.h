// Plan: the immutable answer to "who owns what, and when", for one rank. A pure function of config, number of ranks and
// rank: no devices, no I/O. All later code reads shapes, ranges and order from here and makes no such decision again.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "configs/config.h"
#include "kernels/system/chip.h"
#include "kernels/tensor/tensor.h"
#include "trainer/layout/layout.h"
#include "trainer/layout/slice.h"
#include "trainer/model/pass_shape.h"
#include "trainer/schedule/schedule.h"

namespace megalith {

struct PlacedParam {
  ParamSpec spec;
  size_t index;    // among the parameters of its unit of the model (Param)
  Shape shape;     // local
  int64_t offset;  // offset of its first element in the unit's flat memory
  Interval range() const { return {offset, offset + shape.numel()}; }
};

// A unit laid out flat. Decayed parameters come first, then the others, so that the optimizer sees two runs. In each
// run those split over the tensor axis come first, the weights of products in 8 bits before them, and last those whose
// gradients are sums over its ranks, so that there are few HeldRuns. It is padded with zeros so that every shard has
// the same size and, if sums over copies travel in bf16, so does every copy's part of a shard.
//
// Frozen parameters form a unit of their own, which is gathered and has no gradients and no optimizer state. If a unit
// of the model has both kinds, instructions name the trained one.
struct UnitPlan {
  std::string name;
  bool is_layer = false;    // one of several of the same shape; otherwise a part of the model's ends
  bool multiplies = false;  // products write some of its gradients
  bool frozen = false;
  std::optional<size_t> frozen_part{};  // the unit with this unit's frozen parameters
  // Elements [0, fp8) are cast to 8 bits once a step, and gathered in 8 bits (fp8_weights.h).
  int64_t fp8 = 0;
  std::vector<PlacedParam> params{};  // the spec's order
  int64_t numel = 0;                  // padded
  int64_t decayed = 0;                // elements [0, decayed) have weight decay
  std::vector<HeldRun> held{};        // tile [0, numel), ascending: which tensor ranks hold the same elements
  Interval shard{};                   // the range of [0, numel) that this rank owns
  // The elements that this rank counts in the norm, ascending: one rank of each replica counts each element.
  std::vector<Interval> counted{};

  // The gradients that products do not write as a whole (ParamSpec::multiplies).
  std::vector<Interval> outside_products{};
  int64_t size_outside_products() const;  // elements

  // The unit is gathered once a step, into memory of its own; otherwise in memory that layers take turns in.
  bool keep_gathered = false;
  bool reduce_once = false;  // whole gradients accumulate here and are reduced once a step; otherwise once a microbatch
  Interval matrices{};       // elements that Muon updates, matrix by matrix (matrices.h)
  // Between updates, master weights and moments are on the host; if frozen, the weights to be gathered.
  bool optimizer_on_host = false;

  // Returns the part of the runs with partial gradients that is in the rank's shard.
  std::vector<HeldRun> partial_here() const;
};

// A batch of sequences as one rank sees it: sequences [first, first + count) of the batch in microbatch k. If the batch
// does not fill all microbatches of all ranks, count is less than the microbatch size, down to 0. The missing sequences
// are masked: they take time and change no number.
struct BatchPlan {
  int64_t batch = 0;       // sequences, over all ranks
  int64_t microbatch = 0;  // sequences that a tensor-parallel group runs at a time
  int64_t ranks = 1, rank = 0;
  int64_t num_microbatches() const { return (batch + microbatch * ranks - 1) / (microbatch * ranks); }
  Interval sequences(int64_t k) const;
  // Returns the share of all sequence slots that are masked.
  double idle() const;
};
BatchPlan batch_plan(const Config& config, const MeshShape& mesh, int rank);

// Consecutive layers that this rank executes together: a virtual stage, or the whole model.
struct Chunk {
  bool first = true, last = true;  // of the model: the chunk begins with the embedding, ends with the head
  // For a V. turns_before: the chunk's input is the output of this rank's previous chunk. turns_after: its output is
  // the input of the next one.
  bool turns_before = false, turns_after = false;
  int64_t first_layer = 0, num_layers = 0;
  size_t first_unit = 0;  // the unit of its first layer

  size_t unit(int64_t layer) const { return first_unit + static_cast<size_t>(layer); }  // layer: counted in the chunk
};

struct Plan {
  static constexpr size_t nowhere = static_cast<size_t>(-1);

  MeshShape mesh;
  int rank = 0;
  TensorRank tensor;
  cuda::Chip chip{};  // the GPU, as far as ops need scratch memory for it; {} on a CPU
  DType compute = DType::f32;
  DType residual = DType::f32;  // f32, or equal to `compute`
  Interval fp8_layers{};        // the layers, by their numbers in the model, whose products are in 8 bits
  DType master = DType::f32;    // of the weights that the optimizer updates; frozen weights have the compute type
  bool saves_frozen = true;     // checkpoints also hold the frozen weights; otherwise they name their source
  // The type of gradients as they are sent to sums over the shard and data axes, which add in f32.
  DType reduce_dtype = DType::f32;
  DType direction = DType::f32;  // of Muon's momentum and directions in transfers, and of its products
  bool relay = false;            // such gradients are summed inside each node before they are sent to others
  ModelConfig model;
  PassShape pass;             // shape of a microbatch
  int64_t logit_columns = 0;  // with padding
  bool sequence_parallel = false;
  int64_t tensor_pieces = 0;  // pieces of a product that overlap transfers of the tensor-parallel group; 0: no overlap
  bool hierarchical = false;  // gather weights between nodes, then inside each
  std::vector<UnitPlan> units;          // units of this rank
  std::vector<size_t> embedding, head;  // the units of these parts (Embedding, Head), if they are on this rank
  size_t tied = nowhere;                // the unit that both use, if it is on this rank
  std::vector<size_t> head_gradients;   // the units of the head's gradients: as `head`, but see splits_tied()
  int64_t live_units = 2;               // number of layers whose gathered weights have memory at once
  Kept kept = Kept::all;
  int64_t group = 1;               // layers that are recomputed together: only the input of the first is kept
  bool recompute_outputs = false;  // also recomputes the outputs of groups, which are unused, to model other programs
  // The number of groups for which kept inputs come back from the host ahead of time; 0: they stay on the device.
  int64_t horizon = 0;
  bool parameters_on_host = false;  // between uses, the weights to be gathered are on the host
  BatchPlan batch;
  bool isolates_documents = false;  // every stage knows the tokens, since attention stops at `end_of_text`
  int32_t end_of_text = -1;         // -1: unknown, as in plans that are not executed, or not needed
  bool masked = false;              // not every target counts: the loss is the mean over the targets of a step that do
  bool cuda_graphs = false;         // launches that are equal each time become one (graphs.h)
  bool draws_from_memory = false;   // dropout's arguments are loaded with each microbatch (Dropout::drawn)
  PipelineShape pipeline;
  std::vector<Chunk> chunks;
  std::vector<Action> schedule;  // one step

  int64_t rows() const { return pass.branch_rows(); }
  bool has_fp8(int64_t layer) const { return fp8_layers.begin <= layer && layer < fp8_layers.end; }
  PassTypes types() const { return {compute, residual, fp8_layers.size() > 0}; }
  // Returns whether layers, and not only embedding and head, use data that is loaded with a microbatch.
  bool layers_need_batch() const { return isolates_documents || draws_from_memory; }
  // Returns whether weights are gathered into slots: from other ranks, from the host, or both.
  bool gathers() const { return mesh.shard > 1 || parameters_on_host; }
  bool casts_weights() const {
    return std::ranges::any_of(units, [](const UnitPlan& u) { return u.fp8 > 0; });
  }
  bool is_layer(size_t u) const { return unit(u).is_layer; }
  bool is_saved(const UnitPlan& unit) const { return saves_frozen || !unit.frozen; }
  // Returns whether a unit of the embedding or the head is trained.
  bool trains(size_t u) const { return !unit(u).frozen; }
  // The tied unit is on the first and on the last stage; gradients are added up between the two, unless it is frozen.
  bool ties_stages() const { return mesh.pipeline > 1 && !mesh.v_shaped && tied != nowhere; }
  // In a V one rank has both ends of the model. It keeps two gradients of the tied unit as well, so that sums have the
  // same order in all pipelines. The head's has the number head_share() among the units, and is only a gradient.
  bool splits_tied() const { return mesh.v_shaped && tied != nowhere && trains(tied); }
  bool sums_tied() const { return splits_tied() || (ties_stages() && trains(tied)); }
  size_t head_share() const { return units.size(); }
  size_t num_gradients() const { return units.size() + (splits_tied() ? 1 : 0); }
  // Returns the unit with this number; for the head's share, the tied unit.
  const UnitPlan& unit(size_t u) const { return units[u == head_share() ? tied : u]; }
};

DType stored_in(StorageType type);

// The pipeline of a run, the same on all ranks.
struct Pipeline {
  PipelineShape shape;
  std::vector<int64_t> layers{};                 // layers of each chunk of the model
  std::vector<std::vector<Action>> schedules{};  // one step, by stage
};
// config.model.vocab must be set.
Pipeline make_pipeline(const Config& config, const MeshShape& mesh);

// config.model.vocab must be set. Unless run.device is "cpu", the plan is for GPUs.
Plan make_plan(const Config& config, int num_ranks, int rank);
// As above, for callers that plan many ranks: they make the run's pipeline once, since searches for orders take long.
Plan make_plan(const Config& config, int num_ranks, int rank, const Pipeline& pipeline);

}  // namespace megalith
