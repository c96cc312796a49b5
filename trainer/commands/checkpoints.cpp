// Implements megalith checkpoint inspect, verify, export, diff, reshard, average.
#include <filesystem>
#include <optional>

#include "checkpoints/difference.h"
#include "checkpoints/hugging_face.h"
#include "checkpoints/peft_folder.h"
#include "checkpoints/reader.h"
#include "data/conversations/chat_template_jinja.h"
#include "data/tokenizers/quoted.h"
#include "data/tokenizers/tokenizer.h"
#include "data/tokenizers/tokenizer_json.h"
#include "kernels/system/counted.h"
#include "trainer/checkpointing/average.h"
#include "trainer/checkpointing/model_use.h"
#include "trainer/checkpointing/reshard.h"
#include "trainer/checkpointing/run_fingerprint.h"
#include "trainer/checkpointing/state_difference.h"
#include "trainer/checkpointing/weight_source.h"
#include "trainer/commands/command.h"
#include "trainer/machine/console.h"
#include "trainer/machine/terminal.h"

namespace megalith {

namespace {

// Returns the checkpoint that a path names, and prints it if the path is not the checkpoint itself.
std::string tell_checkpoint(const std::string& path) {
  const std::string found = find_checkpoint(path);
  if (found != path) fmt::print("checkpoint {}\n", found);
  return found;
}

int verify_folder(const std::string& path) {
  const std::string folder = tell_checkpoint(path);
  const VerifyReport r = while_there(folder, [&] { return verify_checkpoint(folder); });
  if (!r.damaged.empty()) check_still_there(folder);
  for (const std::string& damage : r.damaged) fmt::print("damaged: {}\n", damage);
  fmt::print("{}, {}, {}: {}\n", counted(r.num_files, "file"), counted(r.num_datasets, "dataset"),
             counted(r.bytes, "byte"), r.damaged.empty() ? "all well" : "DAMAGED");
  return r.damaged.empty() ? 0 : 1;
}

struct ExportOptions {
  std::string out;
  bool merged = false;
  StorageType type = StorageType::fp32;
  bool type_is_given = false;
  int64_t most_bytes = ExportForm{}.most_bytes;
};

// The tokenizer of an export, and how its model is used.
struct ExportedTexts {
  std::string folder;  // of the tokenizer; empty: unknown
  std::unique_ptr<Tokenizer> tokenizer;
  GenerationConfig generation;
  std::string jinja;
};

// Returns the token before every text, from the base's generation_config.json, the tokenizer's pipeline or its files;
// otherwise end_of_text.
int64_t begin_of_text(const GenerationConfig& generation, const Tokenizer& tokenizer) {
  if (generation.begin) return *generation.begin;
  if (const std::vector<int32_t> beginning = tokenizer.beginning(); !beginning.empty()) return beginning.front();
  const TokenUse& use = tokenizer.use();
  if (const auto bos = use.roles.find("bos_token"); bos != use.roles.end())
    for (const SpecialToken& special : tokenizer.special_tokens())
      if (special.text == bos->second) return special.id;
  return tokenizer.end_of_text();
}

ExportedTexts texts_of(const WeightSource& weights, const std::string& known, const std::string& named) {
  ExportedTexts texts;
  texts.folder = named.empty() && std::filesystem::exists(known) ? known : named;
  if (texts.folder.empty()) return texts;
  texts.tokenizer = load_tokenizer(texts.folder);
  CHECK(weights.tokenizer_hash.empty() || hash_of(*texts.tokenizer) == weights.tokenizer_hash,
        "{} was trained with another tokenizer{} than --tokenizer {}: its model would misread the text; leave "
        "--tokenizer out, or name the one it was trained with",
        weights.path, known.empty() ? "" : ", the one in " + known + ",", texts.folder);
  const ModelUse use = use_of(weights, *texts.tokenizer);
  texts.generation = use.generation;
  texts.generation.begin = begin_of_text(use.generation, *texts.tokenizer);
  texts.generation.ends = use.ends;
  texts.jinja = use.chat ? to_jinja(*use.chat) : texts.tokenizer->use().jinja;
  return texts;
}

// Prints how texts of the exported model end, and which class opens its tokenizer.
void tell_texts(const ExportedTexts& texts, const WeightSource& weights, const std::string& family,
                const std::string& out) {
  if (!texts.tokenizer) {
    fmt::print("end of text: none, since the tokenizer is unknown; name it with --tokenizer FOLDER\n");
    return;
  }
  std::vector<std::string> ends;
  for (const int32_t end : texts.generation.ends) ends.push_back(std::to_string(end));
  fmt::print("end of text: {} {}, of {}\n", ends.size() == 1 ? "token" : "tokens", fmt::join(ends, ", "), texts.folder);
  if (const std::optional<ChatTemplate> chat = use_of(weights, *texts.tokenizer).chat) {
    fmt::print("chat template: {}, as in its training\n", chat->name);
    if (const EndOfAnswer end = end_of_answer(*chat, *texts.tokenizer); !end.is_one_token)
      fmt::print(
          "{}, which ends an answer, is several tokens: generate() of `transformers` ends there with "
          "stop_strings=[...] and the tokenizer\n",
          quoted_bytes(end.text));
  } else if (!texts.jinja.empty()) {
    fmt::print("chat template: the tokenizer's\n");
  }
  if (family == "qwen2" && !cuts_as_qwen2(out))
    fmt::print(
        "AutoTokenizer of `transformers` assumes that models of Qwen 2's kind cut texts as Qwen does, but this "
        "tokenizer does not: open it with PreTrainedTokenizerFast.from_pretrained\n");
}

int export_adapter(CheckpointReader& reader, const BaseWeights& base, const ExportOptions& options) {
  check_complete(reader.manifest());
  ModelConfig m = model_of(reader.manifest(), reader.folder());
  m.adapter = adapter_of(reader.manifest(), reader.folder());
  const std::string family = exported_family(m);  // throws if no family fits
  const WeightSource weights = while_there(reader.folder(), [&] { return open_weights(reader.folder()); });
  const ExportedTexts texts = texts_of(weights, weights.tokenizer, "");
  if (texts.tokenizer) check_no_tokenizer_in(options.out);
  export_peft(reader, m, base.path, options.out);
  fmt::print("{}\nadapters of rank {}, for PEFT; their base: {}\n", options.out, m.adapter.rank, base.path);
  if (texts.tokenizer) {
    texts.tokenizer->save_for_transformers(options.out, m.context, texts.jinja);
    write_generation_config(texts.generation, options.out);
  }
  tell_texts(texts, weights, family, options.out);
  if (!is_hugging_face_folder(base.path))
    fmt::print(
        "the base is a checkpoint: `megalith checkpoint export` turns it into a folder that `transformers` opens\n");
  return 0;
}

int export_folder(const std::string& path, const std::string& tokenizer, const ExportOptions& options) {
  const std::string& out = options.out;
  const std::string found = tell_checkpoint(path);
  CheckpointReader reader = while_there(found, [&] { return CheckpointReader(found); });
  const std::optional<BaseWeights> base = base_of(reader.manifest(), reader.folder());
  if (base && !options.merged) {
    CHECK(!options.type_is_given && tokenizer.empty() && options.most_bytes == ExportForm{}.most_bytes,
          "--type, --max-shard-size and --tokenizer are for whole models, but {} has adapters, which are written in "
          "fp32 in one file; leave them out, or add --merged",
          reader.folder());
    return export_adapter(reader, *base, options);
  }
  CHECK(base || !options.merged, "--merged adds adapters to their base, but {} has none; leave it out",
        reader.folder());
  ModelConfig m = model_of(reader.manifest(), reader.folder());
  m.dropout = dropout_of(reader.manifest());
  check_complete(reader.manifest());  // before memory is allocated for tensors of the claimed sizes
  const WeightSource weights = while_there(reader.folder(), [&] { return open_weights(reader.folder()); });
  const ExportedTexts texts = texts_of(weights, weights.tokenizer, tokenizer);
  if (texts.tokenizer) check_no_tokenizer_in(out);
  const std::optional<int64_t> end_of_documents = end_of_documents_of(reader.manifest());
  // Leaves out the rows of ids that the tokenizer never produces: they are untrained, and other samplers would draw
  // them. Families other than GPT-2 are published with such rows, and their folders are written back unchanged.
  const int64_t rows = m.vocab;
  const std::string family = exported_family(m);
  const bool is_gpt2 = family == gpt2_family;
  const int64_t known_ids = texts.tokenizer ? texts.tokenizer->vocab_size() : rows;
  if (is_gpt2) m.vocab = std::min(rows, std::max(known_ids, end_of_documents.value_or(-1) + 1));
  const std::vector<StoredParameter> parameters = stored_parameters(m);
  const bool large = export_bytes(parameters, DType::f32) > options.most_bytes;
  const bool rounds = options.type_is_given ? options.type == StorageType::bf16 : large || !is_gpt2;
  export_hugging_face(*weights.tensors, m, parameters, out, end_of_documents,
                      {.type = rounds ? DType::bf16 : DType::f32,
                       .most_bytes = options.most_bytes,
                       .cuts_table = is_gpt2,
                       .generation = texts.generation});
  if (texts.tokenizer) texts.tokenizer->save_for_transformers(out, m.context, texts.jinja);
  fmt::print("{}\nmodel: {}\n", out, family);
  tell_texts(texts, weights, family, out);
  fmt::print("vocabulary: {}{}\n", m.vocab,
             m.vocab < rows ? fmt::format(", the ids of the tokenizer; the other {} rows of the embedding are left out",
                                          rows - m.vocab)
                            : "");
  fmt::print("weights: {}{}\n", rounds ? "bf16" : "fp32",
             !rounds || options.type_is_given ? ""
             : large                          ? ", since they are large; --type fp32 writes them as trained"
                                              : ", as this family is published; --type fp32 writes them as trained");
  if (end_of_documents)
    fmt::print(
        "documents were isolated in training: give `transformers` one document per sequence; megalith's commands read "
        "this from config.json\n");
  return 0;
}

// The exit statuses of diff(1).
constexpr int equal = 0, different = 1, not_compared = 2;

int diff(const std::string& path_a, const std::string& path_b) try {
  CheckpointReader a(find_checkpoint(path_a)), b(find_checkpoint(path_b));
  fmt::print("{} | {}\n", a.folder(), b.folder());
  const StateDifference states = compare_states(a.manifest(), b.manifest());
  for (const std::string& line : states.state) fmt::print("{}\n", line);
  for (const std::string& line : states.config) fmt::print("config, which does not count: {}\n", line);
  const TensorComparison tensors = compare_tensors(a, b);
  int64_t elements = 0;
  for (const TensorDifference& d : tensors.different) {
    fmt::print("{}\n", describe(d));
    elements += d.differing;
  }
  const bool same = states.state.empty() && tensors.different.empty();
  fmt::print("{} of {} differ, and {} of {}: {}\n", tensors.different.size(), counted(tensors.tensors, "tensor"),
             elements, counted(tensors.elements, "element"), same ? "equal" : "DIFFERENT");
  return same ? equal : different;
} catch (const Error& e) {
  say_error(e.what());
  return not_compared;
}

int reshard_folder(const ReshardOptions& options) {
  const std::string written = reshard(options);
  fmt::print("{}: {} for {}\n", written, counted(CheckpointReader(written).manifest().files.size(), "file"),
             counted(options.ranks, "rank"));
  return 0;
}

int average(const std::vector<std::string>& paths, int64_t last, const std::string& to) {
  const std::vector<std::string> checkpoints = checkpoints_to_average(paths, last);
  const std::string written = average_checkpoints(checkpoints, to);
  fmt::print("{}: the average of\n  {}\n", written, fmt::join(checkpoints, "\n  "));
  return 0;
}

}  // namespace

std::vector<Command> checkpoint_commands(CLI::App& cli) {
  auto* group = cli.add_subcommand("checkpoint", "Inspect, verify, compare, average, reshard and export checkpoints");
  group->require_subcommand(1);
  struct Options {
    std::string path, other, tokenizer, to;
    std::vector<std::string> averaged;
    int64_t last = 0;
    ExportOptions exported;
    bool all = false;
    ReshardOptions reshard;
  };
  auto o = std::make_shared<Options>();
  auto* inspect = group->add_subcommand("inspect", "Show the contents of a checkpoint");
  auto* verify = group->add_subcommand("verify", "Read every byte and compare every checksum");
  auto* convert = group->add_subcommand("export", "Convert to a Hugging Face checkpoint, with its tokenizer");
  auto* compare = group->add_subcommand("diff", "Compare two checkpoints of any layouts, tensor by tensor");
  auto* again = group->add_subcommand("reshard", "Rewrite a checkpoint in the files that another layout would write");
  auto* mean = group->add_subcommand("average", "Average the weights of several checkpoints");
  constexpr const char* where = "step-* folder; RUN for its newest complete one, or RUN/best";
  for (CLI::App* app : {inspect, verify, convert}) app->add_option("checkpoint", o->path, where)->required();
  inspect->add_flag("--all", o->all, "every value of the state, the config and every tensor");
  compare->add_option("a", o->path, where)->required();
  compare->add_option("b", o->other, where)->required();
  compare->footer(
      "Exit status: 0 if tensors, step, data and settings are equal, whatever the layouts; 1 if they differ; 2 if they "
      "cannot be compared.");
  again->add_option("checkpoint", o->reshard.from, where)->required();
  again->add_option("to", o->reshard.to, "directory of checkpoints, in which a step-* folder is written")->required();
  again->add_option("--ranks", o->reshard.ranks, "of the new layout")->required()->check(CLI::Range(1, 1 << 20));
  again->add_option("--memory", o->reshard.memory, "bytes for tensors, as 16MiB; default: 64MiB")
      ->transform(CLI::AsSizeValue(false));
  mean->add_option("checkpoints", o->averaged, "step-* folders; or one run folder: all of its checkpoints")->required();
  add_number(mean, "--last", o->last, "only this many newest checkpoints of the run folder; 0: all");
  mean->add_option("--out", o->to, "directory of checkpoints, in which a step-* folder is written")->required();
  mean->footer(
      "The new checkpoint has weights and no optimizer state: generate, evaluate, export and checkpoint.init_from take "
      "it.");
  add_overrides(again, o->reshard.overrides, "parallel.key=value ... of the new layout; all else stays as it was");
  convert->add_option("--out", o->exported.out, "folder for the files, which `transformers` opens")->required();
  convert->add_option("--tokenizer", o->tokenizer, "folder; default: the one the checkpoint was trained with");
  convert->add_flag("--merged", o->exported.merged,
                    "write the base with the adapters added to it as one model, instead of a folder for PEFT");
  auto* type = add_choice(convert, "--type", o->exported.type, "of the weights")
                   ->default_str("GPT-2 in one file: fp32; else bf16");
  convert
      ->add_option("--max-shard-size", o->exported.most_bytes,
                   "maximum size of a file, as 2GB; larger models are split into several")
      ->transform(CLI::AsSizeValue(true))
      ->default_str("5GB");
  const auto describe = [o] {
    const std::string found = find_checkpoint(o->path);
    fmt::print("{}", printable(while_there(found, [&] { return describe_checkpoint(found, o->all); })));
    return 0;
  };
  return {{inspect, describe},
          {verify, [o] { return verify_folder(o->path); }},
          {convert,
           [o, type] {
             o->exported.type_is_given = type->count() > 0;
             CHECK(o->exported.most_bytes > 0, "--max-shard-size 0: a file holds at least a tensor; give 1 or more");
             return export_folder(o->path, o->tokenizer, o->exported);
           }},
          {compare, [o] { return diff(o->path, o->other); }},
          {again, [o] { return reshard_folder(o->reshard); }},
          {mean, [o] { return average(o->averaged, o->last, o->to); }}};
}

}  // namespace megalith
