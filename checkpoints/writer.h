// How a checkpoint comes to be. One process or many write it, and the caller orders the steps between them:
//
//   rank 0     folder = begin_checkpoint(directory, step)                 DIR/.step-00000100.partial
//   all        record = writer.write(folder, rank, shards)                folder/rank-00003.h5
//   rank 0     publish_checkpoint(folder, {step, state, all records})     DIR/step-00000100
//   or, when any rank failed, once all have returned:  rank 0  abandon_checkpoint(folder)
//
// Whatever instant the power, the process or the disk gives up, DIR holds the checkpoints it held before, and the new
// one appears complete or not at all: each file is written under a temporary name, fsynced and renamed, the manifest
// last, and the folder likewise. Nothing here overwrites or deletes a published checkpoint.
//
// HDF5 lays the file out in memory (headers and offsets only) and the bytes are written here, the elements past the
// system's cache, so that a full disk cannot leave the HDF5 library with a file that it can neither flush nor close.
// The space is reserved before the first byte is written, and elements are read once. Errors name the path, the bytes
// wanted, those available and the remedy. Writing the same shards twice gives the same bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "checkpoints/manifest.h"
#include "kernels/base/tensor_shard.h"
#include "kernels/system/files.h"
#include "kernels/system/large_write.h"

namespace megalith {

struct ShardToWrite {
  // show(begin, end, use) calls use(p), where p are elements [begin, end) of the shard, of its type, and stay valid
  // meanwhile. It is called for one range at a time, in their order, so that elements may lie where the host cannot
  // read them.
  using Show = std::function<void(int64_t begin, int64_t end, const std::function<void(const void*)>& use)>;

  ShardToWrite(TensorShard p, DType type, Show s) : shard(std::move(p)), dtype(type), show(std::move(s)) {}
  // shard.numel() elements in memory of the caller.
  ShardToWrite(TensorShard p, const float* data) : shard(std::move(p)) {
    if (data) show = [data](int64_t begin, int64_t, const auto& use) { use(data + begin); };
  }

  TensorShard shard;
  DType dtype = DType::f32;  // or bf16
  Show show;
};

// DIR/step-00000100
std::string checkpoint_path(const std::string& directory, int64_t step);

// Creates `directory` if needed and, in it, the folder that the rank files go to; removes what an earlier death left
// there. Error if a complete checkpoint of this step exists already.
std::string begin_checkpoint(const std::string& directory, int64_t step);

// Writes files of ranks, one after another: has memory to do it, and lays out once what holds the same shards.
class RankFileWriter {
 public:
  // Elements that are asked for at a time, at most.
  static constexpr int64_t usual_part = int64_t{4} << 20;
  explicit RankFileWriter(int64_t part = usual_part);
  ~RankFileWriter();

  // The memory that it takes while it lives, once it writes.
  static constexpr int64_t bytes(int64_t part) { return 2 * part * int64_t{sizeof(float)}; }

  // Writes folder/rank-<rank>.h5; the record says of each shard how many of its elements are not finite, which are
  // written like all others. A tensor may have several shards; empty shards are left out; the file may hold nothing at
  // all. On Error no file of this rank is left in the folder. Never waits for another rank.
  FileRecord write(const std::string& folder, int rank, std::span<const ShardToWrite> shards);

 private:
  struct LaidOut;

  const int64_t part_;
  std::unique_ptr<LaidOut> laid_out_;  // the last file; null: there was none
  DirectMemory memory_;
};

// Checks that the files are there and hold every element of every tensor, writes the manifest and renames the folder.
// An incomplete or damaged folder in the way is renamed to step-00000100.damaged-K; a complete one is an Error. On
// Error nothing is published, and `folder` is removed. Returns the path of the checkpoint.
std::string publish_checkpoint(const std::string& folder, Manifest manifest);

// Removes the unfinished folder, if it is there, so that the space it took is free again.
void abandon_checkpoint(const std::string& folder);

}  // namespace megalith
