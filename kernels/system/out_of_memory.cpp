#include "kernels/system/out_of_memory.h"

#include <sys/resource.h>

#include "kernels/system/check.h"
#include "kernels/system/units.h"

namespace megalith {

namespace {

std::string limit_in_words() {
  struct rlimit limit {};
  if (::getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    return fmt::format("this process may have {:.2f} GiB of addresses; allow it more (ulimit -v)",
                       gib(static_cast<int64_t>(limit.rlim_cur)));
  return "the system gives this process no more";
}

}  // namespace

std::string message_in_words(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error)) return "out of memory: " + limit_in_words();
  return error.what();
}

void throw_out_of_memory(const std::string& what) { FAIL("{} does not fit into memory: {}", what, limit_in_words()); }

}  // namespace megalith
