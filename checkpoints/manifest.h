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
  int64_t offset = 0;      // its first byte in the file
  uint64_t checksum = 0;   // XXH3-64 of its bytes
  int64_t not_finite = 0;  // infinite or NaN elements; 0 also if they were not counted
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

// One line of text, which the rank that wrote the file sends. Parsing throws Error on anything else.
std::string to_text(const FileRecord& record);
FileRecord file_record_from_text(const std::string& text);

struct Manifest {
  int64_t step = 0;                                 // updates completed
  nlohmann::json state = nlohmann::json::object();  // the trainer's state: samples consumed, config, model, ...
  std::vector<FileRecord> files;                    // ascending by name
};

// Returns the text of manifest.json, which contains its own checksum, and reads it back. `path` names the file in
// messages. manifest_from_text throws Error on any changed byte, an unknown format, and contradictions: no files,
// counts below 0, datasets that overlap or exceed their file.
std::string to_text(const Manifest& manifest);
Manifest manifest_from_text(const std::string& text, const std::string& path);

// A checkpoint that existed is gone: its run has removed it since.
class RemovedCheckpoint : public Error {
 public:
  using Error::Error;
};

// Throws RemovedCheckpoint if the folder does not exist.
void check_still_there(const std::string& folder);

// Returns the result of `read`, which reads the checkpoint in a folder that existed. If the folder is gone after an
// Error, throws RemovedCheckpoint instead: a running job may remove old checkpoints (checkpoint.keep), which is not
// damage.
template <class Read>
auto while_there(const std::string& folder, const Read& read) {
  try {
    return read();
  } catch (const Error&) {
    check_still_there(folder);
    throw;
  }
}

// Reads folder/manifest.json; CorruptFile if it is absent, damaged, or of a step other than that in the folder's name.
Manifest read_manifest(const std::string& folder);

// Throws CorruptFile, naming the first bad file, unless every file exists with its size.
void check_files(const std::string& folder, const Manifest& manifest);

// Returns "3 values that are not finite, in h.0.ln_1.weight and 4 more tensors"; "" if none is known.
std::string what_is_not_finite(const Manifest& manifest);

// Throws CorruptFile, naming the tensor and the first missing elements, unless the files together hold every element of
// every tensor they mention, each with one shape.
void check_complete(const Manifest& manifest);

}  // namespace megalith
