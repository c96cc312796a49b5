// Reads the tensors of a reference, which other programs wrote with HDF5's own library, and compares ours with them.
#pragma once

#include <string>
#include <vector>

namespace megalith::e2e {

using Values = std::vector<float>;

// Fails the test if there is no such dataset.
Values read_hdf5(const std::string& path, const std::string& name);

// Returns the norm of the difference over that of `expected`; infinity where their sizes differ.
double relative_error(const Values& found, const Values& expected);

}  // namespace megalith::e2e
