#include "checkpoints/writer.h"

#include <algorithm>

#include "checkpoints/checksum.h"
#include "checkpoints/hdf5_file.h"
#include "kernels/system/files.h"
#include "kernels/system/large_write.h"
#include "kernels/tensor/finite.h"

namespace megalith {
namespace {

constexpr int64_t cached = int64_t{1} << 15;  // bytes that stay in the first cache

// Appends the elements and counts non-finite ones, reading memory once. Returns their checksum.
uint64_t append_elements(const ShardToWrite& stored, int64_t part, DatasetRecord& record, LargeWrite& file) {
  Checksum checksum;
  const int64_t numel = stored.shard.numel(), size = size_of(stored.dtype);
  for (int64_t begin = 0; begin < numel; begin += part) {
    const int64_t end = std::min(begin + part, numel), bytes = (end - begin) * size;
    stored.show(begin, end, [&](const void* elements) {
      for (int64_t at = 0; at < bytes; at += cached) {
        const char* here = static_cast<const char*>(elements) + at;
        const int64_t count = std::min(cached, bytes - at);
        checksum.add(here, count);
        record.not_finite += count_not_finite(here, stored.dtype, count / size);
        file.append(here, count);
      }
    });
  }
  return checksum.value();
}

// Writes the bytes outside the datasets, each at its offset.
void write_structure(const std::string& structure, const std::vector<DatasetRecord>& datasets, File& file) {
  size_t written = 0;
  int64_t position = 0;
  const auto write = [&](size_t count) {
    file.write(position, structure.data() + written, static_cast<int64_t>(count));
    written += count;
  };
  for (const DatasetRecord& d : datasets) {
    write(static_cast<size_t>(d.offset - position));
    position = d.offset + d.bytes();
  }
  write(structure.size() - written);
}

}  // namespace

struct RankFileWriter::LaidOut {
  explicit LaidOut(std::vector<DatasetRecord> of) : datasets(std::move(of)), layout(datasets) {}

  const std::vector<DatasetRecord> datasets;
  const HDF5Layout layout;
};

RankFileWriter::RankFileWriter(int64_t part) : part_(part), memory_(bytes(part)) {}
RankFileWriter::~RankFileWriter() = default;

FileRecord RankFileWriter::write(const std::string& folder, int rank, std::span<const ShardToWrite> shards) {
  CHECK(rank >= 0, "a file of rank {}", rank);
  FileRecord record;
  record.name = fmt::format("rank-{:05}.h5", rank);
  std::vector<const ShardToWrite*> stored;
  std::map<std::string, int> shards_of;
  int64_t element_bytes = 0;
  for (const ShardToWrite& p : shards) {
    check_shard(p.shard);
    if (p.shard.numel() == 0) continue;
    CHECK(p.show, "no data for {}", describe(p.shard));
    const int k = shards_of[p.shard.name]++;
    record.datasets.push_back(
        {.shard = p.shard, .dtype = p.dtype, .dataset = k ? fmt::format("{}#{}", p.shard.name, k) : p.shard.name});
    stored.push_back(&p);
    element_bytes += record.datasets.back().bytes();
  }

  // Detects a full disk, or a limit on files, before anything is read and before HDF5 could meet it.
  NewFile file(folder + "/" + record.name);
  file.reserve(element_bytes);
  if (!laid_out_ || laid_out_->datasets != record.datasets) laid_out_ = std::make_unique<LaidOut>(record.datasets);
  const HDF5Layout& layout = laid_out_->layout;
  for (size_t i = 0; i < stored.size(); i++) record.datasets[i].offset = layout.offsets()[i];
  if (!stored.empty()) file.reserve(record.datasets.back().offset + record.datasets.back().bytes());
  std::vector<uint64_t> checksums;
  LargeWrite large(file, memory_);
  for (size_t i = 0; i < stored.size(); i++) {
    DatasetRecord& d = record.datasets[i];
    large.append_zeros(d.offset - large.bytes());  // the structure is written here last, since it needs the checksums
    d.checksum = append_elements(*stored[i], part_, d, large);
    checksums.push_back(d.checksum);
  }
  large.finish();
  const std::string structure = layout.structure(checksums);
  record.bytes = element_bytes + static_cast<int64_t>(structure.size());
  record.structure = checksum_of(structure.data(), static_cast<int64_t>(structure.size()));
  write_structure(structure, record.datasets, file);
  file.publish();
  return record;
}

}  // namespace megalith
