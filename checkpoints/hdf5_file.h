// The HDF5 library lays out a rank's file. No file is read with it, since it was not made to
// survive files that somebody altered. Internal to this folder.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoints/manifest.h"
#include "kernels/system/files.h"

namespace megalith {

// A file of datasets as the library lays it out, in memory; it takes no memory for elements, which are holes in it. The
// result depends on the arguments only: no times, no process ids, and not on the library's version (1.10.4 to 2.0.0
// were tried). Making one needs /proc, and a limit on the size of files (ulimit -f) that allows one of this size.
class HDF5Layout {
 public:
  // Uses shard, type and dataset of each. Shards must not be empty. Offsets that are not 0 have to be those of the
  // layout (Damage): so laying out again what a record lists takes no more than there is in its file.
  explicit HDF5Layout(const std::vector<DatasetRecord>& datasets);

  // Where each dataset's elements belong, parallel to those given, and ascending.
  const std::vector<int64_t>& offsets() const { return offsets_; }
  // All bytes of the file that are not elements, in their order, with the elements' checksums, parallel as well.
  std::string structure(const std::vector<uint64_t>& checksums) const;

 private:
  std::string structure_;  // with other numbers for checksums
  std::vector<int64_t> offsets_;
  std::vector<size_t> checksums_;  // where each dataset's stands in the structure
};

// All bytes of the file that are not elements of these datasets at these offsets, in their order.
std::string structure_of(const File& file, const std::vector<DatasetRecord>& datasets,
                         const std::vector<int64_t>& offsets);

}  // namespace megalith
