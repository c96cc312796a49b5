#pragma once

#include <cstddef>
#include <exception>

namespace megalith {

// Calls work(i) for each i below count, in any order, and rethrows the first error after all have ended.
template <class Work>
void in_parallel(size_t count, Work work) {
  std::exception_ptr error;
#pragma omp parallel for schedule(dynamic) if (count > 1)
  for (size_t i = 0; i < count; i++) {
    try {
      work(i);
    } catch (...) {
#pragma omp critical
      if (!error) error = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace megalith
