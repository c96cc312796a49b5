// Reads a checkpoint, whatever layout wrote it, into any layout. Datasets are read from the offsets in the manifest,
// which covers itself and every dataset by checksum: a changed byte is an Error or harmless, never other data. The HDF5
// library, which may crash on damaged files, opens none: verify_checkpoint only lets it write structures anew.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "checkpoints/manifest.h"
#include "checkpoints/tensor_source.h"
#include "kernels/system/files.h"
#include "kernels/tensor/interval.h"

namespace megalith {

// Returns the HDF5 library's version, "1.10.8".
std::string hdf5_version();

class CheckpointReader : public TensorSource {
 public:
  // Reads the manifest and checks that every file exists with its size; CorruptFile names the first that does not.
  explicit CheckpointReader(const std::string& folder);

  const std::string& folder() const { return folder_; }
  const Manifest& manifest() const { return manifest_; }

  std::set<std::string> names() const;  // all tensors
  bool holds(const std::string& name) const { return sources_.contains(name); }
  std::vector<int64_t> shape(const std::string& name) const override;
  DType dtype(const std::string& name) const;  // as stored; Error if absent

  // The first read of a dataset reads and checks all of it; later reads take chunks, no larger than the requested range
  // or least_chunk. Needs memory for a chunk and, if the shards' columns differ, bytes_of_a_row for each of their rows;
  // one file is open at a time. CorruptFile names file, dataset, expected and found checksum.
  void read(const TensorShard& wanted, float* out) override;
  static constexpr int64_t least_chunk = int64_t{1} << 16;                             // elements
  static constexpr int64_t bytes_of_a_row = 3 * (sizeof(CopyRun) + sizeof(Interval));  // vectors while they grow

 private:
  struct Source {
    std::string path;
    const DatasetRecord* record;  // points into manifest_
    bool verified = false;
  };
  const DatasetRecord& first_of(const std::string& name) const;
  void copy_from(Source& source, const std::vector<CopyRun>& runs, int64_t chunk_elements, float* out);

  std::string folder_;
  Manifest manifest_;
  std::optional<File> open_;                            // one at a time
  std::map<std::string, std::vector<Source>> sources_;  // by tensor name
};

struct VerifyReport {
  int64_t num_files = 0;
  int64_t num_datasets = 0;
  int64_t bytes = 0;                 // read and checked
  std::vector<std::string> damaged;  // a sentence for every damaged file or dataset
};

// Reads every byte of every file, and has the needs of HDF5Layout (hdf5_file.h). A damaged manifest or an absent file
// is an entry as well. Throws only if it cannot read, or if an intact manifest has another version.
VerifyReport verify_checkpoint(const std::string& folder);

// Returns the output of `megalith checkpoint inspect`: the step, non-finite values, files, and a line for each value of
// the state and each folder of tensors. With `all`: every value, and every tensor with its shards.
std::string describe_checkpoint(const std::string& folder, bool all = false);

}  // namespace megalith
