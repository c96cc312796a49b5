// The bytes of a text from front to back, as they are once decompressed: of a plain file, a pipe, or either compressed
// with gzip, zstd or xz. Several compressed streams in one file are read one after the other. A byte order mark at the
// front is no text: it is left out, and offsets count from what follows it.
//
// What the first bytes say counts, for no compressed stream begins like UTF-8 text; a file whose name says otherwise is
// refused. Memory: up to 128 MiB for zstd's window, 256 MiB for xz's.
//
// Errors name the file and its byte: data that is damaged or ends too early, a window that takes more memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "data/text_inputs.h"

namespace megalith {

class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // As many of the next bytes as are there, `most` at most, which is not 0; 0 at the end.
  virtual size_t read(char* out, size_t most) = 0;
  // Goes on so many bytes, or to the end.
  virtual void skip(int64_t bytes);
  // How many bytes of the file itself were read.
  virtual int64_t consumed() const = 0;
};

std::unique_ptr<ByteSource> open_bytes(const TextInput& input);

// Gives `head`, which was read from it before, and then what is left of it.
std::unique_ptr<ByteSource> with_head(std::string head, std::unique_ptr<ByteSource> rest);

}  // namespace megalith
