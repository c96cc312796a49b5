// What std::bad_alloc leaves out: for what memory was needed, and which limit stands in the way.
#pragma once

#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <string>

namespace megalith {

// Returns the message of an error; of std::bad_alloc "out of memory" and this process's limit.
std::string message_in_words(const std::exception& error);

// Throws Error for std::bad_alloc while something is done; `what` begins the message: "b.jsonl, line 2 (at byte 90)".
[[noreturn]] void throw_out_of_memory(const std::string& what);

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
