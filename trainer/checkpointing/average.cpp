#include "trainer/checkpointing/average.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "checkpoints/reader.h"
#include "checkpoints/store.h"
#include "checkpoints/writer.h"
#include "kernels/system/counted.h"
#include "kernels/system/folder_lock.h"
#include "kernels/system/long_work.h"
#include "trainer/checkpointing/weight_source.h"
#include "trainer/machine/version.h"

namespace megalith {
namespace {

namespace fs = std::filesystem;
using Readers = std::vector<std::unique_ptr<CheckpointReader>>;

std::vector<std::string> newest_of(const std::string& folder, int64_t last) {
  for (const fs::path& directory : {fs::path(folder), fs::path(folder) / "checkpoints"}) {
    std::vector<std::string> found = CheckpointStore(directory.string()).usable();
    if (found.empty()) continue;
    if (last > 0 && static_cast<int64_t>(found.size()) > last) found.resize(static_cast<size_t>(last));
    std::ranges::reverse(found);
    return found;
  }
  return {};
}

void check_same_kind(const CheckpointReader& first, const CheckpointReader& other) {
  const ModelConfig model = model_of(first.manifest(), first.folder());
  check_same_model("checkpoint " + other.folder(), model_of(other.manifest(), other.folder()), model);
  const nlohmann::json::json_pointer tokenizer("/course/tokenizer");
  CHECK(first.manifest().state.value(tokenizer, "") == other.manifest().state.value(tokenizer, ""),
        "{} and {} were trained with different tokenizers, so the average of their embeddings has no meaning",
        first.folder(), other.folder());
}

Readers open_all(const std::vector<std::string>& checkpoints) {
  Readers readers;
  for (const std::string& path : checkpoints) {
    auto reader = while_there(path, [&] { return std::make_unique<CheckpointReader>(path); });
    check_complete(reader->manifest());
    CHECK(!base_of(reader->manifest(), path),
          "{} has adapters, whose factors cannot be averaged: the average of products is another product", path);
    const std::string values = what_is_not_finite(reader->manifest());
    CHECK(values.empty(), "{} holds {}; leave it out", path, values);
    if (!readers.empty()) check_same_kind(*readers.front(), *reader);
    readers.push_back(std::move(reader));
  }
  return readers;
}

// Returns a shard whose elements are averaged when it is written.
ShardToWrite averaged(const Readers& readers, const TensorShard& whole, LongWork& work) {
  return {whole, DType::f32, [&readers, whole, &work](int64_t begin, int64_t end, const auto& use) {
            TensorShard part = whole;
            part.elements = {begin, end};
            std::vector<double> sums(static_cast<size_t>(end - begin));
            std::vector<float> values(sums.size());
            for (const auto& reader : readers) {
              reader->read(part, values.data());
              for (size_t i = 0; i < values.size(); i++) sums[i] += values[i];
            }
            const auto count = static_cast<double>(readers.size());
            std::ranges::transform(sums, values.begin(), [&](double sum) { return static_cast<float>(sum / count); });
            use(values.data());
            work.advance(end - begin);
          }};
}

// Returns the keys of the state that describe the weights, without those of the position of a run.
nlohmann::json state_of(const CheckpointReader& newest, const std::vector<std::string>& checkpoints,
                        const std::string& target) {
  const nlohmann::json& there = newest.manifest().state;
  nlohmann::json state{{"written_by", version()}, {averaged_key, checkpoints}};
  for (const char* key : {"sequences", "model", "config", "course", "init_from"})
    if (there.contains(key)) state[key] = there.at(key);
  if (const std::string tokenizer = tokenizer_of(newest.manifest(), newest.folder()); !tokenizer.empty())
    state.update(describe_tokenizer(tokenizer, target));
  return state;
}

}  // namespace

std::vector<std::string> checkpoints_to_average(const std::vector<std::string>& paths, int64_t last) {
  std::vector<std::string> found;
  if (paths.size() == 1) {
    found = newest_of(paths.front(), last);
    CHECK(found.size() > 1, "{} has {}, and an average takes two or more; keep more with checkpoint.keep",
          paths.front(), counted(found.size(), "complete checkpoint"));
    return found;
  }
  CHECK(last == 0, "--last {} is for one run folder, but {} are named", last, counted(paths.size(), "checkpoint"));
  for (const std::string& path : paths) {
    found.push_back(find_checkpoint(path));
    CHECK(std::ranges::count(found, found.back()) == 1, "{} is named twice", found.back());
  }
  return found;
}

std::string average_checkpoints(const std::vector<std::string>& checkpoints, const std::string& to) {
  const Readers readers = open_all(checkpoints);
  const CheckpointReader& newest =
      **std::ranges::max_element(readers, {}, [](const auto& reader) { return reader->manifest().step; });
  std::vector<TensorShard> weights;
  int64_t elements = 0;
  for (const std::string& name : newest.names())
    if (name.starts_with(parameters_path)) {
      weights.push_back(whole_tensor(name, newest.shape(name)));
      elements += weights.back().numel();
    }
  LongWork work("averaging into " + to, elements);
  std::vector<ShardToWrite> shards;
  shards.reserve(weights.size());
  for (const TensorShard& whole : weights) shards.push_back(averaged(readers, whole, work));
  const std::string remedy = "name another directory";
  make_folders(to, remedy);
  const FolderLock lock(to, remedy);
  const CheckpointStore store(to);
  Manifest manifest{.step = newest.manifest().step, .state = {}, .files = {}};
  manifest.state = state_of(newest, checkpoints, store.path_of(manifest.step));
  const std::string folder = store.begin(manifest.step);
  try {
    RankFileWriter writer;
    manifest.files.push_back(writer.write(folder, 0, shards));
  } catch (const Error&) {
    store.remove(folder);
    throw;
  }
  return store.publish(folder, std::move(manifest));
}

}  // namespace megalith
