// The fastest kernels of the GEMM library for shapes that `bench_kernels --tune` timed, for one GPU model and one
// version of the library. The tables in kernels/linear/gemm_tables/ (see its README) are built into the program.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "kernels/stream/gemm_shape.h"

namespace megalith {

struct GemmChoice {
  GemmShape shape;
  std::array<uint64_t, 8> algorithm{};  // cuBLASLt's cublasLtMatmulAlgo_t
  int64_t workspace = 0;                // bytes, as the library reported
  // For people: the median time, that of the library's first choice, the number of repetitions, and a description of
  // this kernel.
  double seconds = 0, first_seconds = 0;
  int64_t candidates = 0;
  std::string what;

  bool operator==(const GemmChoice&) const = default;
};

struct GemmTable {
  std::string gpu;      // as the driver names it
  int64_t library = 0;  // cuBLASLt's version as a number: 130100 is 13.1.0
  std::string driver, date;
  std::vector<GemmChoice> choices;

  bool operator==(const GemmTable&) const = default;
};

// "13.1.0"
std::string gemm_library_version(int64_t number);

// As JSON, one line for each choice. Error if a text is not such a table, with the reason and `name`.
std::string to_text(const GemmTable& table);
GemmTable read_gemm_table(const std::string& text, const std::string& name);

// The tables of this build.
const std::vector<GemmTable>& built_in_gemm_tables();

}  // namespace megalith
