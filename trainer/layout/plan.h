// Plan: the immutable answer to "who owns what, and when", for one rank. A pure function of config, number of ranks and
// rank: no devices, no I/O. Everything later reads shapes, ranges and order from here and decides nothing again.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "configs/config.h"
#include "kernels/tensor/tensor.h"
#include "trainer/layout/layout.h"
#include "trainer/layout/slice.h"
#include "trainer/model/pass_shape.h"
#include "trainer/schedule/schedule.h"

namespace megalith {

struct PlacedParam {
  ParamSpec spec;
  size_t index;    // among those of its unit of the model (Param)
  Shape shape;     // local
  int64_t offset;  // of its first element in the unit's flat memory
  Interval range() const { return {offset, offset + shape.numel()}; }
};

// A unit laid out flat: decayed parameters first, then the others, so that the optimizer sees two runs; of each, those
// split over the tensor axis first, and last those whose gradients are sums over its ranks, so that few runs are held
// alike; padded with zeros so that every shard has the same size and, where sums over copies travel in bf16, so has
// every copy's part of a shard.
//
// Frozen parameters are a unit of their own, which is gathered and has no gradients and no optimizer state. Where a
// unit of the model has both, instructions name the one that is trained.
struct UnitPlan {
  std::string name;
  bool is_layer = false;    // one of several of the same shape; else a part of the model's ends
  bool multiplies = false;  // products write some of its gradients
  bool frozen = false;
  std::optional<size_t> frozen_part{};  // the unit of the frozen parameters beside these
  std::vector<PlacedParam> params{};    // in the order of the spec
  int64_t numel = 0;                    // padded
  int64_t decayed = 0;                  // elements [0, decayed) have weight decay
  std::vector<HeldRun> held{};          // tile [0, numel), ascending: which tensor ranks hold the same
  Interval shard{};                     // what this rank owns of [0, numel)
  // The elements that this rank counts in the norm, ascending: one rank of each replica counts each element.
  std::vector<Interval> counted{};

  // The gradients that products do not write as a whole (ParamSpec::multiplies).
  std::vector<Interval> beside_products{};
  int64_t size_beside_products() const;  // elements

  bool keep_gathered = false;  // gathered once a step, in memory of its own; else in memory that layers take turns in
  bool reduce_once = false;    // whole gradients accumulate here and are reduced once a step; else every microbatch
  Interval matrices{};         // these elements Muon updates, matrix by matrix (matrices.h)
  bool optimizer_on_host = false;  // master weights and moments, between updates; frozen: the weights that are gathered

  // Returns what is in the rank's shard of the runs whose gradients are partial.
  std::vector<HeldRun> partial_here() const;
};

// A batch of sequences as one rank sees it: sequences [first, first + count) of the batch in microbatch k. Where the
// batch does not fill all microbatches of all ranks, count is less than the microbatch size, down to 0, and the missing
// sequences are masked: they cost time and change no number.
struct BatchPlan {
  int64_t batch = 0;       // sequences, over all ranks
  int64_t microbatch = 0;  // sequences a tensor-parallel group runs at a time
  int64_t ranks = 1, rank = 0;
  int64_t num_microbatches() const { return (batch + microbatch * ranks - 1) / (microbatch * ranks); }
  Interval sequences(int64_t k) const;
  // Share of all sequence slots that are masked.
  double idle() const;
};
BatchPlan batch_plan(const Config& config, const MeshShape& mesh, int rank);

// Consecutive layers that this rank executes together: a virtual stage, or the whole model.
struct Chunk {
  bool first = true, last = true;  // of the model: begins with the embedding, ends with the head
  // A V turns before it, and its input is the output of this rank's chunk before; or after it, and its output is the
  // input of the next.
  bool turns_before = false, turns_after = false;
  int64_t first_layer = 0, num_layers = 0;
  size_t first_unit = 0;  // of its layers

  size_t unit(int64_t layer) const { return first_unit + static_cast<size_t>(layer); }  // counted in the chunk
};

struct Plan {
  static constexpr size_t nowhere = static_cast<size_t>(-1);

  MeshShape mesh;
  int rank = 0;
  TensorRank tensor;
  DType compute = DType::f32;
  DType residual = DType::f32;      // f32, or as `compute`
  DType master = DType::f32;        // of the weights that the optimizer updates; frozen ones are of the compute type
  bool saves_frozen = true;         // checkpoints hold the frozen weights as well; else they name whose they are
  DType reduce_dtype = DType::f32;  // of gradients as they are sent to sums over the shard and data axes, added in f32
  DType direction = DType::f32;     // of Muon's momentum and directions as they travel, and of its products
  bool relay = false;               // such gradients are added up inside each node before they go to others
  ModelConfig model;
  PassShape pass;             // of a microbatch
  int64_t logit_columns = 0;  // with padding
  bool sequence_parallel = false;
  int64_t tensor_pieces = 0;            // of products beside transfers of the tensor-parallel group; 0: none are beside
  bool hierarchical = false;            // gather weights between nodes, then inside each
  std::vector<UnitPlan> units;          // of this rank
  std::vector<size_t> embedding, head;  // the units that these are given (Embedding, Head), where they are here
  size_t tied = nowhere;                // the unit that both use, where it is here
  std::vector<size_t> head_gradients;   // what the head's gradients go to: as `head`, but see splits_tied()
  int64_t live_units = 2;               // layers whose gathered weights have memory at once
  Kept kept = Kept::all;
  int64_t group = 1;               // layers that are recomputed as one: only the input of the first is kept
  bool recompute_outputs = false;  // of groups, though nobody reads them: as other programs do
  int64_t horizon = 0;  // groups ahead of which kept inputs come back from the host; 0: they stay on the device
  bool parameters_on_host = false;  // the weights that are gathered, between uses
  BatchPlan batch;
  bool isolates_documents = false;  // every stage then knows the tokens, for attention stops at `end_of_text`
  int32_t end_of_text = -1;         // -1: not known, as where nothing is executed, or not asked
  bool masked = false;              // not every target counts: the loss is a mean over those of a step that do
  bool cuda_graphs = false;         // launches that are the same each time are one, where there are such (graphs.h)
  bool draws_from_memory = false;   // what dropout draws by is loaded with each microbatch (Dropout::drawn)
  PipelineShape pipeline;
  std::vector<Chunk> chunks;
  std::vector<Action> schedule;  // of one step

  int64_t rows() const { return pass.branch_rows(); }
  PassTypes types() const { return {compute, residual}; }
  // Returns whether layers, and not only embedding and head, use what is loaded with a microbatch.
  bool layers_need_batch() const { return isolates_documents || draws_from_memory; }
  // Returns whether weights are gathered into slots: from other ranks, from the host, or both.
  bool gathers() const { return mesh.shard > 1 || parameters_on_host; }
  bool is_layer(size_t u) const { return unit(u).is_layer; }
  bool is_saved(const UnitPlan& unit) const { return saves_frozen || !unit.frozen; }
  // Returns whether a unit that the embedding or the head is given is trained.
  bool trains(size_t u) const { return !unit(u).frozen; }
  // The tied unit stands on the first and on the last stage; gradients are added up between the two, unless it is
  // frozen.
  bool ties_stages() const { return mesh.pipeline > 1 && !mesh.v_shaped && tied != nowhere; }
  // In a V one rank has both ends, and the same two gradients, so that a sum has the same order in all pipelines. What
  // is the head's has the number head_share() among those of the units, and is nothing but a gradient.
  bool splits_tied() const { return mesh.v_shaped && tied != nowhere && trains(tied); }
  bool sums_tied() const { return splits_tied() || (ties_stages() && trains(tied)); }
  size_t head_share() const { return units.size(); }
  size_t num_gradients() const { return units.size() + (splits_tied() ? 1 : 0); }
  // The unit with this number, whose gradient may be the head's share.
  const UnitPlan& unit(size_t u) const { return units[u == head_share() ? tied : u]; }
};

DType stored_in(StorageType type);

// The pipeline of a run, which is the same on all ranks.
struct Pipeline {
  PipelineShape shape;
  std::vector<int64_t> layers{};                 // of each chunk of the model
  std::vector<std::vector<Action>> schedules{};  // of one step, by stage
};
// config.model.vocab must be set.
Pipeline make_pipeline(const Config& config, const MeshShape& mesh);

// config.model.vocab must be set. Where run.device is not "cpu", the plan is for GPUs.
Plan make_plan(const Config& config, int num_ranks, int rank);
// The same for callers that plan many ranks: they make the run's pipeline once, since searches for orders take long.
Plan make_plan(const Config& config, int num_ranks, int rank, const Pipeline& pipeline);

}  // namespace megalith
