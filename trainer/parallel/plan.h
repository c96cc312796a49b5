// Plan: the immutable answer to "who owns what, and when", for one rank. A pure function of config, number of ranks and
// rank: no devices, no I/O. Everything later reads shapes, ranges and order from here and decides nothing again.
#pragma once

#include <string>
#include <vector>

#include "configs/config.h"
#include "kernels/attention.h"
#include "kernels/tensor.h"
#include "trainer/model/spec.h"
#include "trainer/parallel/schedule.h"
#include "trainer/runtime/mesh.h"

namespace megalith {

// Elements [begin, end).
struct Interval {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const Interval&) const = default;
};
Interval intersect(Interval a, Interval b);  // empty ranges are {0, 0}
// Part `index` of `parts` when `whole` is dealt out evenly; the first parts are longer by one where it does not divide.
Interval part_of(Interval whole, int64_t index, int64_t parts);

struct PlacedParam {
  ParamSpec spec;
  int64_t offset;  // of its first element in the unit's flat memory
  Interval range() const { return {offset, offset + spec.shape.numel()}; }
};

// A unit laid out flat: decayed parameters first, then the others, so that the optimizer sees two runs; padded with
// zeros so that every shard has the same size.
struct UnitPlan {
  std::string name;
  std::vector<PlacedParam> params{};  // in the order of the spec
  int64_t numel = 0;                  // padded
  int64_t decayed = 0;                // elements [0, decayed) have weight decay
  Interval shard{};                   // what this rank owns of [0, numel)
};

// What a batch of sequences is to one rank: sequences [first, first + count) of the batch in microbatch k. Where the
// batch does not fill all microbatches of all ranks, count is less than the microbatch size, down to 0, and the missing
// sequences are masked: they cost time and change no number.
struct BatchPlan {
  int64_t batch = 0;       // sequences, over all ranks
  int64_t microbatch = 0;  // sequences a rank takes at once
  int64_t ranks = 1, rank = 0;
  int64_t num_microbatches() const { return (batch + microbatch * ranks - 1) / (microbatch * ranks); }
  Interval sequences(int64_t k) const;
  // Share of all sequence slots that are masked.
  double idle() const;
};

struct Plan {
  MeshShape mesh;
  int rank = 0;
  DType compute = DType::f32;
  ModelConfig model;
  AttentionDims dims;           // of a microbatch
  std::vector<UnitPlan> units;  // embedding, blocks, final norm
  bool recompute = false;       // keep only the input of each block, and run its forward again in backward
  int64_t head_chunks = 0;      // as in Head
  BatchPlan batch;
  std::vector<Action> schedule;  // of one step
  int64_t live_microbatches = 1;

  int64_t rows() const { return dims.B * dims.T; }
  size_t num_blocks() const { return units.size() - 2; }
};

// The mesh that the config asks for on so many ranks. Error names the degrees that would divide.
MeshShape mesh_shape(const Config& config, int num_ranks);

// config.model.vocab must be set.
Plan make_plan(const Config& config, int num_ranks, int rank);

}  // namespace megalith
