// A checkpoint's manifest.json, written last. FORMAT.md describes the file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kernels/system/files.h"
#include "kernels/tensor/tensor.h"
#include "kernels/tensor/tensor_shard.h"

namespace megalith {

// One dataset of one rank's file: dense f32 or bf16, little endian, one dimension of shard.numel() elements.
struct DatasetRecord {
  TensorShard shard;
  DType dtype = DType::f32;
  std::string dataset;     // path in the HDF5 file
  int64_t offset = 0;      // of its first byte in the file
  uint64_t checksum = 0;   // XXH3-64 of its bytes
  int64_t not_finite = 0;  // infinite or NaN elements; 0 also if nobody counted them
  int64_t bytes() const { return shard.numel() * size_of(dtype); }
  bool operator==(const DatasetRecord&) const = default;
};

struct FileRecord {
  std::string name;                     // "rank-00000.h5", in the checkpoint's folder
  int64_t bytes = 0;                    // size of the file
  uint64_t structure = 0;               // XXH3-64 of all bytes outside the datasets, in order
  std::vector<DatasetRecord> datasets;  // ascending by offset
  bool operator==(const FileRecord&) const = default;
};

// One line of text, for sending a record from the rank that wrote the file. Parsing throws Error on anything else.
std::string to_text(const FileRecord& record);
FileRecord file_record_from_text(const std::string& text);

struct Manifest {
  int64_t step = 0;                                 // updates completed
  nlohmann::json state = nlohmann::json::object();  // the trainer's: samples consumed, config, model, ...
  std::vector<FileRecord> files;                    // ascending by name
};

// The text of manifest.json, which contains its own checksum, and back. `path` names the file in messages.
// manifest_from_text throws Error on any changed byte, an unknown format, and contradictions: no files, counts below 0,
// datasets that overlap or lie outside their file.
std::string to_text(const Manifest& manifest);
Manifest manifest_from_text(const std::string& text, const std::string& path);

// A checkpoint that was there is gone: its run has removed it since.
class RemovedCheckpoint : public Error {
 public:
  using Error::Error;
};

// RemovedCheckpoint where the folder is not there.
void check_still_there(const std::string& folder);

// Returns what `read` reads of the checkpoint in a folder that was there. RemovedCheckpoint in place of any Error once
// it is not: a run beside this process may remove checkpoints (checkpoint.keep), which is not damage.
template <class Read>
auto while_there(const std::string& folder, const Read& read) {
  try {
    return read();
  } catch (const Error&) {
    check_still_there(folder);
    throw;
  }
}

// Reads folder/manifest.json; CorruptFile if it is absent, not intact, or of another step than the folder's name says.
Manifest read_manifest(const std::string& folder);

// Throws CorruptFile, naming the first bad file, unless every file is there with its size.
void check_files(const std::string& folder, const Manifest& manifest);

// Returns "3 values that are not finite, in h.0.ln_1.weight and 4 more tensors"; "" if none is known.
std::string what_is_not_finite(const Manifest& manifest);

// Throws CorruptFile, naming the tensor and the first missing elements, unless the files together hold every element of
// every tensor they mention, under one shape each.
void check_complete(const Manifest& manifest);

}  // namespace megalith
