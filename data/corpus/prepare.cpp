#include "data/corpus/prepare.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "data/conversations/chat_template_jinja.h"
#include "data/corpus/common_tokens.h"
#include "data/corpus/encode_corpus.h"
#include "data/corpus/prepare_folder.h"
#include "data/corpus/prepare_journal.h"
#include "data/corpus/tokenizer_spec.h"
#include "data/samples/largest_ids.h"
#include "data/samples/prepared_note.h"
#include "data/tokenizers/bpe_vocabulary.h"
#include "data/tokenizers/tokenizer.h"

namespace megalith {

namespace {

namespace fs = std::filesystem;

// Counts special tokens written in the texts, without those that begin and end each document.
std::map<std::string, int64_t> special_texts_in(const std::vector<int64_t>& counts, const Tokenizer& tokenizer,
                                                int64_t documents) {
  std::map<std::string, int64_t> found;
  const std::vector<int32_t> beginning = tokenizer.beginning(), ending = ending_of(tokenizer);
  const auto in_frame = [&](int32_t id) { return std::ranges::count(beginning, id) + std::ranges::count(ending, id); };
  for (const SpecialToken& special : tokenizer.special_tokens()) {
    const int64_t framed = documents * in_frame(special.id);
    if (const int64_t count = counts[static_cast<size_t>(special.id)] - framed; count > 0) found[special.text] = count;
  }
  return found;
}

// Returns the most common tokens of the training set, with their shares.
std::vector<PrepareReport::CommonToken> common_tokens_of(const std::vector<int64_t>& counts, const Tokenizer& tokenizer,
                                                         int64_t num_tokens) {
  constexpr size_t most = 5;
  std::vector<PrepareReport::CommonToken> found;
  for (const int32_t id : most_common(counts, most))
    found.push_back({tokenizer.token_name(id),
                     static_cast<double>(counts[static_cast<size_t>(id)]) / static_cast<double>(num_tokens)});
  return found;
}

// Returns the named tokenizer, or null if one is to be trained.
std::unique_ptr<Tokenizer> named_tokenizer(const std::string& spec) {
  if (spec == "bytes") return make_byte_tokenizer();
  if (vocab_to_train(spec) > 0) return nullptr;
  check_is_path(spec);
  std::error_code absent;
  CHECK(fs::is_directory(spec, absent),
        "the tokenizer {} is not a folder; give \"bytes\", \"train:VOCAB\" or a folder that holds tokenizer.json, or "
        "vocab.json and merges.txt",
        spec);
  return load_tokenizer(spec);
}

std::map<std::string, std::string> files_of(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    files[entry.path().filename().string()] = read_file(entry.path().string());
  return files;
}

void save_tokenizer(const Tokenizer& tokenizer, const std::string& folder) {
  remove_all(folder);
  make_folders(folder, "give one that can be written");
  tokenizer.save(folder);
}

// Returns the report of an earlier, equal and complete prepare. Error: OUT holds the output of a different one.
std::optional<PrepareReport> made_before(const PrepareOptions& options, const nlohmann::json& of,
                                         const Tokenizer* tokenizer) {
  const std::optional<nlohmann::json> note = read_prepared_note(options.out);
  if (!note) return {};
  Prepared prepared;
  try {
    prepared = prepared_from(*note);
  } catch (const std::exception& error) {
    FAIL("{}/{} is damaged: {}; nothing is overwritten, so remove the folder or write to another", options.out,
         prepared_note, error.what());
  }
  std::string difference = difference_of(prepared.of, of);
  for (const std::string& name : prepared.made.names)
    if (std::error_code absent; difference.empty() && !fs::exists(fs::path(options.out) / name, absent))
      difference = name + " is gone";
  if (difference.empty() && tokenizer &&
      tokenizer->content() != load_tokenizer((fs::path(options.out) / "tokenizer").string())->content())
    difference = fmt::format("the tokenizer {} changed", options.tokenizer);
  CHECK(difference.empty(),
        "{} holds the output of an earlier prepare, and {} since; nothing is overwritten, so remove it or write to "
        "another folder",
        options.out, difference);
  prepared.made.report.was_made = true;
  return prepared.made.report;
}

void check_options(const PrepareOptions& options) {
  CHECK(!options.corpus.texts.empty(), "no text to prepare; name at least one file");
  CHECK(!options.out.empty(), "no folder to write to; name one");
  CHECK(options.threads >= 0, "{} threads; give at least 1, or 0 for one per core", options.threads);
  CHECK(options.window_bytes >= 1, "windows of {} bytes; give at least 1", options.window_bytes);
  CHECK(options.shard_tokens >= 0, "shards of {} tokens; give at least 1, or 0 for one file", options.shard_tokens);
  CHECK(options.skip_bad >= 0, "{} bad documents to leave out; give 0 or more", options.skip_bad);
  CHECK(options.examples.sequence_length >= 0, "sequences of {} tokens; give at least 1, or 0 to keep examples whole",
        options.examples.sequence_length);
}

// Error: an input of conversations is not JSON lines, or only one of the two fields is given.
void check_conversations(const PrepareOptions& options, const std::vector<TextInput>& inputs) {
  const ConversationFields& fields = *options.corpus.conversations;
  CHECK(fields.prompt.empty() == fields.completion.empty(),
        "--prompt-field \"{}\" and --completion-field \"{}\": a conversation of two fields takes both; name the other",
        fields.prompt, fields.completion);
  for (const TextInput& input : inputs)
    CHECK(input.json_lines,
          "{} is a text, but conversations are JSON lines; write one object a line into a .jsonl file, with \"{}\"",
          input.name(), fields.are_pairs() ? fields.prompt : fields.messages);
}

std::vector<TextInput> inputs_of(const PrepareOptions& options, bool has_tokenizer, LeftOut& left_out) {
  std::vector<TextInput> inputs = find_texts(options.corpus.texts, options.corpus.pipes_are_json, &left_out);
  for (const TextInput& input : inputs)
    CHECK(has_tokenizer || input.is_plain,
          "{} is a pipe, which can be read only once, but training a tokenizer reads the text before it is encoded; "
          "write it into a file, or use an existing tokenizer",
          input.name());
  if (options.corpus.conversations) check_conversations(options, inputs);
  return inputs;
}

// The notes of an unfinished prepare.
struct EarlierWork {
  std::optional<PrepareBegun> begun;
  std::optional<PreparePosition> position;  // encoding continues here
  std::optional<PrepareMade> made;          // only the move to OUT is left
};

// Error: the earlier prepare was of something other than `made`.
EarlierWork earlier_work(const PrepareFolder& folder, const nlohmann::json& made) {
  EarlierWork work{folder.noted(PrepareFolder::made_of, begun_from),
                   folder.noted(PrepareFolder::position, position_from),
                   folder.noted(PrepareFolder::publishing, made_from)};
  if (work.made ? work.begun.has_value() : work.position.has_value()) {  // a crash may have removed the other note
    const std::string difference = difference_of(work.begun.value_or(PrepareBegun()).of, made);
    CHECK(difference.empty(),
          "{} holds the work of an unfinished prepare, and {} since; remove it to start over, or use the earlier "
          "options and texts to continue",
          folder.path(""), difference);
  }
  return work;
}

// Returns the tokenizer of an unfinished prepare. Error: `named`, if not null, is a different one.
std::unique_ptr<Tokenizer> same_tokenizer(const PrepareFolder& folder, const Tokenizer* named,
                                          const std::string& spec) {
  const std::string kept = folder.path("tokenizer"), again = folder.path("tokenizer.again");
  if (named) {
    save_tokenizer(*named, again);
    CHECK(files_of(again) == files_of(kept),
          "{} holds the work of an unfinished prepare, and the tokenizer {} changed since; remove it to start over",
          folder.path(""), spec);
    remove_all(again);
  }
  return load_tokenizer(kept);
}

PrepareReport report_of(const TokenFiles& files, const Tokenizer& tokenizer, ValidationSplit::Rule rule) {
  const auto part_of = [](const TokenShards& shards) {
    return PrepareReport::Counts{shards.mark().documents, shards.mark().bytes, shards.mark().tokens};
  };
  PrepareReport report{
      .train = part_of(files.train()),
      .validation = part_of(files.validation()),
      .vocab_size = tokenizer.vocab_size(),
      .bytes_per_token = indexed_dataset::bytes_of(indexed_dataset::element_for(tokenizer.vocab_size())),
      .rule = rule,
      .most_common = {},
      .bad_documents = files.position().bad_documents,
      .first_bad = files.position().first_bad,
      .left_out = {},
      .examples = files.position().examples};
  const auto why_none = [&] {
    if (report.bad_documents > 0)
      return fmt::format(": {} were bad, the first one: {}", report.bad_documents, report.first_bad);
    if (report.examples.left_out > 0)
      return fmt::format("; --longer leave-out has left out {} examples; use a larger --sequence-length",
                         report.examples.left_out);
    return std::string("; name a text that is not empty");
  };
  CHECK(report.train.documents > 0, "the texts have no document to train on{}", why_none());
  CHECK(report.rule != ValidationSplit::Rule::ends || report.validation.documents > 0,
        "the text has one byte a document: too little for a validation set; give more text, or a validation fraction "
        "of 0");
  return report;
}

// Returns the template of conversations. `tokenizer` is null if one is to be trained.
ChatTemplate template_of(const PrepareOptions& options, const Tokenizer* tokenizer) {
  TokenUse use;
  use.roles["eos_token"] = end_of_text_name;
  LearnedTemplate learned = named_chat_template(options.examples.chat_template, tokenizer ? tokenizer->use() : use);
  CHECK(learned.prompts_only.empty(),
        "--template {}: it writes whole conversations, used in training, differently from prompts: {}. Choose another: "
        "chatml, llama3, mistral, zephyr, plain, or a file (data/conversations/chat_template.h)",
        options.examples.chat_template, learned.prompts_only);
  return std::move(learned.chat);
}

std::string other_template_of(const ChatTemplate& chat, const Tokenizer& tokenizer, const std::string& folder) {
  if (tokenizer.use().jinja.empty()) return "";
  try {
    ChatTemplate theirs = learn_chat_template(tokenizer.use().jinja, tokenizer.use().roles, folder).chat;
    theirs.name = chat.name;
    if (theirs == chat) return "";
  } catch (const Error&) {  // the folder's template has another form
  }
  return fmt::format(
      "{} has its own chat template, which writes conversations differently from {}; use it with --template {}", folder,
      chat.name, folder);
}

// Puts the template among the files. Returns its end of an answer if that is several tokens.
std::string keep_template(const ChatTemplate& chat, const Tokenizer& tokenizer, const PrepareFolder& folder) {
  write_file(folder.path(PrepareFolder::chat_template), chat_template_file(chat), {.replace = true});
  const EndOfAnswer end = end_of_answer(chat, tokenizer);
  return end.is_one_token ? "" : end.text;
}

// Counts the tokens, notes the result, and moves it to OUT. `is_resumable` is false for pipes, whose contents cannot be
// recognized again.
void publish(PrepareReport& report, const TokenFiles& files, const Tokenizer& tokenizer, nlohmann::json made,
             bool is_resumable, int threads, PrepareFolder& folder) {
  std::vector<std::string> names{"tokenizer"}, bins;
  for (const TokenShards* shards : {&files.train(), &files.validation()})
    for (const std::string& name : shards->files()) {
      names.push_back(name);
      if (shards == &files.train() && name.ends_with(".bin")) bins.push_back(folder.path(name));
    }
  const std::vector<int64_t> counts = count_tokens(bins, tokenizer.vocab_size(), threads);
  report.most_common = common_tokens_of(counts, tokenizer, report.train.tokens);
  const bool conversations = report.examples.examples > 0;  // templates consist of special tokens
  if (!conversations) report.special_texts = special_texts_in(counts, tokenizer, report.train.documents);
  if (conversations) names.emplace_back(PrepareFolder::chat_template);
  if (is_resumable) {
    nlohmann::json all = to_json(Prepared{std::move(made), {names, report}});
    all[largest_ids_key] = largest_ids_in(folder.path(""), names, counts);
    folder.note(prepared_note, all);
    names.emplace_back(prepared_note);
  }
  folder.note(PrepareFolder::publishing, to_json(PrepareMade{names, report}));
  report.not_removed = folder.publish(names);
}

}  // namespace

PrepareReport prepare(const PrepareOptions& options, const PrepareProgress& progress) {
  check_options(options);
  const int threads =
      options.threads > 0 ? options.threads : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const auto tell = [&](std::string_view stage, int64_t done, int64_t total) {
    if (progress) progress(stage, done, total);
  };
  std::unique_ptr<Tokenizer> tokenizer = named_tokenizer(options.tokenizer);
  LeftOut left_out;
  const std::vector<TextInput> inputs = inputs_of(options, tokenizer != nullptr, left_out);
  std::optional<ChatTemplate> chat;
  if (options.corpus.conversations) chat = template_of(options, tokenizer.get());
  nlohmann::json made = made_of(options, inputs, chat ? &*chat : nullptr);
  if (auto before = made_before(options, made, tokenizer.get())) return *before;
  PrepareFolder folder(options.out);
  const auto [begun, noted, all_made] = earlier_work(folder, made);
  if (all_made) {
    PrepareReport report = all_made->report;
    report.continued = true;
    report.left_out = std::move(left_out);
    report.not_removed = folder.publish(all_made->names);
    return report;
  }

  const Corpus corpus =
      noted ? reopen_corpus(options.corpus, inputs, begun->rule, begun->sizes) : open_corpus(options.corpus);
  const PreparePosition position = noted.value_or(PreparePosition());
  const int64_t total = corpus.disk_bytes();
  if (noted) {
    CHECK(position.text.input <= static_cast<int64_t>(inputs.size()),
          "{} is damaged: it continues at text {} of {}; remove the folder {} to start over",
          folder.path(PrepareFolder::position), position.text.input + 1, inputs.size(), folder.path(""));
    tokenizer = same_tokenizer(folder, tokenizer.get(), options.tokenizer);
  } else {
    folder.note(PrepareFolder::made_of, to_json(PrepareBegun{made, corpus.split.rule(), corpus.sizes}));
    if (!tokenizer)
      tokenizer = train_tokenizer(corpus, vocab_to_train(options.tokenizer), threads, {},
                                  [&](int64_t read) { tell("training the tokenizer", read, total); });
    save_tokenizer(*tokenizer, folder.path("tokenizer"));
    if (total > 0) folder.note(PrepareFolder::position, to_json(position));
  }

  int64_t told = 0;
  TokenFiles files(folder.path(""), options, tokenizer->vocab_size(), position);
  encode_corpus(corpus, *tokenizer, options, chat ? &*chat : nullptr, threads, folder, files, [&](int64_t consumed) {
    if (consumed > told) tell("encoding", told = consumed, total);
  });
  PrepareReport report = report_of(files, *tokenizer, corpus.split.rule());
  report.continued = noted.has_value() && !(position == PreparePosition());
  report.left_out = std::move(left_out);
  if (chat) report.end_of_answer = keep_template(*chat, *tokenizer, folder);
  if (chat) report.other_template = other_template_of(*chat, *tokenizer, options.tokenizer);
  publish(report, files, *tokenizer, std::move(made), total > 0, threads, folder);
  return report;
}

}  // namespace megalith
