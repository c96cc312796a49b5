#include "data/prepare.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "data/bpe_vocabulary.h"
#include "data/common_tokens.h"
#include "data/documents.h"
#include "data/largest_ids.h"
#include "data/ordered_parallel.h"
#include "data/prepare_folder.h"
#include "data/prepare_journal.h"
#include "data/token_shards.h"
#include "data/tokenizer.h"
#include "data/tokenizer_spec.h"

namespace megalith {

namespace {

namespace fs = std::filesystem;

// The tokens of a batch, and the texts' position after it.
struct EncodedDocument {
  size_t end;     // of its tokens
  int64_t bytes;  // of its text
  bool held_out, is_last;
  std::string bad;
};
struct EncodedBatch {
  std::vector<int32_t> ids;
  std::vector<EncodedDocument> documents;
  TextPosition end;
  int64_t text_bytes, consumed;
};

class BatchEncoder {
 public:
  BatchEncoder(const Corpus& corpus, const Tokenizer& tokenizer, SpecialTexts special_texts)
      : corpus_(corpus),
        documents_(corpus),
        encoder_(tokenizer.encoder()),
        special_(tokenizer),
        special_texts_(special_texts),
        end_of_text_(tokenizer.end_of_text()) {}

  EncodedBatch encode(TextBatch&& batch) {
    EncodedBatch encoded{{}, {}, batch.end, static_cast<int64_t>(batch.text.size()), batch.consumed};
    encoded.ids.reserve(batch.text.size() / 3);
    documents_.documents_of(batch, [&](const Document& document) {
      std::string bad = document.bad;
      if (bad.empty() && special_texts_ == SpecialTexts::refuse) bad = special_token_in(document.text, batch);
      if (bad.empty()) {
        if (special_texts_ == SpecialTexts::ids)
          special_.encode(*encoder_, document.text, encoded.ids);
        else
          encoder_->encode(document.text, encoded.ids);
        if (document.is_last) encoded.ids.push_back(end_of_text_);
      }
      encoded.documents.push_back({encoded.ids.size(), static_cast<int64_t>(document.text.size()), document.held_out,
                                   document.is_last, std::move(bad)});
    });
    return encoded;
  }

 private:
  std::string special_token_in(std::string_view text, const TextBatch& batch) const {
    const std::string why = why_refused(special_, text, batch.begin.offset);
    return why.empty() ? ""
                       : corpus_.inputs[static_cast<size_t>(batch.begin.input)].name() + " has, in a document, " + why;
  }

  const Corpus& corpus_;
  DocumentReader documents_;
  std::unique_ptr<Encoder> encoder_;
  SpecialText special_;
  SpecialTexts special_texts_;
  int32_t end_of_text_;
};

// Writes encoded batches in order, and knows the position.
class TokenFiles {
 public:
  TokenFiles(const std::string& folder, const PrepareOptions& options, int64_t vocab_size, PreparePosition from)
      : skip_bad_(options.skip_bad),
        train_(folder, "train", vocab_size, options.shard_tokens, from.train),
        validation_(folder, "validation", vocab_size, options.shard_tokens, from.validation),
        position_(std::move(from)) {}

  void write(const EncodedBatch& batch) {
    size_t begin = 0;
    for (const EncodedDocument& document : batch.documents) {
      write(document, std::span(batch.ids).subspan(begin, document.end - begin));
      begin = document.end;
    }
    position_.text = batch.end;
  }

  const PreparePosition& sync() {
    position_.train = train_.sync();
    position_.validation = validation_.sync();
    return position_;
  }
  void finish() {
    train_.finish();
    validation_.finish();
    sync();
  }
  const PreparePosition& position() const { return position_; }
  const TokenShards& train() const { return train_; }
  const TokenShards& validation() const { return validation_; }

 private:
  void write(const EncodedDocument& document, std::span<const int32_t> ids) {
    TokenShards& shards = document.held_out ? validation_ : train_;
    if (!document.bad.empty() && !position_.in_bad_document) {
      pass_over(document.bad);
      if (shards.mark().open_bytes > 0) shards.drop_document();
      position_.in_bad_document = true;
    }
    if (position_.in_bad_document) {
      position_.in_bad_document = !document.is_last;
      return;
    }
    shards.add(ids, document.bytes);
    if (document.is_last) shards.end_document();
  }

  void pass_over(const std::string& bad) {
    CHECK(skip_bad_ > 0, "{}; to leave out up to N such documents, use --skip-bad N", bad);
    CHECK(position_.bad_documents < skip_bad_, "{}; bad document {} exceeds --skip-bad {}", bad,
          position_.bad_documents + 1, skip_bad_);
    if (position_.bad_documents++ == 0) position_.first_bad = bad;
  }

  int64_t skip_bad_;
  TokenShards train_, validation_;
  PreparePosition position_;
};

class Clock {
 public:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }
  void restart() { start_ = std::chrono::steady_clock::now(); }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

void encode(const Corpus& corpus, const Tokenizer& tokenizer, const PrepareOptions& options, int threads,
            PrepareFolder& folder, TokenFiles& files, const std::function<void(int64_t consumed)>& advance) {
  const SpecialText special(tokenizer);
  TextBatches batches(
      corpus, options.window_bytes, [&](std::string_view text) { return special.last_cut(tokenizer, text); },
      files.position().text);
  const bool can_go_on = corpus.disk_bytes() > 0;
  Clock since_noted;
  int64_t not_noted = 0;
  double wait = options.note_seconds;
  ordered_parallel<TextBatch, EncodedBatch>(
      threads, [&](TextBatch& batch) { return batches.next(batch); },
      [&]() -> std::function<EncodedBatch(TextBatch &&)> {
        const auto encoder = std::make_shared<BatchEncoder>(corpus, tokenizer, options.special_texts);
        return [encoder](TextBatch&& batch) { return encoder->encode(std::move(batch)); };
      },
      [&](EncodedBatch&& batch) {
        files.write(batch);
        advance(batch.consumed);
        not_noted += batch.text_bytes;
        if (!can_go_on || not_noted < options.note_bytes || since_noted.seconds() < wait) return;
        since_noted.restart();
        folder.note(PrepareFolder::position, to_json(files.sync()));
        folder.keep();
        not_noted = 0;
        // However slow the disk is, notes take at most a twentieth of the time.
        if (options.note_seconds > 0) wait = std::max(options.note_seconds, 20 * since_noted.seconds());
      });
  // Finishing removes what earlier notes may count.
  if (can_go_on) folder.note(PrepareFolder::position, to_json(files.sync()));
  files.finish();
}

// Counts special tokens that stand in texts; each document ends with one more.
std::map<std::string, int64_t> special_texts_in(const std::vector<int64_t>& counts, const Tokenizer& tokenizer,
                                                int64_t documents) {
  std::map<std::string, int64_t> found;
  for (const SpecialToken& special : tokenizer.special_tokens()) {
    const int64_t ends = special.id == tokenizer.end_of_text() ? documents : 0;
    if (const int64_t count = counts[static_cast<size_t>(special.id)] - ends; count > 0) found[special.text] = count;
  }
  return found;
}

// Returns the most common tokens of the training set, with their shares.
std::vector<PrepareReport::CommonToken> common_tokens_of(const std::vector<int64_t>& counts, const Tokenizer& tokenizer,
                                                         int64_t num_tokens) {
  constexpr size_t most = 5;
  std::vector<PrepareReport::CommonToken> found;
  for (const int32_t id : most_common(counts, most))
    found.push_back(
        {id == tokenizer.end_of_text() ? tokenizer.as_bpe().end_name : std::string(tokenizer.token_bytes(id)),
         static_cast<double>(counts[static_cast<size_t>(id)]) / static_cast<double>(num_tokens)});
  return found;
}

// Returns the named tokenizer, or null if it is to be trained.
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

// Returns the report of an equal prepare that is complete. Error: OUT holds the output of another.
std::optional<PrepareReport> made_before(const PrepareOptions& options, const nlohmann::json& of,
                                         const Tokenizer* tokenizer) {
  const std::optional<nlohmann::json> note = PrepareFolder::ended(options.out);
  if (!note) return {};
  Prepared prepared;
  try {
    prepared = prepared_from(*note);
  } catch (const std::exception& error) {
    FAIL("{}/{} is damaged: {}; nothing is overwritten, so remove the folder or write to another", options.out,
         PrepareFolder::prepared, error.what());
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
  CHECK(options.threads >= 0, "{} threads; give at least 1, or 0 for one a core", options.threads);
  CHECK(options.window_bytes >= 1, "windows of {} bytes; give at least 1", options.window_bytes);
  CHECK(options.shard_tokens >= 0, "shards of {} tokens; give at least 1, or 0 for one file", options.shard_tokens);
  CHECK(options.skip_bad >= 0, "{} bad documents to leave out; give 0 or more", options.skip_bad);
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
  const std::vector<TextInput> inputs = find_texts(options.corpus.texts, options.corpus.pipes_are_json, &left_out);
  for (const TextInput& input : inputs)
    CHECK(tokenizer || input.is_plain,
          "{} is a pipe, which can be read once, and training a tokenizer takes a reading before that which encodes; "
          "write "
          "it into a file, or name a tokenizer that is there already",
          input.name());

  nlohmann::json made = made_of(options, inputs);
  if (auto before = made_before(options, made, tokenizer.get())) return *before;
  PrepareFolder folder(options.out);
  const auto earlier = folder.noted(PrepareFolder::made_of, begun_from);
  const auto noted = folder.noted(PrepareFolder::position, position_from);
  const auto all_made = folder.noted(PrepareFolder::publishing, made_from);
  if (all_made ? earlier.has_value() : noted.has_value()) {  // the other note may be gone already
    const std::string difference = difference_of(earlier.value_or(PrepareBegun()).of, made);
    CHECK(difference.empty(),
          "{} holds the work of an unfinished prepare, and {} since; remove it to start over, or use the earlier "
          "options and texts to continue",
          folder.path(""), difference);
  }
  const std::string tokenizer_folder = folder.path("tokenizer");
  if (all_made) {
    PrepareReport report = all_made->report;
    report.continued = true;
    report.left_out = std::move(left_out);
    report.not_removed = folder.publish(all_made->names);
    return report;
  }

  const Corpus corpus =
      noted ? reopen_corpus(options.corpus, inputs, earlier->rule, earlier->sizes) : open_corpus(options.corpus);
  const PreparePosition position = noted.value_or(PreparePosition());
  if (noted) {
    CHECK(position.text.input <= static_cast<int64_t>(inputs.size()),
          "{} is damaged: it continues at text {} of {}; remove the folder {} to start over",
          folder.path(PrepareFolder::position), position.text.input + 1, inputs.size(), folder.path(""));
    if (tokenizer) {
      const std::string again = folder.path("tokenizer.again");
      save_tokenizer(*tokenizer, again);
      CHECK(files_of(again) == files_of(tokenizer_folder),
            "{} holds the work of an unfinished prepare, and the tokenizer {} changed since; remove it to start over",
            folder.path(""), options.tokenizer);
      remove_all(again);
    }
    tokenizer = load_tokenizer(tokenizer_folder);
  } else {
    folder.note(PrepareFolder::made_of, to_json(PrepareBegun{made, corpus.held_out.rule(), corpus.sizes}));
    if (!tokenizer)
      tokenizer = train_tokenizer(corpus, vocab_to_train(options.tokenizer), threads, {},
                                  [&](int64_t read) { tell("training the tokenizer", read, corpus.disk_bytes()); });
    save_tokenizer(*tokenizer, tokenizer_folder);
    if (corpus.disk_bytes() > 0) folder.note(PrepareFolder::position, to_json(position));
  }

  const int64_t total = corpus.disk_bytes();
  int64_t told = 0;
  TokenFiles files(folder.path(""), options, tokenizer->vocab_size(), position);
  encode(corpus, *tokenizer, options, threads, folder, files, [&](int64_t consumed) {
    if (consumed > told) tell("encoding", told = consumed, total);
  });

  const auto part_of = [](const TokenShards& shards) {
    return PrepareReport::Part{shards.mark().documents, shards.mark().bytes, shards.mark().tokens};
  };
  PrepareReport report{
      .train = part_of(files.train()),
      .validation = part_of(files.validation()),
      .vocab_size = tokenizer->vocab_size(),
      .bytes_per_token = indexed_dataset::bytes_of(indexed_dataset::element_for(tokenizer->vocab_size())),
      .held_out = corpus.held_out.rule(),
      .most_common = {},
      .bad_documents = files.position().bad_documents,
      .first_bad = files.position().first_bad,
      .continued = noted.has_value() && !(position == PreparePosition()),
      .left_out = std::move(left_out)};
  CHECK(report.train.documents > 0, "the texts have no document to train on{}",
        report.bad_documents > 0
            ? fmt::format(": {} were bad, the first so: {}", report.bad_documents, report.first_bad)
            : "; name a text that is not empty");
  CHECK(
      report.held_out != HoldOut::Rule::ends || report.validation.documents > 0,
      "the text has one byte a document: too little for a validation set; give more text, or a validation fraction of "
      "0");
  std::vector<std::string> names{"tokenizer"}, bins;
  for (const TokenShards* shards : {&files.train(), &files.validation()})
    for (const std::string& name : shards->files()) {
      names.push_back(name);
      if (shards == &files.train() && name.ends_with(".bin")) bins.push_back(folder.path(name));
    }
  const std::vector<int64_t> counts = count_tokens(bins, tokenizer->vocab_size(), threads);
  report.most_common = common_tokens_of(counts, *tokenizer, report.train.tokens);
  report.special_texts = special_texts_in(counts, *tokenizer, report.train.documents);
  // The contents of pipes cannot be recognized again.
  if (corpus.disk_bytes() > 0) {
    nlohmann::json all = to_json(Prepared{std::move(made), {names, report}});
    all[largest_ids_key] = largest_ids_in(folder.path(""), names, counts);
    folder.note(PrepareFolder::prepared, all);
    names.emplace_back(PrepareFolder::prepared);
  }
  folder.note(PrepareFolder::publishing, to_json(PrepareMade{names, report}));
  report.not_removed = folder.publish(names);
  return report;
}

}  // namespace megalith
