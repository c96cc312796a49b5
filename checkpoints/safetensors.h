// The safetensors file format (https://github.com/huggingface/safetensors, README, "Format"): eight bytes of header
// length, a JSON header, and dense tensors. The reader trusts nothing in the header.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "kernels/system/files.h"
#include "kernels/system/mapped_file.h"
#include "kernels/tensor/tensor.h"

namespace megalith {

// A file, memory-mapped for reading. Opening checks the header, that the tensors fill the file without gap or overlap,
// and that their sizes match shape and type. The file must not change while it is open.
class SafeTensors {
 public:
  struct Entry {
    std::string dtype;  // as in the file: "F32", "F16", "BF16", "U8", ...
    std::vector<int64_t> shape;
    int64_t begin = 0;  // bytes [begin, end) of the file
    int64_t end = 0;
    int64_t numel = 0;
  };

  explicit SafeTensors(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const std::map<std::string, Entry>& entries() const { return entries_; }
  const Entry& entry(const std::string& name) const;  // Error if absent

  // Reads `count` elements, `stride` apart, from element `first` of the flattened tensor as floats: F32, F16 or BF16.
  void read(const std::string& name, int64_t first, int64_t stride, int64_t count, float* out) const;

 private:
  MappedFile file_;
  std::map<std::string, Entry> entries_;
};

// Writes a new file of F32 or BF16 tensors, in the order declared, under a temporary name until finish(). Never
// overwrites; a writer destroyed before finish() leaves no file.
class SafeTensorsWriter {
 public:
  struct Declared {
    std::string name;
    std::vector<int64_t> shape;
  };
  SafeTensorsWriter(const std::string& path, const std::vector<Declared>& tensors, DType type = DType::f32);

  void append(const float* data, int64_t count);  // the next elements, in any portions
  void finish();                                  // Error unless all elements came; fsync, rename

 private:
  NewFile file_;
  DType type_;
  int64_t position_ = 0;  // position in the file
  int64_t bytes_ = 0;     // the file's size
};

}  // namespace megalith
