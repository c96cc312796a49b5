#include "kernels/system/large_write.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace megalith {

DirectMemory::DirectMemory(int64_t bytes) : bytes_(bytes) {
  void* const p =
      ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(p != MAP_FAILED, "cannot allocate a write buffer of {} bytes: {}", bytes, std::strerror(errno));
  data_ = static_cast<char*>(p);
  ::madvise(p, static_cast<size_t>(bytes), MADV_HUGEPAGE);  // ignored if the system has no huge pages
}

DirectMemory::~DirectMemory() { ::munmap(data_, static_cast<size_t>(bytes_)); }

LargeWrite::LargeWrite(File& file, const DirectMemory& memory)
    : file_(file),
      memory_(memory),
      part_bytes_(memory.bytes() / int64_t{at_once} / File::direct_block * File::direct_block) {
  CHECK(part_bytes_ > 0, "writing {} takes more than {} bytes of memory", file.path(), memory.bytes());
  file_.write_directly(true);
}

LargeWrite::~LargeWrite() {
  for (std::future<void>& write : writes_)
    if (write.valid()) write.wait();
  file_.write_directly(false);
}

void LargeWrite::begin_write() {
  writes_[part_] = std::async(std::launch::async,
                              [this, offset = begun_, from = part()] { file_.write(offset, from, part_bytes_); });
  begun_ += part_bytes_;
  filled_ = 0;
  part_ = (part_ + 1) % at_once;
  if (std::future<void>& earlier = writes_[part_]; earlier.valid()) earlier.get();
}

char* LargeWrite::room_for(int64_t& bytes) {
  if (filled_ == part_bytes_) begin_write();
  bytes = std::min(bytes, part_bytes_ - filled_);
  filled_ += bytes;
  return part() + filled_ - bytes;
}

void LargeWrite::append(const void* data, int64_t bytes) {
  const auto* from = static_cast<const char*>(data);
  for (int64_t rest = bytes, some; rest > 0; rest -= some, from += some) {
    some = rest;
    char* to = room_for(some);
    std::memcpy(to, from, static_cast<size_t>(some));
  }
}

void LargeWrite::append_zeros(int64_t bytes) {
  for (int64_t rest = bytes, some; rest > 0; rest -= some) {
    some = rest;
    char* to = room_for(some);
    std::memset(to, 0, static_cast<size_t>(some));
  }
}

void LargeWrite::finish() {
  for (std::future<void>& write : writes_)
    if (write.valid()) write.get();
  file_.write_directly(false);  // the rest may not fill a block
  if (filled_ > 0) file_.write(begun_, part(), filled_);
  begun_ += std::exchange(filled_, 0);
}

}  // namespace megalith
