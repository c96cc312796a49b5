// Lays out a rank's file with the HDF5 library. The library reads no files, since altered ones may crash it. Inside
// checkpoints/ only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoints/manifest.h"
#include "kernels/system/files.h"

namespace megalith {

// A file of datasets as the library lays it out, in memory; elements are holes that take no memory. The result depends
// only on the arguments, not on times, process ids or the library's version (tried: 1.10.4 to 2.0.0). Needs /proc, and
// a limit on file sizes (ulimit -f) that allows this file.
class HDF5Layout {
 public:
  // Uses each record's shard and type; shards must not be empty. Nonzero offsets must match the layout (CorruptFile),
  // so that laying out a record again takes no more memory than its file has bytes.
  explicit HDF5Layout(const std::vector<DatasetRecord>& datasets);

  // Returns where each dataset's elements belong, ascending, parallel to the arguments.
  const std::vector<int64_t>& offsets() const { return offsets_; }
  // Returns all bytes that are not elements, in order, with the checksums, parallel to the arguments.
  std::string structure(const std::vector<uint64_t>& checksums) const;

 private:
  std::string structure_;  // contains placeholders for the checksums
  std::vector<int64_t> offsets_;
  std::vector<size_t> checksums_;  // offset of each dataset's checksum in the structure
};

// Returns all bytes of the file that are not elements of these datasets at these offsets, in order.
std::string structure_of(const File& file, const std::vector<DatasetRecord>& datasets,
                         const std::vector<int64_t>& offsets);

}  // namespace megalith
