// What the HDF5 library does for a rank's file: it lays it out. No file is read with it (hdf5_structure.h). Internal to
// this folder.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoints/manifest.h"
#include "kernels/base/files.h"

namespace megalith {

// What HDF5 writes: where each dataset's elements belong, and a file in memory with all bytes that are not elements.
// Those are holes in it, which take no memory.
struct HDF5Layout {
  std::vector<int64_t> offsets;  // parallel to the datasets given
  int64_t bytes = 0;             // of the file
  File file = File::in_memory();
};

// Lays out a file of these datasets in memory; uses piece, dataset and checksum of each, and touches no element. Pieces
// must not be empty. The result depends on the arguments only: no times, no process ids. Needs /proc, and a limit on
// the size of files (ulimit -f) that allows one of this size.
HDF5Layout lay_out_hdf5(const std::vector<DatasetRecord>& datasets);

}  // namespace megalith
