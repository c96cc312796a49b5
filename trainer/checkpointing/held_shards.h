// Lists the shards of the global tensors that a rank holds, with their memory. Checkpoints, imports and inference read
// and write weights through these in any layout.
#pragma once

#include <string>
#include <vector>

#include "checkpoints/tensor_source.h"
#include "checkpoints/writer.h"
#include "kernels/tensor/tensor_shard.h"
#include "trainer/parallel/unit.h"

namespace megalith {

struct HeldShard {
  TensorShard shard;
  Tensor data;  // f32 or bf16 (f16 only for reading into), in the stream's memory
};

// Returns the shards of `values`, the elements `within` of the unit's shard. A shard's name is `path` + the
// parameter's; padding is not in any shard.
std::vector<HeldShard> held_shards(const Unit& unit, const std::string& path, Tensor values, Interval within);

// Returns the shard with its values at the time of the write, which waits for the stream. The stream must outlive it.
ShardToWrite shard_to_write(Stream& s, const HeldShard& held);
// As above for host memory, which any thread may read and which must not change until the write.
ShardToWrite shard_to_write_on_host(const HeldShard& held);

// Reads the shards into their memory, rounding to nearest for bf16 and f16. Work launched afterwards sees them. `from`
// names the source for the user who waits.
void read_shards(Stream& s, const std::vector<HeldShard>& shards, TensorSource& source, const std::string& from);

}  // namespace megalith
