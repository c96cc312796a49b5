// Predicts the memory of a rank on the CPU outside its arenas.
//
// The memory of sums follows from the step's transfers. The other numbers were measured (Debian 12 with Open MPI 4.1
// and oneDNN 2.6 on x86-64; models of 0.1 to 4 million parameters, 1 to 8 threads, 1 to 8 ranks). The total is right
// within `process_memory_bound`. Pages of token files are not counted: the system reclaims them.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "kernels/stream/trace.h"
#include "trainer/communication/mesh_shape.h"

namespace megalith {

struct ProcessMemory {
  int64_t program = 0;  // the program's pages and libraries
  int64_t heap = 0;     // includes stacks and oneDNN's kernels
  int64_t sums = 0;     // parts that other ranks send to sums (trainer/communication/mpi.cpp)
  int64_t save = 0;     // buffers between the state and a checkpoint's file
  int64_t mpi = 0;      // MPI's libraries, heap and shared memory

  int64_t total() const { return program + heap + sums + save + mpi; }
  // Returns the part that is not allocated yet when the arenas are about to be.
  int64_t to_come() const { return heap + sums + save; }
  std::vector<std::pair<const char*, int64_t>> parts() const;  // by their names
};

constexpr int64_t process_memory_bound = int64_t{16} << 20;  // maximum error of the prediction in bytes
constexpr int64_t save_buffers = int64_t{32} << 20;          // a RankFileWriter's, with parts of the default size

// Predicts the memory of one rank: `step` has the transfers of its step, `saved` the bytes that it writes of a
// checkpoint.
ProcessMemory process_memory(const MeshShape& mesh, int rank, const std::vector<TraceEvent>& step, int64_t saved,
                             int threads);

}  // namespace megalith
