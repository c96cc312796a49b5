// A rank holds shards of the global tensors: those of its units, with their memory. Checkpoints, imports and
// inference read and write weights through these, whatever the layout.
#pragma once

#include <string>
#include <vector>

#include "checkpoints/tensor_source.h"
#include "checkpoints/writer.h"
#include "kernels/base/tensor_shard.h"
#include "trainer/parallel/unit.h"

namespace megalith {

struct HeldShard {
  TensorShard shard;
  Tensor data;  // f32 or bf16, wherever the stream's tensors lie
};

// The shards of `values`, which are those of the unit's shard within elements `within` of the unit, one after another.
// Names are `path` + the parameter's; padding belongs to none.
std::vector<HeldShard> held_shards(const Unit& unit, const std::string& path, Tensor values, Interval within);

// The shard with its values at the time of the write, which waits for the stream. The stream must outlive the result.
ShardToWrite shard_to_write(Stream& s, const HeldShard& held);
// The same for values in memory of the host, which any thread may write, and nobody changes until then.
ShardToWrite shard_to_write_on_host(const HeldShard& held);

// Reads the shard into its memory, rounded to nearest if that is bf16; work launched from here on sees it.
void read_shard(Stream& s, const HeldShard& held, TensorSource& source);

}  // namespace megalith
