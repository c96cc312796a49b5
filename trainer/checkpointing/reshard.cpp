#include "trainer/checkpointing/reshard.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "checkpoints/reader.h"
#include "checkpoints/store.h"
#include "checkpoints/writer.h"
#include "kernels/system/folder_lock.h"
#include "kernels/system/long_work.h"
#include "trainer/checkpointing/weight_source.h"
#include "trainer/machine/version.h"
#include "trainer/step/saved_state.h"

namespace megalith {
namespace {

namespace fs = std::filesystem;

Config config_of(const CheckpointReader& reader, const std::vector<std::string>& overrides) {
  for (const std::string& override : overrides)
    CHECK(override.starts_with("parallel."), "override `{}`: only parallel.* may differ from the checkpoint", override);
  const auto text = reader.manifest().state.find("config");
  CHECK(text != reader.manifest().state.end() && text->is_string(),
        "{} does not record its configuration; resume from it in the new layout instead", reader.folder());
  Config config = parse_config(text->get<std::string>(), "the configuration in " + reader.folder(), overrides);
  const ModelConfig model = model_of(reader.manifest(), reader.folder());
  for (const std::string& key : shape_keys())
    set_shape_value(config.model, key, shape_value(model, key), reader.folder());
  return config;
}

// Returns a shard whose elements are read, in their stored type, when it is written.
ShardToWrite read_when_written(CheckpointReader& reader, const TensorShard& shard, LongWork& work) {
  const DType type = reader.dtype(shard.name);
  return {shard, type, [&reader, shard, type, &work](int64_t begin, int64_t end, const auto& use) {
            work.advance(end - begin);
            TensorShard part = shard;
            part.elements = {shard.elements.begin + begin, shard.elements.begin + end};
            std::vector<float> values(static_cast<size_t>(end - begin));
            reader.read(part, values.data());
            if (type == DType::f32) return use(values.data());
            std::vector<bfloat16> stored(values.size());
            std::transform(values.begin(), values.end(), stored.begin(), [](float v) { return bfloat16(v); });
            use(stored.data());
          }};
}

void check_all_is_saved(const CheckpointReader& reader, const std::set<std::string>& saved) {
  for (const std::string& name : reader.names())
    CHECK(saved.contains(name),
          "{} has {}, which a run of this program would not save; resume from it in the new layout instead",
          reader.folder(), name);
}

// Returns the memory of a block: its elements as read, in f32 and possibly bf16, those in the writer's buffers, and the
// reader's rows.
int64_t bytes_of_block(int64_t elements, const std::vector<const TensorShard*>& shards) {
  int64_t rows = 0;
  for (const TensorShard* p : shards)
    if (p->numel() > 0) rows = std::max(rows, std::min(elements, p->numel()) / p->columns.size() + 2);
  return elements * (2 * size_of(DType::f32) + size_of(DType::bf16)) + RankFileWriter::bytes(elements) +
         rows * CheckpointReader::bytes_of_a_row;
}

int64_t elements_of_block(int64_t memory, const std::vector<const TensorShard*>& shards) {
  constexpr int64_t least = CheckpointReader::least_chunk;
  CHECK(memory >= bytes_of_block(least, shards),
        "--memory of {} bytes: a block of {} elements takes {}; allow at least that", memory, least,
        bytes_of_block(least, shards));
  int64_t elements = RankFileWriter::usual_part;
  while (bytes_of_block(elements, shards) > memory) elements /= 2;
  return elements;
}

}  // namespace

std::vector<TensorShard> saved_shards(const Config& config, const Plan& plan) {
  const std::vector<UpdateRule::StateKind> states = make_update_rule(config)->states();
  std::vector<TensorShard> shards;
  for (size_t u = 0; u < plan.units.size(); u++)
    for (const Interval part : plan.is_saved(plan.units[u]) ? saved_parts(plan, u) : std::vector<Interval>{}) {
      const auto add = [&](const std::string& path, Interval here) {
        for (const PlacedParam& param : plan.units[u].params)
          for (auto& [shard, local] : shards_of(plan.units[u], plan.tensor, param, here)) {
            shard.name = path + shard.name;
            shards.push_back(std::move(shard));
          }
      };
      add(std::string(parameters_path), part);
      for (const UpdateRule::StateKind& state : states)
        add(std::string(state.path) + "/", intersect(part, elements_with(state, plan.units[u])));
    }
  return shards;
}

std::string reshard(const ReshardOptions& options) {
  const std::string from = find_checkpoint(options.from);
  CheckpointReader reader(from);
  check_complete(reader.manifest());
  const Config config = config_of(reader, options.overrides);
  std::vector<std::vector<TensorShard>> shards;
  const Pipeline pipeline = make_pipeline(config, mesh_shape(config, options.ranks));
  shards.reserve(static_cast<size_t>(options.ranks));
  for (int rank = 0; rank < options.ranks; rank++)
    shards.push_back(saved_shards(config, make_plan(config, options.ranks, rank, pipeline)));
  std::vector<const TensorShard*> all;
  std::set<std::string> saved;
  for (const FileRecord& file : reader.manifest().files)
    for (const DatasetRecord& dataset : file.datasets) all.push_back(&dataset.shard);
  int64_t elements = 0;
  for (const std::vector<TensorShard>& of_rank : shards)
    for (const TensorShard& shard : of_rank) {
      all.push_back(&shard);
      elements += shard.numel();
      saved.insert(shard.name);
    }
  check_all_is_saved(reader, saved);
  const int64_t block = elements_of_block(options.memory, all);

  const std::string remedy = "name another directory";
  make_folders(options.to, remedy);
  const FolderLock lock(options.to, remedy);
  const CheckpointStore store(options.to);
  Manifest manifest{.step = reader.manifest().step, .state = reader.manifest().state, .files = {}};
  manifest.state["written_by"] = version();
  manifest.state["config"] = to_toml(config);
  if (const std::string tokenizer = tokenizer_of(reader.manifest(), from); !tokenizer.empty())
    manifest.state.update(describe_tokenizer(tokenizer, store.path_of(manifest.step)));
  if (const auto base = base_of(reader.manifest(), from))
    manifest.state.update(describe_adapter(adapter_of(reader.manifest(), from), *base, store.path_of(manifest.step)));
  const std::string folder = store.begin(manifest.step);
  try {
    RankFileWriter writer(block);
    LongWork work("writing " + store.path_of(manifest.step), elements);
    for (int rank = 0; rank < options.ranks; rank++) {
      std::vector<ShardToWrite> stored;
      for (const TensorShard& shard : shards[static_cast<size_t>(rank)])
        stored.push_back(read_when_written(reader, shard, work));
      manifest.files.push_back(writer.write(folder, rank, stored));
    }
  } catch (const Error&) {
    store.remove(folder);
    throw;
  }
  return store.publish(folder, std::move(manifest));
}

}  // namespace megalith
