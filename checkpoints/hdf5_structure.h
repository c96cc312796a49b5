// What stands in a rank's file outside the elements, read without the HDF5 library: that was not made to survive files
// that somebody altered. Internal to this folder.
#pragma once

#include <string>
#include <vector>

#include "checkpoints/manifest.h"
#include "kernels/base/files.h"

namespace megalith {

// Compares a file with its record: the groups, and of each dataset the place, extent, type and attributes. Returns a
// sentence for each difference; of a structure that is not as HDF5Layout makes it, the first thing that is wrong.
//
// Read is what the library writes for our datasets and nothing else: superblock 0, groups as B-trees of symbol table
// nodes with names in local heaps, object headers of version 1 (HDF5 File Format Specification 3.0, II.A, III.A, III.D,
// IV.A). Links, filters, chunks, external files and shared messages are refused. Takes time and memory in proportion to
// the record, whatever the file holds.
std::vector<std::string> compare_structure(const File& file, const FileRecord& record);

}  // namespace megalith
