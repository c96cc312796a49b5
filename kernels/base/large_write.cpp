#include "kernels/base/large_write.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

namespace megalith {

void LargeWrite::Freed::operator()(char* memory) const {
  ::operator delete[](memory, std::align_val_t{File::direct_block});
}

LargeWrite::LargeWrite(File& file, int64_t memory)
    : file_(file), part_bytes_(memory / int64_t{at_once} / File::direct_block * File::direct_block) {
  CHECK(part_bytes_ > 0, "writing {} takes more than {} bytes of memory", file.path(), memory);
  file_.write_directly(true);
}

LargeWrite::~LargeWrite() {
  for (Part& part : parts_)
    if (part.write.valid()) part.write.wait();
  file_.write_directly(false);
}

void LargeWrite::begin_write() {
  parts_[part_].write = std::async(std::launch::async, [this, offset = begun_, from = parts_[part_].memory.get()] {
    file_.write(offset, from, part_bytes_);
  });
  begun_ += part_bytes_;
  filled_ = 0;
  part_ = (part_ + 1) % parts_.size();
  if (std::future<void>& earlier = parts_[part_].write; earlier.valid()) earlier.get();
}

char* LargeWrite::room_for(int64_t& bytes) {
  if (filled_ == part_bytes_) begin_write();
  auto& memory = parts_[part_].memory;
  if (!memory) memory.reset(new (std::align_val_t{File::direct_block}) char[part_bytes_]);
  bytes = std::min(bytes, part_bytes_ - filled_);
  filled_ += bytes;
  return memory.get() + filled_ - bytes;
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
  for (Part& part : parts_)
    if (part.write.valid()) part.write.get();
  file_.write_directly(false);  // the rest may be no whole block
  if (filled_ > 0) file_.write(begun_, parts_[part_].memory.get(), filled_);
  begun_ += std::exchange(filled_, 0);
}

}  // namespace megalith
