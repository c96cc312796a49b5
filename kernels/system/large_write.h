// Writes a file's bytes in sequence, bypassing the page cache where possible: large files that are not read again soon
// then cost little CPU time and no cache.
#pragma once

#include <array>
#include <future>

#include "kernels/system/files.h"

namespace megalith {

// A buffer for direct writes, in huge pages if the system has them: with these a disk takes up to twice as many bytes a
// second. Reuse it for many files, since allocating it takes longer than filling it.
class DirectMemory {
 public:
  explicit DirectMemory(int64_t bytes);
  ~DirectMemory();
  DirectMemory(const DirectMemory&) = delete;
  DirectMemory& operator=(const DirectMemory&) = delete;

  char* data() const { return data_; }  // aligned to File::direct_block
  int64_t bytes() const { return bytes_; }

 private:
  int64_t bytes_;
  char* data_;
};

// Several threads write parts at once: while all cores compute, a single writing thread would wait long for its turn,
// and the disk with it. An error may therefore surface in a later call.
class LargeWrite {
 public:
  // The memory, at least 64 KiB, must not be used otherwise during the write.
  LargeWrite(File& file, const DirectMemory& memory);
  ~LargeWrite();  // waits for the threads
  LargeWrite(const LargeWrite&) = delete;
  LargeWrite& operator=(const LargeWrite&) = delete;

  int64_t bytes() const { return begun_ + filled_; }  // so far
  void append(const void* data, int64_t bytes);
  void append_zeros(int64_t bytes);
  void finish();  // writes the rest, without a flush

 private:
  char* part() const { return memory_.data() + static_cast<int64_t>(part_) * part_bytes_; }
  // Returns memory for the next bytes: at most `bytes`, which is set to its size.
  char* room_for(int64_t& bytes);
  void begin_write();

  File& file_;
  const DirectMemory& memory_;
  static constexpr size_t at_once = 4;
  const int64_t part_bytes_;
  std::array<std::future<void>, at_once> writes_;  // one for each part of the memory
  size_t part_ = 0;                                // the one being filled
  int64_t begun_ = 0;                              // bytes of the file that are written or in flight
  int64_t filled_ = 0;                             // bytes in the current part
};

}  // namespace megalith
