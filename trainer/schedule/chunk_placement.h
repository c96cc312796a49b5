// Which stage of the pipeline runs which part of the model: a pure function of the numbers. The model is cut into
// stages * virtual_stages chunks of consecutive layers, in its order.
//
// In turn: chunk c of the model runs on stage c % stages, so that messages always go to the next stage (gradients to
// the previous one), and from the last stage to the first. As a V, with two chunks a stage: chunks go down the stages
// and, from the last one, back up. The first stage has both ends of the model, and messages go in both directions,
// except where the V turns.
#pragma once

#include <algorithm>
#include <cstdint>

namespace megalith {

struct ChunkPlacement {
  int64_t stages = 1;
  int64_t virtual_stages = 1;  // chunks of a stage; 2 as a V
  bool v_shaped = false;

  int64_t num_chunks() const { return stages * virtual_stages; }
  int64_t stage_of(int64_t model_chunk) const {
    const int64_t at = model_chunk % stages;
    return v_shaped && model_chunk >= stages ? stages - 1 - at : at;
  }
  // Returns the number in the model of chunk `chunk` of a stage, both counted from 0.
  int64_t model_chunk(int64_t stage, int64_t chunk) const {
    return chunk * stages + (v_shaped && chunk == 1 ? stages - 1 - stage : stage);
  }
  // Returns whether the chunk's output is the input of another chunk of the same stage.
  bool turns_after(int64_t model_chunk) const { return v_shaped && model_chunk + 1 == stages; }

  // A stage continues to work while its messages are in transfer. So a chunk that has `live` microbatches alive has
  // memory for this many residuals at once:
  // - messages in transfer: as many as the next stage may lag by, since it may have to run other chunks first; in a V
  //   it receives two as they arrive;
  // - inputs: those alive and one that arrives;
  // - outputs: one that is computed and those in transfer;
  // - gradients: one that arrives, one that is computed and those in transfer.
  int64_t messages_under_way(int64_t live) const {
    return v_shaped ? std::min<int64_t>(live, 2) : virtual_stages > 1 ? live : 1;
  }
  int64_t inputs(int64_t live) const { return live + 1; }
  int64_t outputs(int64_t live) const { return 1 + messages_under_way(live); }
  int64_t gradients(int64_t live) const { return 2 + messages_under_way(live); }
  // Where a V turns, a gradient stays in memory between the two chunks, so that up to `most` are computed at once.
  int64_t gradients_at_turn(int64_t live, int64_t most) const { return gradients(live) - 1 + most; }
};

}  // namespace megalith
