#include "checkpoints/manifest.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>

#include "checkpoints/checksum.h"
#include "checkpoints/store.h"
#include "kernels/system/counted.h"
#include "kernels/system/files.h"
#include "kernels/system/json.h"
#include "kernels/tensor/interval.h"

namespace megalith {
namespace {

constexpr const char* format_name = "megalith checkpoint";
constexpr int format_version = 1;

// The file begins with its checksum, taken over the text with zeros for these digits. So a reader can check it before
// it parses anything, and another program in two lines of Python.
constexpr std::string_view prefix = "{\n \"checksum\": \"";
constexpr std::string_view zeros = "0000000000000000";

nlohmann::ordered_json to_json(const DatasetRecord& d) {
  nlohmann::ordered_json j{{"tensor", d.shard.name},
                           {"shape", d.shard.shape},
                           {"columns", {d.shard.columns.begin, d.shard.columns.end}},
                           {"elements", {d.shard.elements.begin, d.shard.elements.end}},
                           {"dtype", name_of(d.dtype)},
                           {"dataset", d.dataset},
                           {"offset", d.offset},
                           {"checksum", hex(d.checksum)}};
  if (d.not_finite > 0) j["not_finite"] = d.not_finite;
  return j;
}

std::string lines_of(const FileRecord& record, const char* separator) {
  std::string text = fmt::format("{{\"name\": {}, \"bytes\": {}, \"structure\": \"{}\", \"datasets\": [",
                                 json_text(nlohmann::json(record.name)), record.bytes, hex(record.structure));
  for (size_t i = 0; i < record.datasets.size(); i++)
    text += fmt::format("{}{}{}", i ? "," : "", separator, json_text(to_json(record.datasets[i])));
  return text + "]}";
}

Interval interval_from(const nlohmann::json& j) { return {whole_number(j.at(0)), whole_number(j.at(1))}; }

// Returns whether a dataset has the tensor's name, or for a further shard the name with #1, #2, ...
bool is_dataset_of(const std::string& name, const std::string& dataset) {
  constexpr size_t most_digits = 10;
  if (!dataset.starts_with(name)) return false;
  const std::string number = dataset.substr(name.size());
  return number.empty() || (number[0] == '#' && number.size() > 1 && number.size() <= 1 + most_digits &&
                            number.find_first_not_of("0123456789", 1) == std::string::npos);
}

DatasetRecord dataset_from(const nlohmann::json& j) {
  DatasetRecord d;
  d.shard.name = j.at("tensor").get<std::string>();
  for (const nlohmann::json& dim : j.at("shape")) d.shard.shape.push_back(whole_number(dim));
  d.shard.columns = interval_from(j.at("columns"));
  d.shard.elements = interval_from(j.at("elements"));
  d.dataset = j.at("dataset").get<std::string>();
  d.offset = whole_number(j.at("offset"));
  d.checksum = from_hex(j.at("checksum").get<std::string>());
  const auto dtype = j.at("dtype").get<std::string>();
  CHECK(dtype == "f32" || dtype == "bf16", "{} is stored as {}; this version reads f32 and bf16", d.shard.name, dtype);
  if (dtype == "bf16") d.dtype = DType::bf16;
  check_shard(d.shard);
  d.not_finite = j.contains("not_finite") ? whole_number(j.at("not_finite")) : 0;
  CHECK(d.not_finite >= 0 && d.not_finite <= d.shard.numel(), "{} has {} values that are not finite, of {}",
        describe(d.shard), d.not_finite, d.shard.numel());
  CHECK(is_dataset_of(d.shard.name, d.dataset), "dataset {} is not a valid name for a shard of {}", d.dataset,
        d.shard.name);
  return d;
}

// Returns whether this names a visible file in the folder, on one line of messages.
bool is_file_name(const std::string& name) {
  const auto bad = [](char c) { return c <= ' ' || c > '~' || c == '/'; };
  return !name.empty() && name[0] != '.' && std::none_of(name.begin(), name.end(), bad);
}

FileRecord file_from(const nlohmann::json& j) {
  FileRecord f;
  f.name = j.at("name").get<std::string>();
  f.bytes = whole_number(j.at("bytes"));
  f.structure = from_hex(j.at("structure").get<std::string>());
  for (const nlohmann::json& d : j.at("datasets")) f.datasets.push_back(dataset_from(d));
  CHECK(is_file_name(f.name), "{} is not a valid file name", json_text(nlohmann::json(f.name)));
  int64_t position = 1;  // HDF5's own bytes come first
  for (const DatasetRecord& d : f.datasets) {
    CHECK(d.offset >= position && d.bytes() <= f.bytes && d.offset <= f.bytes - d.bytes(),
          "dataset {} of {} at byte {} is outside the file or overlaps another", d.dataset, f.name, d.offset);
    position = d.offset + d.bytes();
  }
  return f;
}

// JSON has no NaN and no infinity; the library would write null.
void check_finite(const nlohmann::json& j, const std::string& path) {
  if (j.is_number_float())
    CHECK(std::isfinite(j.get<double>()), "{} of the checkpoint's state is not finite: JSON cannot store it", path);
  if (j.is_structured())
    for (const auto& [key, value] : j.items()) check_finite(value, path + "/" + key);
}

}  // namespace

std::string to_text(const FileRecord& record) { return lines_of(record, " "); }

FileRecord file_record_from_text(const std::string& text) {
  try {
    return file_from(parse_json(text));
  } catch (const nlohmann::json::exception& e) {
    FAIL("the record of a rank's file cannot be read: {}", e.what());
  }
}

std::string to_text(const Manifest& manifest) {
  CHECK(manifest.step >= 0, "a checkpoint of step {}", manifest.step);
  CHECK(manifest.state.is_object(), "the state of a checkpoint is a JSON object, not a {}", manifest.state.type_name());
  check_finite(manifest.state, "");
  try {
    std::string text = fmt::format("{}{}\",\n", prefix, zeros);
    text += fmt::format(" \"format\": \"{}\",\n \"version\": {},\n \"step\": {},\n \"state\": {},\n \"files\": [",
                        format_name, format_version, manifest.step, json_text(manifest.state, 1));
    for (size_t i = 0; i < manifest.files.size(); i++)
      text += fmt::format("{}\n  {}", i ? "," : "", lines_of(manifest.files[i], "\n   "));
    text += "\n ]\n}\n";
    return text.replace(prefix.size(), zeros.size(), hex(checksum_of(text.data(), static_cast<int64_t>(text.size()))));
  } catch (const nlohmann::json::exception& e) {
    FAIL("the state of the checkpoint of step {} cannot be written as JSON (is all text UTF-8?): {}", manifest.step,
         e.what());
  }
}

namespace {

std::vector<FileRecord> files_from(const nlohmann::json& j, const std::string& path) {
  std::vector<FileRecord> files;
  std::set<std::string> names;
  try {
    for (const nlohmann::json& f : j) {
      files.push_back(file_from(f));
      CHECK(names.insert(files.back().name).second, "{} is listed twice", files.back().name);
    }
  } catch (const Error& e) {
    FAIL("{}: {}", path, e.what());
  }
  CHECK(!files.empty(), "{} lists no files", path);
  return files;
}

}  // namespace

Manifest manifest_from_text(const std::string& text, const std::string& path) {
  CHECK_INTACT(text.size() > prefix.size() + zeros.size() && text.starts_with(prefix),
               "{} ({} bytes) does not begin like a manifest: it is damaged, edited, or not a manifest", path,
               text.size());
  std::string zeroed = text;
  zeroed.replace(prefix.size(), zeros.size(), zeros);
  const std::string expected = text.substr(prefix.size(), zeros.size());
  const std::string found = hex(checksum_of(zeroed.data(), static_cast<int64_t>(zeroed.size())));
  CHECK_INTACT(expected == found, "{} is damaged: checksum {}, expected {}", path, found, expected);
  try {
    const nlohmann::json j = parse_json(text);
    CHECK(j.at("format") == format_name, "{} is not a manifest of a {}", path, format_name);
    CHECK(j.at("version") == format_version, "{} has unsupported format version {} (expected {})", path,
          json_text(j.at("version")), format_version);
    Manifest m;
    m.step = whole_number(j.at("step"));
    CHECK(m.step >= 0, "{} is of step {}; steps are counted from 0", path, m.step);
    m.state = j.at("state");
    CHECK(m.state.is_object(), "the state in {} is a {}, not a JSON object", path, m.state.type_name());
    m.files = files_from(j.at("files"), path);
    return m;
  } catch (const nlohmann::json::exception& e) {
    FAIL("{} cannot be understood, though its checksum is right: {}", path, e.what());
  }
}

void check_still_there(const std::string& folder) {
  std::error_code error;
  if (std::filesystem::exists(folder, error) || error) return;
  throw RemovedCheckpoint(
      __FILE__, __LINE__,
      fmt::format("{} was removed while it was read, since a run removes checkpoints that newer ones replace; run the "
                  "command again, which uses the newest of a run folder, or let the run keep more (checkpoint.keep)",
                  folder));
}

Manifest read_manifest(const std::string& folder) {
  const std::string path = folder + "/manifest.json";
  std::error_code error;
  const bool is_folder = std::filesystem::is_directory(folder, error);
  CHECK(!error || means_absent(error), "cannot examine {}: {}", folder, error.message());
  CHECK_INTACT(is_folder, "{} is not a folder; a checkpoint is a folder named step-*", folder);
  const bool exists = std::filesystem::exists(path, error);
  CHECK(!error || means_absent(error), "cannot examine {}: {}", path, error.message());
  CHECK_INTACT(exists, "{} is missing: the folder is not a checkpoint, or is unfinished", path);
  Manifest manifest = manifest_from_text(read_file(path), path);
  const auto step = step_of_folder(folder);
  CHECK_INTACT(!step || *step == manifest.step,
               "{} holds a checkpoint of step {}: it was renamed, or copied over another", folder, manifest.step);
  return manifest;
}

void check_files(const std::string& folder, const Manifest& manifest) {
  for (const FileRecord& f : manifest.files) {
    const std::string path = folder + "/" + f.name;
    std::error_code error;
    const auto kind = std::filesystem::status(path, error).type();
    if (kind == std::filesystem::file_type::not_found)
      error = std::make_error_code(std::errc::no_such_file_or_directory);
    CHECK_INTACT(!means_absent(error), "{} of the checkpoint is missing: {}", path, error.message());
    CHECK(!error, "{} of the checkpoint cannot be examined: {}", path, error.message());
    CHECK_INTACT(kind == std::filesystem::file_type::regular, "{} of the checkpoint is not a plain file", path);
    const auto bytes = std::filesystem::file_size(path, error);
    CHECK(!error, "{} of the checkpoint cannot be examined: {}", path, error.message());
    CHECK_INTACT(bytes == static_cast<uintmax_t>(f.bytes), "{} has {} bytes, expected {}", path, bytes, f.bytes);
  }
}

std::string what_is_not_finite(const Manifest& manifest) {
  int64_t values = 0;
  std::vector<std::string> tensors;  // file by file
  for (const FileRecord& f : manifest.files)
    for (const DatasetRecord& d : f.datasets) {
      if (d.not_finite == 0) continue;
      values += d.not_finite;
      if (std::find(tensors.begin(), tensors.end(), d.shard.name) == tensors.end()) tensors.push_back(d.shard.name);
    }
  if (tensors.empty()) return "";
  return fmt::format("{} that {} not finite, in {}{}", counted(values, "value"), values == 1 ? "is" : "are", tensors[0],
                     tensors.size() == 1 ? "" : fmt::format(" and {}", counted(tensors.size() - 1, "more tensor")));
}

void check_complete(const Manifest& manifest) {
  std::map<std::string, std::vector<const TensorShard*>> tensors;
  for (const FileRecord& f : manifest.files)
    for (const DatasetRecord& d : f.datasets) tensors[d.shard.name].push_back(&d.shard);
  for (const auto& [name, shards] : tensors) {
    const TensorShard whole = whole_tensor(name, shards[0]->shape);
    std::vector<Interval> covered;
    for (const TensorShard* p : shards)
      for (const CopyRun& r : copy_runs(*p, whole)) covered.push_back({r.destination, r.destination + r.length});
    const std::vector<Interval> missing = gaps(std::move(covered), whole.numel());
    CHECK_INTACT(missing.empty(), "no rank stored elements [{}, {}) of {}", missing[0].begin, missing[0].end,
                 describe(whole));
  }
}

}  // namespace megalith
