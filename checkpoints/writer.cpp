#include "checkpoints/writer.h"

#include <algorithm>
#include <filesystem>
#include <numeric>

#include "checkpoints/checksum.h"
#include "checkpoints/directory.h"
#include "checkpoints/hdf5_file.h"
#include "kernels/base/files.h"
#include "kernels/base/finite.h"

namespace megalith {
namespace {

namespace fs = std::filesystem;

constexpr int64_t part_elements = int64_t{4} << 20;

// Calls use(first byte, bytes, elements) for all of the piece, in order.
template <class Use>
void in_parts(const StoredPiece& stored, Use use) {
  const int64_t numel = stored.piece.numel(), size = size_of(stored.dtype);
  for (int64_t begin = 0; begin < numel; begin += part_elements) {
    const int64_t end = std::min(begin + part_elements, numel);
    stored.show(begin, end, [&](const void* elements) { use(begin * size, (end - begin) * size, elements); });
  }
}

// Of all its elements: both the checksum and how many are not finite, block by block, so that memory is read once.
struct Content {
  uint64_t checksum;
  int64_t not_finite;
};
Content content_of(const StoredPiece& stored) {
  constexpr int64_t block = int64_t{1} << 15;  // bytes: they stay in the first cache
  Checksum checksum;
  int64_t not_finite = 0;
  in_parts(stored, [&](int64_t, int64_t bytes, const void* elements) {
    for (int64_t at = 0; at < bytes; at += block) {
      const char* here = static_cast<const char*>(elements) + at;
      const int64_t size = std::min(block, bytes - at);
      checksum.add(here, size);
      not_finite += count_not_finite(here, stored.dtype, size / size_of(stored.dtype));
    }
  });
  return {checksum.value(), not_finite};
}

// Copies all bytes outside the datasets, which are sorted by offset, and returns their checksum.
uint64_t copy_structure(const HDF5Layout& layout, const std::vector<DatasetRecord>& datasets, File& file) {
  Checksum checksum;
  std::vector<char> bytes;
  int64_t position = 0;
  const auto copy_until = [&](int64_t end) {
    bytes.resize(static_cast<size_t>(end - position));
    layout.file.read(position, bytes.data(), end - position);
    file.write(position, bytes.data(), end - position);
    checksum.add(bytes.data(), end - position);
  };
  for (const DatasetRecord& d : datasets) {
    copy_until(d.offset);
    position = d.offset + d.bytes();
  }
  copy_until(layout.bytes);
  return checksum.value();
}

}  // namespace

std::string checkpoint_path(const std::string& directory, int64_t step) {
  return fmt::format("{}/step-{:08}", directory, step);
}

std::string begin_checkpoint(const std::string& directory, int64_t step) {
  CHECK(step >= 0, "a checkpoint of step {}", step);
  const std::string target = checkpoint_path(directory, step);
  CHECK(!why_of_no_use(target).empty(),
        "{} is a complete checkpoint and is not overwritten; resume from it, or choose another directory", target);
  const std::string folder = fmt::format("{}/.step-{:08}.partial", directory, step);
  remove_all(folder);
  const std::string remedy = "may this user write checkpoints there?";
  if (std::error_code ignored; !fs::exists(directory, ignored)) make_folders(directory, remedy);
  make_folder(folder, remedy);
  return folder;
}

FileRecord write_rank_file(const std::string& folder, int rank, std::span<const StoredPiece> pieces) {
  CHECK(rank >= 0, "a file of rank {}", rank);
  FileRecord record;
  record.name = fmt::format("rank-{:05}.h5", rank);
  std::vector<const StoredPiece*> stored;
  std::map<std::string, int> pieces_of;
  int64_t element_bytes = 0;
  for (const StoredPiece& p : pieces) {
    check_piece(p.piece);
    if (p.piece.numel() == 0) continue;
    CHECK(p.show, "no data for {}", describe(p.piece));
    const int k = pieces_of[p.piece.name]++;
    record.datasets.push_back(
        {.piece = p.piece, .dtype = p.dtype, .dataset = k ? fmt::format("{}#{}", p.piece.name, k) : p.piece.name});
    stored.push_back(&p);
    element_bytes += record.datasets.back().bytes();
  }

  // A full disk, or a limit on files, is known before anything is read and before HDF5 meets it.
  NewFile file(folder + "/" + record.name);
  file.reserve(element_bytes);
  for (size_t i = 0; i < stored.size(); i++) {
    const Content content = content_of(*stored[i]);
    record.datasets[i].checksum = content.checksum;
    record.datasets[i].not_finite = content.not_finite;
  }
  const HDF5Layout layout = lay_out_hdf5(record.datasets);
  record.bytes = layout.bytes;
  file.reserve(layout.bytes);
  for (size_t i = 0; i < stored.size(); i++) {
    record.datasets[i].offset = layout.offsets[i];
    in_parts(*stored[i], [&](int64_t begin, int64_t bytes, const void* elements) {
      file.write(layout.offsets[i] + begin, elements, bytes);
    });
  }
  std::sort(record.datasets.begin(), record.datasets.end(),
            [](const DatasetRecord& a, const DatasetRecord& b) { return a.offset < b.offset; });
  record.structure = copy_structure(layout, record.datasets, file);
  file.publish();
  return record;
}

std::string publish_checkpoint(const std::string& folder, Manifest manifest) {
  try {
    const std::string directory = fs::path(folder).parent_path().string();
    const std::string target = checkpoint_path(directory, manifest.step);
    CHECK(folder == fmt::format("{}/.step-{:08}.partial", directory, manifest.step),
          "{} was not begun for a checkpoint of step {}", folder, manifest.step);
    std::sort(manifest.files.begin(), manifest.files.end(),
              [](const FileRecord& a, const FileRecord& b) { return a.name < b.name; });
    for (size_t i = 1; i < manifest.files.size(); i++)
      CHECK(manifest.files[i].name != manifest.files[i - 1].name, "two ranks wrote {}", manifest.files[i].name);
    check_files(folder, manifest);
    check_complete(manifest);

    write_file(folder + "/manifest.json", to_text(manifest));
    if (std::error_code ignored; fs::exists(target, ignored)) {
      CHECK(!why_of_no_use(target).empty(), "{} is a complete checkpoint and is not overwritten", target);
      set_aside(target);
    }
    move_file(folder, target);
    return target;
  } catch (const Error& e) {
    try {
      abandon_checkpoint(folder);
    } catch (const Error& another) {
      FAIL("{}; moreover, {}", e.what(), another.what());
    }
    throw;
  }
}

void abandon_checkpoint(const std::string& folder) { remove_all(folder); }

}  // namespace megalith
