// Limits of this process (ulimit): what they forbid is said with the limit, and waiting does not change it.
#pragma once

#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <string_view>

namespace megalith {

// Returns whether a message names such a limit. Errors of other ranks are known by their messages only.
bool names_process_limit(std::string_view message);

// Returns the message of an error; of std::bad_alloc "out of memory" and this process's limit.
std::string message_in_words(const std::exception& error);

// Throws Error for std::bad_alloc while something is done; `what` begins the message: "b.jsonl, line 2 (at byte 90)".
[[noreturn]] void throw_out_of_memory(const std::string& what);

// Lets all threads share one heap where addresses are limited. Else each reserves 64 MiB of them, and where that fails
// glibc maps a page for every small block.
void share_heap_under_limit();

// Throws that Error where this process cannot have so many bytes more, for a library that does not survive it.
void check_memory(size_t bytes, const std::string& what);

// Calls `work`, with that Error in place of std::bad_alloc. `what` is called only then.
template <class Work>
decltype(auto) with_memory_for(const std::function<std::string()>& what, Work work) {
  auto for_the_message = std::make_unique<std::byte[]>(32 << 10);
  try {
    return work();
  } catch (const std::bad_alloc&) {
    for_the_message.reset();
    throw_out_of_memory(what());
  }
}

}  // namespace megalith
