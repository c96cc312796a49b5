// The HDF5 side of a rank's file. Internal to this folder.
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

// Opens a file with the HDF5 library and compares what it says with the record: offset, extent, type and attributes of
// each dataset. Returns a sentence for each difference. Call it on files whose structure checksum is right.
std::vector<std::string> compare_with_hdf5(const std::string& path, const FileRecord& record);

}  // namespace megalith
