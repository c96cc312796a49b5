// Writes a checkpoint. One process or many take part, and the caller orders the steps between them:
//
//   rank 0     folder = begin_checkpoint(directory, step)                 DIR/.step-00000100.partial
//   all        record = writer.write(folder, rank, shards)                folder/rank-00003.h5
//   rank 0     publish_checkpoint(folder, {step, state, all records})     DIR/step-00000100
//   or, when any rank failed, once all have returned:  rank 0  abandon_checkpoint(folder)
//
// If power, process or disk fails at any moment, DIR holds the checkpoints it held before, and the new one is complete
// or absent: each file is written under a temporary name, fsynced and renamed, the manifest last, and then the folder
// likewise. Nothing here overwrites or deletes a published checkpoint.
//
// HDF5 lays the file out in memory (headers and offsets only). The bytes are written here, the elements past the page
// cache, so that a full disk cannot leave the HDF5 library with a file that it can neither flush nor close. Space is
// reserved before the first byte is written, and elements are read once. Errors name the path, the bytes wanted, those
// available and the remedy. Equal shards give equal bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "checkpoints/manifest.h"
#include "kernels/system/files.h"
#include "kernels/system/large_write.h"
#include "kernels/tensor/tensor_shard.h"

namespace megalith {

// Starts the HDF5 library and lays out a small file, so that what it lacks (memory, under ulimit -v) is said before a
// run begins and not at its first save. Error: it does not start.
void start_hdf5();

struct ShardToWrite {
  // show(begin, end, use) calls use(p) with elements [begin, end) of the shard, of its type, valid during the call. It
  // is called for one range after another, so that elements may lie where the host cannot read them.
  using Show = std::function<void(int64_t begin, int64_t end, const std::function<void(const void*)>& use)>;

  ShardToWrite(TensorShard p, DType type, Show s) : shard(std::move(p)), dtype(type), show(std::move(s)) {}
  // Takes shard.numel() elements in the caller's memory.
  ShardToWrite(TensorShard p, const float* data) : shard(std::move(p)) {
    if (data) show = [data](int64_t begin, int64_t, const auto& use) { use(data + begin); };
  }

  TensorShard shard;
  DType dtype = DType::f32;  // or bf16
  Show show;
};

// DIR/step-00000100
std::string checkpoint_path(const std::string& directory, int64_t step);

// Creates `directory` if needed and, in it, the folder for the rank files; removes what an earlier crash left there.
// Error if a complete checkpoint of this step exists.
std::string begin_checkpoint(const std::string& directory, int64_t step);

// Writes ranks' files one after another. Reuses its memory, and the layout of equal shards.
class RankFileWriter {
 public:
  // The default number of elements asked for at a time.
  static constexpr int64_t usual_part = int64_t{4} << 20;
  explicit RankFileWriter(int64_t part = usual_part);
  ~RankFileWriter();

  // Returns the memory that a writer takes once it writes.
  static constexpr int64_t bytes(int64_t part) { return 2 * part * int64_t{sizeof(float)}; }

  // Writes folder/rank-<rank>.h5; the record counts each shard's non-finite elements, which are written like all
  // others. A tensor may have several shards; empty shards are left out; the file may be empty. After an Error no file
  // of this rank is left in the folder. Never waits for another rank.
  FileRecord write(const std::string& folder, int rank, std::span<const ShardToWrite> shards);

 private:
  struct LaidOut;

  const int64_t part_;
  std::unique_ptr<LaidOut> laid_out_;  // of the last file, or null
  DirectMemory memory_;
};

// Checks that the files are there and hold every element of every tensor, writes the manifest and renames the folder.
// Renames an incomplete or damaged folder in the way to step-00000100.damaged-K; a complete one is an Error. After an
// Error nothing is published, and `folder` is removed. Returns the checkpoint's path.
std::string publish_checkpoint(const std::string& folder, Manifest manifest);

// Removes the unfinished folder, if it is there, to free its space.
void abandon_checkpoint(const std::string& folder);

}  // namespace megalith
