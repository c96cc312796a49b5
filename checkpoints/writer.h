// Writes a checkpoint. One process or many take part, and the caller orders the steps between them:
//
//   rank 0     folder = store.begin(step)                                 DIR/.step-00000100.partial
//   all        record = writer.write(folder, rank, shards)                folder/rank-00003.h5
//   rank 0     store.publish(folder, {step, state, all records})          DIR/step-00000100
//   or, when any rank failed, once all have returned:  rank 0  store.remove(folder)
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

// Starts the HDF5 library and lays out a small file, so that a lack of memory (under ulimit -v) is reported before a
// run begins and not at its first save. Error: the library does not start.
void start_hdf5();

struct ShardToWrite {
  // show(begin, end, use) calls use(p) with elements [begin, end) of the shard, of its type, valid during the call. It
  // is called for one range after another, so that elements may be in memory that the host cannot read.
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

// Writes ranks' files one after another. Reuses its memory, and the layout of equal shards.
class RankFileWriter {
 public:
  // The default number of elements requested at a time.
  static constexpr int64_t usual_part = int64_t{4} << 20;
  explicit RankFileWriter(int64_t part = usual_part);
  ~RankFileWriter();

  // Returns the memory that a writer takes while it writes.
  static constexpr int64_t bytes(int64_t part) { return 2 * part * int64_t{sizeof(float)}; }

  // Writes folder/rank-<rank>.h5. The record counts each shard's non-finite elements, which are written like all
  // others. A tensor may have several shards; empty shards are left out; the file may be empty. After an Error no file
  // of this rank is left in the folder. Never waits for another rank.
  FileRecord write(const std::string& folder, int rank, std::span<const ShardToWrite> shards);

 private:
  struct LaidOut;

  const int64_t part_;
  std::unique_ptr<LaidOut> laid_out_;  // the last file's, or null
  DirectMemory memory_;
};

}  // namespace megalith
