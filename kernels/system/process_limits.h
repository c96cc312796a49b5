// Limits of this process (ulimit). A message names the limit that was reached; waiting does not change it.
#pragma once

#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <string_view>

namespace megalith {

// Returns whether a message names such a limit. Errors of other ranks are known only by their messages.
bool names_process_limit(std::string_view message);

// Returns the message of an error; for std::bad_alloc, "out of memory" and this process's limit.
std::string message_in_words(const std::exception& error);

// Throws Error in place of std::bad_alloc; `what` begins the message: "b.jsonl, line 2 (at byte 90)".
[[noreturn]] void throw_out_of_memory(const std::string& what);

// Makes all threads share one heap if addresses are limited. Otherwise each thread reserves 64 MiB of them, and glibc
// maps a page for every small block of a thread for which that fails.
void share_heap_under_limit();

// Throws the same Error if this process cannot allocate `bytes` more. For libraries that end the process when malloc
// fails.
void check_memory(size_t bytes, const std::string& what);

// Calls `work` and turns std::bad_alloc into that Error. `what` is called only then.
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
