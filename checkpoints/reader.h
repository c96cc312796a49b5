// Reads a checkpoint, whatever layout wrote it, into whatever layout is wanted.
//
// The datasets are read from where the manifest says they lie; the manifest covers itself and every dataset by
// checksum, so a changed byte is an Error or harmless, never other data. The HDF5 library, which was not made to
// survive damaged files, opens none: verify_checkpoint compares their structure with what the library writes anew.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "checkpoints/manifest.h"
#include "checkpoints/tensor_source.h"
#include "kernels/base/interval.h"
#include "kernels/system/files.h"

namespace megalith {

// Of the HDF5 library, "1.10.8".
std::string hdf5_version();

class CheckpointReader : public TensorSource {
 public:
  // Reads the manifest and checks that every file is there with its size; Damage names the one that is not.
  explicit CheckpointReader(const std::string& folder);

  const std::string& folder() const { return folder_; }
  const Manifest& manifest() const { return manifest_; }

  std::set<std::string> names() const;  // of all tensors
  bool holds(const std::string& name) const { return sources_.contains(name); }
  std::vector<int64_t> shape(const std::string& name) const override;
  DType dtype(const std::string& name) const;  // as it is stored; Error if absent

  // The first read of a dataset reads all of it and checks it; later ones read what they need: a chunk at a time, which
  // is no larger than what is wanted, or than least_chunk. It takes a chunk of memory and, where the columns of shards
  // differ, bytes_of_a_row for each row of them; one file is open at a time. Damage: file, dataset, expected and found
  // checksum.
  void read(const TensorShard& wanted, float* out) override;
  static constexpr int64_t least_chunk = int64_t{1} << 16;                             // elements
  static constexpr int64_t bytes_of_a_row = 3 * (sizeof(CopyRun) + sizeof(Interval));  // of vectors while they grow

 private:
  struct Source {
    std::string path;
    const DatasetRecord* record;  // in manifest_
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
  std::vector<std::string> damaged;  // one sentence for every damaged file or dataset; empty: all is well
};

// Reads every byte of every file, and needs what HDF5Layout does (hdf5_file.h). The manifest itself being damaged, or a
// file absent, is one entry as well: this throws only where it cannot read, or where the manifest, intact, is not one
// that this version reads.
VerifyReport verify_checkpoint(const std::string& folder);

// Returns what `megalith checkpoint inspect` prints: the step, values that are not finite, files, and a line for each
// value of the state and for each folder of tensors; with `all` every value, and every tensor with its shards.
std::string describe_checkpoint(const std::string& folder, bool all = false);

}  // namespace megalith
