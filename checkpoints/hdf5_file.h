// What the HDF5 library does for a rank's file: it lays it out. No file is read with it (hdf5_structure.h). Internal to
// this folder.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "checkpoints/manifest.h"
#include "kernels/base/files.h"

namespace megalith {

// A file of datasets as the library lays it out, in memory; it takes no memory for elements, which are holes in it. The
// result depends on the arguments only: no times, no process ids. Needs /proc, and a limit on the size of files
// (ulimit -f) that allows one of this size.
class HDF5Layout {
 public:
  // Uses piece and dataset of each. Pieces must not be empty.
  explicit HDF5Layout(const std::vector<DatasetRecord>& datasets);
  ~HDF5Layout();

  // Where each dataset's elements belong, parallel to those given, and ascending.
  const std::vector<int64_t>& offsets() const { return offsets_; }
  // Once, when the elements' checksums are known, parallel as well: the file with all bytes that are not elements. It
  // lives as long as this.
  const File& finish(const std::vector<uint64_t>& checksums);

 private:
  struct Library;  // what it has open

  File file_ = File::in_memory();
  std::unique_ptr<Library> library_;
  std::vector<int64_t> offsets_;
};

}  // namespace megalith
