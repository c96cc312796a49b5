// Bytes of a file from its beginning on, past the system's cache where that can be: what is large and not read again
// soon then costs little of the processor's time and none of the cache.
#pragma once

#include <array>
#include <future>

#include "kernels/system/files.h"

namespace megalith {

// Memory that is written to files past the system's cache: in huge pages where the system has them, of which a disk
// takes up to twice as many bytes a second. To be used for one file after another, since the system takes longer to
// hand it over than it takes to fill it.
class DirectMemory {
 public:
  explicit DirectMemory(int64_t bytes);
  ~DirectMemory();
  DirectMemory(const DirectMemory&) = delete;
  DirectMemory& operator=(const DirectMemory&) = delete;

  char* data() const { return data_; }  // a multiple of File::direct_block
  int64_t bytes() const { return bytes_; }

 private:
  int64_t bytes_;
  char* data_;
};

// Parts are written by threads of their own, several at once: where all processors compute, one that writes waits long
// for its turn, and the disk would wait with it. So an error may come with a later call.
class LargeWrite {
 public:
  // The memory, of 64 KiB or more, is for nobody else meanwhile.
  LargeWrite(File& file, const DirectMemory& memory);
  ~LargeWrite();  // waits for the threads
  LargeWrite(const LargeWrite&) = delete;
  LargeWrite& operator=(const LargeWrite&) = delete;

  int64_t bytes() const { return begun_ + filled_; }  // so far
  void append(const void* data, int64_t bytes);
  void append_zeros(int64_t bytes);
  void finish();  // all is written, though not flushed

 private:
  char* part() const { return memory_.data() + static_cast<int64_t>(part_) * part_bytes_; }
  // Where the next bytes belong: `bytes` of them or fewer, which becomes their number.
  char* room_for(int64_t& bytes);
  void begin_write();

  File& file_;
  const DirectMemory& memory_;
  static constexpr size_t at_once = 4;
  const int64_t part_bytes_;
  std::array<std::future<void>, at_once> writes_;  // of each part of the memory
  size_t part_ = 0;                                // that is filled
  int64_t begun_ = 0;                              // bytes of the file that are written or about to be
  int64_t filled_ = 0;                             // bytes of the part
};

}  // namespace megalith
