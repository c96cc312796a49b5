// The HDF5 side of a rank's file. Internal to this folder.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "checkpoints/manifest.h"

namespace megalith {

// What HDF5 would have written: where each dataset's elements belong, and all bytes that are not elements. The pages
// are 4 KiB each, by their offset, and are to be written before the elements, since a page may reach into a dataset;
// the last one may reach beyond the end of the file.
struct HDF5Layout {
  static constexpr int64_t page_bytes = 4096;
  using Pages = std::map<int64_t, std::array<char, page_bytes>>;
  std::vector<int64_t> offsets;  // parallel to the datasets given
  int64_t bytes = 0;             // of the file
  Pages pages;
};

// Lays out a file of these datasets in memory; uses piece, dataset and checksum of each, and touches no element. Pieces
// must not be empty. The result depends on the arguments only: no times, no process ids.
HDF5Layout lay_out_hdf5(const std::vector<DatasetRecord>& datasets);

// Opens a file with the HDF5 library and compares what it says with the record: offset, extent, type and attributes of
// each dataset. Returns a sentence for each difference. Call it on files whose structure checksum is right.
std::vector<std::string> compare_with_hdf5(const std::string& path, const FileRecord& record);

}  // namespace megalith
