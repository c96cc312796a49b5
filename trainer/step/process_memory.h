// The memory of a rank on the CPU that lies in none of its arenas: what the process takes beside them, predicted.
//
// The sums' part follows from the step's transfers. The others are what was measured (Debian 12 with Open MPI 4.1 and
// oneDNN 2.6 on x86-64; models of 0.1 to 4 million parameters, 1 to 8 threads, 1 to 8 ranks), so that all together is
// right within `process_memory_bound`. Pages of token files are not counted: the system takes them back.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "kernels/stream/trace.h"
#include "trainer/communication/mesh_shape.h"

namespace megalith {

struct ProcessMemory {
  int64_t program = 0;  // its pages and its libraries'
  int64_t heap = 0;     // stacks and oneDNN's kernels included
  int64_t sums = 0;     // what other ranks send to sums (trainer/communication/mpi.cpp)
  int64_t save = 0;     // buffers on the way to a checkpoint's file
  int64_t mpi = 0;      // its libraries, heap and shared memory

  int64_t total() const { return program + heap + sums + save + mpi; }
  // Counts what is not yet taken when the arenas are about to be.
  int64_t to_come() const { return heap + sums + save; }
  std::vector<std::pair<const char*, int64_t>> parts() const;  // by their names
};

constexpr int64_t process_memory_bound = int64_t{16} << 20;  // bytes that the prediction may be off
constexpr int64_t save_buffers = int64_t{32} << 20;          // of a RankFileWriter, of usual parts

// Predicts one rank's: `step` are the transfers of its step, `saved` is what it writes of a checkpoint, in bytes.
ProcessMemory process_memory(const MeshShape& mesh, int rank, const std::vector<TraceEvent>& step, int64_t saved,
                             int threads);

}  // namespace megalith
