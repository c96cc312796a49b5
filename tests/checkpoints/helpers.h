// The checkpoint tests share these: a temporary folder, tensors whose elements name themselves, and ways to cut them.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "checkpoints/reader.h"
#include "checkpoints/store.h"
#include "checkpoints/writer.h"
#include "kernels/system/check.h"
#include "kernels/system/files.h"
#include "kernels/tensor/tensor_shard.h"
#include "tests/message_of.h"

namespace megalith::test {

namespace fs = std::filesystem;

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (fs::temp_directory_path() / "megalith-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

inline void spill(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}
// Changes bytes where they lie; rewriting whole files makes some file systems flush them each time.
inline void poke(const std::string& path, size_t offset, const std::string& bytes) {
  std::fstream(path, std::ios::binary | std::ios::in | std::ios::out).seekp(static_cast<std::streamoff>(offset))
      << bytes;
}

// While it lives, this process can have so many files open beside those that are open already.
class FewFiles {
 public:
  explicit FewFiles(int more) {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const int lowest = ::dup(0);  // all below are taken
    ::close(lowest);
    struct rlimit few = before_;
    few.rlim_cur = static_cast<rlim_t>(lowest + more);
    ::setrlimit(RLIMIT_NOFILE, &few);
  }
  ~FewFiles() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  FewFiles(const FewFiles&) = delete;
  FewFiles& operator=(const FewFiles&) = delete;

 private:
  struct rlimit before_ {};
};

struct TestTensor {
  std::string name;
  std::vector<int64_t> shape;
  float offset;  // element i of the flattened tensor has the value offset + i
  bool by_columns;
};

inline std::vector<TestTensor> test_tensors() {
  return {{"parameters/wte.weight", {17, 6}, 0, false},   {"parameters/h.0.attn.c_proj.weight", {5, 12}, 1000, true},
          {"parameters/h.0.ln_1.bias", {6}, 2000, false}, {"moments/first/wte.weight", {17, 6}, 3000, false},
          {"moments/first/deep", {2, 3, 4}, 4000, true},  {"scalar", {1}, 5000, false}};
}

// Element by element, and so the definition of what a shard is.
inline std::vector<float> values_of(const TestTensor& t, const TensorShard& p) {
  std::vector<float> all, values;
  for (int64_t row = 0; row < p.rows(); row++)
    for (int64_t col = p.columns.begin; col < p.columns.end; col++)
      all.push_back(t.offset + static_cast<float>(row * p.cols() + col));
  for (int64_t i = p.elements.begin; i < p.elements.end; i++) values.push_back(all[static_cast<size_t>(i)]);
  return values;
}

// What rank `rank` of `tensor_degree * shards` holds: tensors that can be cut by columns into `tensor_degree` are,
// others are held by the first of them alone; the result is cut into `shards` flat ranges, the last of which may be
// empty.
inline TensorShard shard_of(const TestTensor& t, int rank, int tensor_degree, int shards) {
  TensorShard p = whole_tensor(t.name, t.shape);
  const int tensor_rank = rank % tensor_degree, shard = rank / tensor_degree;
  const bool cut = t.by_columns && p.cols() % tensor_degree == 0;
  if (cut) {
    const int64_t width = p.cols() / tensor_degree;
    p.columns = {tensor_rank * width, (tensor_rank + 1) * width};
  }
  const int64_t numel = p.rows() * p.columns.size(), each = (numel + shards - 1) / shards;
  p.elements.begin = std::min(numel, shard * each);
  p.elements.end = cut || tensor_rank == 0 ? std::min(numel, p.elements.begin + each) : p.elements.begin;
  return p;
}

inline FileRecord write_rank(const std::string& folder, int rank, int tensor_degree, int shards) {
  std::vector<std::vector<float>> data;
  std::vector<ShardToWrite> stored;
  for (const TestTensor& t : test_tensors()) {
    const TensorShard p = shard_of(t, rank, tensor_degree, shards);
    data.push_back(values_of(t, p));
    stored.push_back({p, data.back().data()});
  }
  return RankFileWriter().write(folder, rank, stored);
}

// The store in which a folder was begun.
inline CheckpointStore store_of(const std::string& folder) {
  return CheckpointStore(fs::path(folder).parent_path().string());
}

// A whole checkpoint of the test tensors, as all ranks together would write it.
inline std::string write_checkpoint(const std::string& directory, int64_t step, int tensor_degree = 1, int shards = 2) {
  const std::string folder = CheckpointStore(directory).begin(step);
  Manifest manifest;
  manifest.step = step;
  manifest.state = {{"samples", step * 10}, {"model", {{"layers", 1}}}};
  for (int rank = 0; rank < tensor_degree * shards; rank++)
    manifest.files.push_back(file_record_from_text(to_text(write_rank(folder, rank, tensor_degree, shards))));
  return store_of(folder).publish(folder, std::move(manifest));
}

// Reads everything as another layout; true when every element is right.
inline bool reads_right(TensorSource& source, int tensor_degree = 1, int shards = 1) {
  for (const TestTensor& t : test_tensors())
    for (int rank = 0; rank < tensor_degree * shards; rank++) {
      const TensorShard p = shard_of(t, rank, tensor_degree, shards);
      std::vector<float> out(static_cast<size_t>(p.numel()), -1.0f);
      source.read(p, out.data());
      if (out != values_of(t, p)) return false;
    }
  return true;
}

}  // namespace megalith::test
