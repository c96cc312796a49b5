// What HDF5's own library says of a rank's file, which only files that were found to be sound are shown to.
#pragma once

#include <string>

#include "checkpoints/manifest.h"

namespace megalith::fuzz {

// Empty where every dataset of the record is there with its place, extent, type and attributes; else the first that is
// not, or what the library says.
std::string library_view(const std::string& path, const FileRecord& record);

}  // namespace megalith::fuzz
