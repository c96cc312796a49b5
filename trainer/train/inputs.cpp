#include "trainer/train/inputs.h"

#include <filesystem>

#include "checkpoints/store.h"
#include "trainer/checkpointing/run_start.h"
#include "trainer/checkpointing/weight_source.h"
#include "trainer/job/agreement.h"
#include "trainer/job/content.h"
#include "trainer/job/memory_check.h"
#include "trainer/machine/machine.h"
#include "trainer/step/checked_tokens.h"
#include "trainer/step/data_overlap.h"

namespace megalith {

namespace {

std::string checked_path(const Config& config) { return config.run.output + "/checked-tokens.json"; }

}  // namespace

std::string content_of_validation(const std::vector<ValidationSet>& sets) {
  std::string all;
  for (const ValidationSet& set : sets)
    all += (all.empty() ? "" : "; ") + (set.name.empty() ? "" : set.name + ": ") + content_of_sources(set.loader);
  return all;
}

std::unique_ptr<Tokenizer> open_run_tokenizer(Config& config, const Session& session) {
  std::unique_ptr<Tokenizer> tokenizer;
  together(session, [&] {
    check_open_files();
    const bool gone = !std::filesystem::is_directory(tokenizer_path(config.data));
    if (gone && std::filesystem::is_directory(run_tokenizer(config)) &&
        !CheckpointStore(config.checkpoint).usable().empty())
      config.data.tokenizer = run_tokenizer(config);
    tokenizer = open_tokenizer(config);
  });
  return tokenizer;
}

Inputs open_inputs(const Config& config, const Session& session, RankContext& work, const Tokenizer* tokenizer,
                   int threads) {
  std::optional<Inputs> inputs;
  together(session, [&] {
    work.rehearse();
    const CheckedTokens checked(checked_path(config));
    inputs.emplace(Inputs{.data = open_data("data.train", config.data.train, config, config.data.shuffle,
                                            session.rank(), session.size(), checked),
                          .validation = open_validation(config, tokenizer, session.rank(), session.size(), checked),
                          .fingerprint = {}});
    if (session.rank() == 0)
      for (const ValidationSet& set : inputs->validation)
        inputs->trained_on_validation |= trains_on_validation(config, inputs->data, set);
    if (session.rank() == 0) inputs->trained_on_twice = files_trained_on_twice(inputs->data);
    const DeviceChoice& device = work.device;
    check_memory({{device.world, work.rehearsal.memory, work.process_memory(threads).to_come()}},
                 session.ranks_on_this_node(), device.ranks);
    if (session.rank() != 0) return;
    inputs->fingerprint = run_fingerprint(config, tokenizer, inputs->data, content_of_validation(inputs->validation));
    check_start(config, *inputs->fingerprint);
  });
  return std::move(*inputs);
}

void keep_checked(const Config& config, const Inputs& inputs) {
  CheckedTokens checked(checked_path(config));
  for (const TokenStream& stream : inputs.data.streams()) checked.add(stream.files(), config.model.vocab);
  for (const ValidationSet& set : inputs.validation)
    for (const TokenStream& stream : set.loader.streams()) checked.add(stream.files(), config.model.vocab);
  checked.write(checked_path(config));
}

}  // namespace megalith
