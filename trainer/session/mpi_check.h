// Checks the result of every MPI call. Only mpi_session.cpp and trainer/communication/mpi.cpp call MPI.
#pragma once

#include <mpi.h>

#include <limits>

#include "kernels/system/check.h"

namespace megalith {

inline void mpi_check(int status, const char* call) {
  if (status == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(status, text, &length);
  FAIL("{} failed: {}", call, text);
}
#define MPI_CHECK(call) ::megalith::mpi_check(call, #call)

inline int mpi_count(int64_t n) {
  CHECK(n <= std::numeric_limits<int>::max(), "a message of {} elements is larger than MPI's maximum; use more ranks",
        n);
  return static_cast<int>(n);
}

inline int mpi_rank(MPI_Comm comm) {
  int rank = 0;
  MPI_CHECK(MPI_Comm_rank(comm, &rank));
  return rank;
}
inline int mpi_size(MPI_Comm comm) {
  int size = 0;
  MPI_CHECK(MPI_Comm_size(comm, &size));
  return size;
}

}  // namespace megalith
