#include "kernels/system/process_limits.h"

#include <malloc.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "kernels/system/check.h"
#include "kernels/system/units.h"

namespace megalith {

namespace {

std::string limit_in_words() {
  struct rlimit limit {};
  if (::getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    return fmt::format("this process may have {:.2f} GiB of address space; allow it more (ulimit -v)",
                       gib(static_cast<int64_t>(limit.rlim_cur)));
  return "the system gives this process no more";
}

}  // namespace

bool names_process_limit(std::string_view message) { return message.find("(ulimit -") != std::string_view::npos; }

std::string message_in_words(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error)) return "out of memory: " + limit_in_words();
  return error.what();
}

void throw_out_of_memory(const std::string& what) { FAIL("{} does not fit into memory: {}", what, limit_in_words()); }

void check_memory(size_t bytes, const std::string& what) {
  void* const room = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (room == MAP_FAILED) throw_out_of_memory(what);
  ::munmap(room, bytes);
}

void share_heap_under_limit() {
#ifdef M_ARENA_MAX
  struct rlimit limit {};
  if (::getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) ::mallopt(M_ARENA_MAX, 1);
#endif
}

}  // namespace megalith
