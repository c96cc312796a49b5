// The fastest of the GEMM library's kernels for shapes that were timed, by `bench_kernels --tune`, on one kind of GPU
// with one version of the library. kernels/gemm_tables/ holds such tables, which are built into the program; its README
// says how they come about. What an entry names means nothing to another version.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "kernels/base/gemm_shape.h"

namespace megalith {

struct GemmChoice {
  GemmShape shape;
  std::array<uint64_t, 8> algorithm{};  // the library's own words for its kernel (cublasLtMatmulAlgo_t)
  int64_t workspace = 0;                // bytes, that it said it needs
  // For people: the median time, that of the library's own first choice, how many were timed, and what this one is.
  double seconds = 0, first_seconds = 0;
  int64_t candidates = 0;
  std::string what;

  bool operator==(const GemmChoice&) const = default;
};

struct GemmTable {
  std::string gpu;      // its name, as the driver has it
  int64_t library = 0;  // cuBLASLt's version as a number: 130100 is 13.1.0
  std::string driver, date;
  std::vector<GemmChoice> choices;

  bool operator==(const GemmTable&) const = default;
};

// "13.1.0"
std::string gemm_library_version(int64_t number);

// JSON, a line for each choice. Error: what is read is no such table; it says what is wrong, and `name`.
std::string to_text(const GemmTable& table);
GemmTable read_gemm_table(const std::string& text, const std::string& name);

// Of this build.
const std::vector<GemmTable>& built_in_gemm_tables();

}  // namespace megalith
