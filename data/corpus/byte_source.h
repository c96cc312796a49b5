// Reads the decompressed bytes of a text in sequence: a plain file or a pipe, or either compressed with gzip, zstd or
// xz, also as several streams. A leading byte order mark is dropped, and offsets count from after it.
//
// The format is recognized by the first bytes, since no compressed stream begins like UTF-8 text; a file whose name
// contradicts them is refused. JSON lines that begin with [ are one array, whose elements are returned as lines.
// Memory: up to 128 MiB for zstd's window, 256 MiB for xz's. Errors name the file and the byte: data that is damaged or
// truncated, a window that takes more memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "data/corpus/text_inputs.h"

namespace megalith {

class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // Reads the next available bytes, at most `most` > 0; returns 0 at the end.
  virtual size_t read(char* out, size_t most) = 0;
  // Skips this many bytes, or to the end.
  virtual void skip(int64_t bytes);
  // Returns how many bytes of the file itself were read.
  virtual int64_t consumed() const = 0;
};

std::unique_ptr<ByteSource> open_bytes(const TextInput& input);

// Returns a source that returns `head`, which was read from `rest` before, and then `rest`.
std::unique_ptr<ByteSource> with_head(std::string head, std::unique_ptr<ByteSource> rest);

}  // namespace megalith
