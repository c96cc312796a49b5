#include "checkpoints/reader.h"

#include <algorithm>
#include <cstring>
#include <sstream>
#include <utility>

#include <fmt/ranges.h>

#include "checkpoints/checksum.h"
#include "checkpoints/hdf5_file.h"
#include "kernels/system/counted.h"
#include "kernels/system/json.h"
#include "kernels/system/long_work.h"

namespace megalith {
namespace {

constexpr int64_t most_chunk = int64_t{1} << 20;  // elements

std::string damage(const std::string& path, const std::string& what, uint64_t found, uint64_t expected) {
  return fmt::format("{}: {} is damaged: checksum {}, expected {}", path, what, hex(found), hex(expected));
}

// Prints the state; the config, a text in it, comes line by line.
std::string text_of_state(nlohmann::json state) {
  std::string config;
  if (const auto text = state.find("config"); text != state.end() && text->is_string()) {
    std::istringstream lines(text->get<std::string>());
    config = "config\n";
    for (std::string line; std::getline(lines, line);) config += line.empty() ? "\n" : "  " + line + "\n";
    state.erase(text);
  }
  return fmt::format("state {}\n{}", json_text(state, 1), config);
}

// Lists members of an object without lists or objects as "name = value", in aligned lines.
std::string members_in_lines(const nlohmann::json& object) {
  constexpr size_t indent = 23, width = 100;
  std::string text;
  size_t column = indent;
  for (const auto& [key, value] : object.items()) {
    const std::string member = fmt::format("{} = {}", key, json_text(value));
    const bool fits = column + 2 + member.size() <= width;
    if (!text.empty()) text += fits ? ", " : ",\n" + std::string(indent, ' ');
    if (!fits) column = indent;
    text += member;
    column += 2 + member.size();
  }
  return text;
}

// Prints a line for each value: short ones and plain objects in full, otherwise their size.
std::string outline_of_state(const nlohmann::json& state) {
  constexpr size_t longest = 60;
  std::string text = "state\n";
  for (const auto& [key, value] : state.items()) {
    std::string shown = value.is_string() ? value.get<std::string>() : json_text(value);
    if (value.is_string() && shown.find('\n') != std::string::npos)
      shown = counted(std::ranges::count(shown, '\n'), "line");
    else if (value.is_object() &&
             std::ranges::none_of(value, [](const auto& member) { return member.is_structured(); }))
      shown = members_in_lines(value);
    else if (value.is_structured() && shown.size() > longest)
      shown = counted(value.size(), "value");
    text += fmt::format("  {:<20} {}\n", key, shown);
  }
  return text;
}

// Prints a line for each path that names share, such as "parameters/".
std::string outline_of_tensors(const std::map<std::string, int64_t>& elements) {
  std::map<std::string, std::pair<int64_t, int64_t>> folders;
  for (const auto& [name, numel] : elements) {
    auto& [tensors, in_all] = folders[name.substr(0, name.rfind('/') + 1)];
    tensors++;
    in_all += numel;
  }
  std::string text;
  for (const auto& [folder, size] : folders)
    text += fmt::format("  {:<20} {}, {}\n", folder, counted(size.first, "tensor"), counted(size.second, "element"));
  return text;
}

}  // namespace

CheckpointReader::CheckpointReader(const std::string& folder) : folder_(folder), manifest_(read_manifest(folder)) {
  while_there(folder, [&] { check_files(folder, manifest_); });
  for (const FileRecord& file : manifest_.files)
    for (const DatasetRecord& record : file.datasets) {
      const TensorShard& shard = record.shard;
      const std::string path = folder + "/" + file.name;
      auto& sources = sources_[shard.name];
      CHECK(sources.empty() || shape(shard.name) == shard.shape, "{}: {} has another shape in another file", path,
            describe(shard));
      sources.push_back({path, &record});
    }
}

const DatasetRecord& CheckpointReader::first_of(const std::string& name) const {
  const auto it = sources_.find(name);
  CHECK(it != sources_.end(), "{} has no tensor {}; is it a checkpoint of another model?", folder_, name);
  return *it->second[0].record;
}

std::set<std::string> CheckpointReader::names() const {
  std::set<std::string> all;
  for (const auto& [name, sources] : sources_) all.insert(name);
  return all;
}

std::vector<int64_t> CheckpointReader::shape(const std::string& name) const { return first_of(name).shard.shape; }

DType CheckpointReader::dtype(const std::string& name) const { return first_of(name).dtype; }

void CheckpointReader::read(const TensorShard& wanted, float* out) {
  check_shard(wanted);
  const std::vector<int64_t> stored = shape(wanted.name);
  CHECK(stored == wanted.shape, "{} has shape ({}) in {}, expected ({}); is it a checkpoint of another model?",
        wanted.name, fmt::join(stored, ", "), folder_, fmt::join(wanted.shape, ", "));
  std::vector<Interval> covered;
  std::vector<std::pair<Source*, std::vector<CopyRun>>> copies;
  for (Source& s : sources_.at(wanted.name)) {
    auto runs = copy_runs(s.record->shard, wanted);
    if (runs.empty()) continue;
    for (const CopyRun& r : runs) covered.push_back({r.destination, r.destination + r.length});
    copies.emplace_back(&s, std::move(runs));
  }
  const std::vector<Interval> missing = gaps(std::move(covered), wanted.numel());
  CHECK_INTACT(missing.empty(), "{} does not have elements [{}, {}) of {}", folder_, missing[0].begin, missing[0].end,
               describe(wanted));
  const int64_t chunk = std::clamp(wanted.numel(), least_chunk, most_chunk);
  while_there(folder_, [&] {
    for (const auto& [source, runs] : copies) copy_from(*source, runs, chunk, out);
  });
}

namespace {
void widen(float* to, const char* from, int64_t count, DType dtype) {
  if (dtype == DType::f32) {
    std::memcpy(to, from, static_cast<size_t>(count) * sizeof(float));
    return;
  }
  for (int64_t i = 0; i < count; i++) {
    bfloat16 element;
    std::memcpy(&element, from + i * static_cast<int64_t>(sizeof element), sizeof element);
    to[i] = static_cast<float>(element);
  }
}
}  // namespace

void CheckpointReader::copy_from(Source& source, const std::vector<CopyRun>& runs, int64_t chunk_elements, float* out) {
  const DatasetRecord& record = *source.record;
  if (!open_ || open_->path() != source.path) {
    open_.reset();
    open_.emplace(source.path, File::Use::read);
  }
  const bool verified = source.verified;
  const int64_t begin = verified ? runs.front().source : 0;
  const int64_t end = verified ? runs.back().source + runs.back().length : record.shard.numel();

  const int64_t size = size_of(record.dtype);
  std::vector<char> chunk(static_cast<size_t>(std::min(chunk_elements, end - begin) * size));
  Checksum checksum;
  size_t next = 0;  // the first run that is not copied completely
  for (int64_t position = begin; position < end;) {
    const int64_t count = std::min(chunk_elements, end - position);
    open_->read(record.offset + position * size, chunk.data(), count * size);
    if (!verified) checksum.add(chunk.data(), count * size);
    for (size_t r = next; r < runs.size() && runs[r].source < position + count; r++) {
      const int64_t from = std::max(runs[r].source, position);
      const int64_t to = std::min(runs[r].source + runs[r].length, position + count);
      widen(out + runs[r].destination + (from - runs[r].source), chunk.data() + (from - position) * size, to - from,
            record.dtype);
      if (to == runs[r].source + runs[r].length) next = r + 1;
    }
    position += count;
  }
  if (verified) return;
  CHECK_INTACT(checksum.value() == record.checksum, "{}",
               damage(source.path, "dataset " + record.dataset, checksum.value(), record.checksum));
  source.verified = true;
}

namespace {

// If the file has the structure that HDF5 writes for its datasets, HDF5 finds exactly what the manifest describes. So
// that structure is written again and compared. The library, which an altered file may crash, never reads the file.
// Returns the difference, or "".
std::string layout_difference(const File& file, const FileRecord& record) try {
  std::vector<uint64_t> checksums;
  int64_t bytes = record.bytes;
  for (const DatasetRecord& d : record.datasets) {
    checksums.push_back(d.checksum);
    bytes -= d.bytes();
  }
  const HDF5Layout layout(record.datasets);
  const std::string expected = layout.structure(checksums);
  if (bytes != static_cast<int64_t>(expected.size())) return fmt::format("{} bytes, not {}", bytes, expected.size());
  const std::string found = structure_of(file, record.datasets, layout.offsets());
  const auto differs = std::mismatch(found.begin(), found.end(), expected.begin()).first;
  return differs == found.end() ? "" : fmt::format("its byte {} differs", differs - found.begin());
} catch (const CorruptFile& e) {
  return e.what();
} catch (const Error& e) {
  FAIL("{}: the HDF5 structure cannot be checked: {}", file.path(), e.what());
}

// Checks, in one pass over a file, every dataset's checksum and that of the bytes between them.
void verify_file(const std::string& folder, const FileRecord& record, VerifyReport& report, LongWork& work) {
  const std::string path = folder + "/" + record.name;
  const File file(path, File::Use::read);
  const int64_t bytes = file.size();
  CHECK_INTACT(bytes == record.bytes, "{} has {} bytes, expected {}", path, bytes, record.bytes);
  std::vector<char> chunk(static_cast<size_t>(std::min(most_chunk * 4, bytes)));
  const auto add = [&](Checksum& checksum, int64_t begin, int64_t end) {
    for (int64_t position = begin; position < end;) {
      const int64_t count = std::min(static_cast<int64_t>(chunk.size()), end - position);
      file.read(position, chunk.data(), count);
      checksum.add(chunk.data(), count);
      position += count;
      report.bytes += count;
      work.advance(count);
    }
  };
  Checksum structure;
  int64_t position = 0;
  for (const DatasetRecord& d : record.datasets) {
    add(structure, position, d.offset);
    position = d.offset + d.bytes();
    Checksum data;
    add(data, d.offset, position);
    report.num_datasets++;
    if (data.value() == d.checksum) continue;
    report.damaged.push_back(damage(path, "dataset " + d.dataset, data.value(), d.checksum));
  }
  add(structure, position, bytes);
  if (structure.value() != record.structure) {
    report.damaged.push_back(damage(path, "the HDF5 structure", structure.value(), record.structure));
    return;
  }
  if (const std::string difference = layout_difference(file, record); !difference.empty())
    report.damaged.push_back(fmt::format(
        "{}: the HDF5 structure differs from the one that HDF5 writes for the datasets of the manifest ({}): it may "
        "have been altered on purpose; copy the checkpoint with megalith checkpoint reshard before others open it",
        path, difference));
}

}  // namespace

VerifyReport verify_checkpoint(const std::string& folder) {
  VerifyReport report;
  const auto guard = [&](const auto& check) {
    try {
      check();
    } catch (const CorruptFile& e) {
      report.damaged.push_back(e.what());
    }
  };
  guard([&] {
    const Manifest manifest = read_manifest(folder);
    // Only for files of the right size: a manifest cannot demand more work than they hold.
    const size_t before = report.damaged.size();
    guard([&] { check_files(folder, manifest); });
    if (report.damaged.size() == before)
      guard([&] { check_complete(manifest); });
    else
      report.damaged.resize(before);  // reported below, for each file
    int64_t bytes = 0;
    for (const FileRecord& f : manifest.files) bytes += f.bytes;
    LongWork work("verifying " + folder, bytes);
    for (const FileRecord& f : manifest.files) {
      report.num_files++;
      guard([&] { verify_file(folder, f, report, work); });
    }
  });
  return report;
}

std::string describe_checkpoint(const std::string& folder, bool all) {
  const CheckpointReader reader(folder);
  const Manifest& manifest = reader.manifest();
  std::map<std::string, int64_t> shards;
  std::set<std::string> types;
  int64_t bytes = 0, elements = 0;
  for (const FileRecord& f : manifest.files) {
    bytes += f.bytes;
    for (const DatasetRecord& d : f.datasets) {
      shards[d.shard.name]++;
      types.insert(name_of(d.dtype));
    }
  }
  std::map<std::string, int64_t> tensors;
  std::string table;
  size_t width = 0;
  for (const auto& [name, count] : shards) width = std::max(width, name.size());
  for (const auto& [name, count] : shards) {
    const TensorShard whole = whole_tensor(name, reader.shape(name));
    elements += tensors[name] = whole.numel();
    table += fmt::format("  {:<{}}  {:>12}  {:>10}  ({})\n", name, width, whole.numel(), counted(count, "shard"),
                         fmt::join(whole.shape, ", "));
  }
  const std::string not_finite = what_is_not_finite(manifest);
  return fmt::format("{}\nstep {}{}\n{}, {}, {}, {} of {}\n{}tensors\n{}", folder, manifest.step,
                     not_finite.empty() ? "" : "\nNOT FINITE: " + not_finite, counted(manifest.files.size(), "file"),
                     counted(bytes, "byte"), counted(shards.size(), "tensor"), counted(elements, "element"),
                     fmt::join(types, " and "), all ? text_of_state(manifest.state) : outline_of_state(manifest.state),
                     all ? table : outline_of_tensors(tensors) + "to print everything: --all\n");
}

}  // namespace megalith
