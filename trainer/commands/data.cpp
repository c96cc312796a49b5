// Implements megalith prepare.
#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <functional>
#include <memory>

#include "data/corpus/prepare.h"
#include "data/tokenizers/quoted.h"
#include "kernels/system/check.h"
#include "kernels/system/counted.h"
#include "trainer/commands/command.h"
#include "trainer/train/progress_bar.h"

namespace megalith {

constexpr auto words_of(TrainOn) { return words("answers", "all"); }
constexpr auto words_of(ExampleOptions::Longer) { return words("cut", "leave-out"); }

namespace {

class StageBar {
 public:
  void draw(std::string_view stage, int64_t done, int64_t total) {
    const auto now = std::chrono::steady_clock::now();
    if (stage != stage_) {
      stage_ = stage;
      start_ = now;
      first_ = done;
    }
    const double seconds = std::chrono::duration<double>(now - start_).count();
    const double rate = seconds > 0 ? static_cast<double>(done - first_) / seconds : 0;  // bytes a second
    const std::string of = total > 0 ? fmt::format(" of {:.1f}", static_cast<double>(total) / 1e6) : "";
    std::vector<LinePart> parts{{std::string(stage), 2},
                                {fmt::format("{:.1f}{} MB", static_cast<double>(done) / 1e6, of)},
                                {fmt::format("{:.1f} MB/s", rate / 1e6), 1}};
    if (total > 0 && rate > 0) {
      const auto left = static_cast<int64_t>(static_cast<double>(total - done) / rate);
      parts.push_back({fmt::format("ETA {}:{:02}:{:02}", left / 3600, left / 60 % 60, left % 60)});
    }
    bar_.draw(total > 0 ? static_cast<double>(done) / static_cast<double>(total) : 0, parts);
  }
  void clear() { bar_.clear(); }

 private:
  ProgressBar bar_{ProgressBar::WithoutTerminal::lines};
  std::string stage_;
  std::chrono::steady_clock::time_point start_;
  int64_t first_ = 0;
};

void print_examples(const PrepareReport& r) {
  const ExampleCounts& e = r.examples;
  const auto share = [](int64_t part, int64_t all) {
    return all > 0 ? 100 * static_cast<double>(part) / static_cast<double>(all) : 0.0;
  };
  fmt::print("{}, {}, {} of {} tokens count ({:.1f} %)\n", counted(e.examples, "example"), counted(e.turns, "turn"),
             e.counted, e.tokens, share(e.counted, e.tokens));
  if (e.without_counted > 0)
    fmt::print("{} {} no token that counts, and so no effect on the training\n", counted(e.without_counted, "example"),
               e.without_counted == 1 ? "has" : "have");
  if (e.cut > 0)
    fmt::print("cut to the sequence length: {}, {}\n", counted(e.cut, "example"), counted(e.cut_tokens, "token"));
  if (e.left_out > 0) fmt::print("left out, longer than a sequence: {}\n", counted(e.left_out, "example"));
  if (!r.other_template.empty()) fmt::print("warning: {}\n", r.other_template);
  if (!r.end_of_answer.empty())
    fmt::print(
        "warning: {}, which ends an answer, is several tokens of this tokenizer; a template whose strings are its "
        "special tokens takes fewer tokens\n",
        quoted_bytes(r.end_of_answer));
}

void print(const PrepareReport& r, const PrepareOptions& options) {
  const std::string& out = options.out;
  if (r.was_made)
    fmt::print("{}: already complete, from the same texts with the same options; nothing was left to do\n", out);
  if (r.continued) fmt::print("{}: continued an earlier, unfinished prepare\n", out);
  fmt::print("{}: {} training tokens of {}, {} validation tokens of {}, vocabulary {}, {:.2f} bytes a token\n", out,
             r.train.tokens, counted(r.train.documents, "document"), r.validation.tokens,
             counted(r.validation.documents, "document"), r.vocab_size,
             static_cast<double>(r.train.bytes) / static_cast<double>(r.train.tokens));
  if (r.rule == ValidationSplit::Rule::ends)
    fmt::print(
        "validation set: the last {:g} % of each document, since there are too few documents to select whole ones\n",
        100 * options.corpus.validation_fraction);
  else if (r.rule == ValidationSplit::Rule::documents && r.validation.documents == 0)
    fmt::print("validation set: empty, since no document was selected; there is no validation.bin\n");
  else if (r.rule == ValidationSplit::Rule::documents)
    fmt::print("validation set: whole documents, selected by their hash\n");
  if (r.examples.examples > 0) print_examples(r);
  std::vector<std::string> tokens, names;
  for (const auto& [text, share] : r.most_common)
    tokens.push_back(fmt::format("{} {:.1f} %", quoted_bytes(text), 100 * share));
  fmt::print("most common tokens: {}\n", fmt::join(tokens, ", "));
  if (!r.not_removed.empty()) fmt::print("warning: {}; this folder is no longer needed\n", r.not_removed);
  for (const auto& [name, count] : r.special_texts) names.push_back(fmt::format("{} {}", name, count));
  if (!names.empty()) fmt::print("special tokens in the texts, encoded as their ids: {}\n", fmt::join(names, ", "));
  if (!r.left_out.empty()) fmt::print("left out of the folders: {}\n", to_text(r.left_out));
  if (r.bad_documents > 0)
    fmt::print("left out {}; the first: {}\n", counted(r.bad_documents, "bad document"), r.first_bad);
  else if (options.skip_bad > 0)
    fmt::print("found no bad document; --skip-bad {} would leave out as many\n", options.skip_bad);
}

// Adds the options of conversations. Returns what sets CorpusOptions::conversations.
std::function<void()> add_conversations(CLI::App* app, const std::shared_ptr<PrepareOptions>& options,
                                        const CLI::Option* field) {
  auto fields = std::make_shared<ConversationFields>();
  ExampleOptions& examples = options->examples;
  const auto* chat = app->add_option(
      "--template", examples.chat_template,
      "lines are conversations, written in the form of chatml, llama3, mistral, zephyr or plain, of a file "
      "(data/conversations/chat_template.h, or Jinja), or of a Hugging Face checkpoint; the answers count");
  app->add_option("--prompt-field", fields->prompt,
                  "field of a JSON line with the user's text, instead of messages; requires --completion-field");
  app->add_option("--completion-field", fields->completion, "field of a JSON line with the answer to it");
  add_choice(app, "--train-on", examples.train_on,
             "which tokens of a conversation count in the loss: those of answers and of their ends, or all");
  app->add_option("--sequence-length", examples.sequence_length,
                  "batch.sequence_length of the training; longer examples are cut or left out; 0: no limit")
      ->capture_default_str();
  add_choice(app, "--longer", examples.longer, "what to do with examples that are longer than --sequence-length");
  return [options, fields, chat, field] {
    CHECK(chat->count() > 0 || (fields->prompt.empty() && fields->completion.empty()),
          "--prompt-field and --completion-field make conversations, which need a template; add --template, as in "
          "--template plain");
    if (chat->count() == 0) return;
    if (field->count() > 0) fields->messages = options->corpus.field;
    options->corpus.conversations = *fields;
    options->corpus.pipes_are_json = true;
  };
}

}  // namespace

Command prepare_command(CLI::App& cli) {
  auto* app = cli.add_subcommand("prepare", "Convert texts to token files");
  auto options = std::make_shared<PrepareOptions>();
  app->add_option("--text", options->corpus.texts,
                  "files, folders, patterns, or - for standard input: .jsonl, .ndjson and .json hold a document a "
                  "line, others are text; each may be compressed (.gz, .zst, .xz)")
      ->required();
  app->add_option(
         "--tokenizer", options->tokenizer,
         "bytes, train:VOCAB (byte-level BPE trained on the text), or a folder with tokenizer.json, or vocab.json "
         "and merges.txt")
      ->required();
  app->add_option("--out", options->out, "folder for train.bin, validation.bin and tokenizer/")->required();
  auto* field = app->add_option("--field", options->corpus.field,
                                "field of a JSON line that has the text, as data.text for text inside data; if given, "
                                "pipes are JSON lines")
                    ->capture_default_str();
  app->add_option("--separator", options->corpus.separator, "text between documents; none: each file is one document")
      ->capture_default_str();
  app->add_option(
         "--validation", options->corpus.validation_fraction,
         "share of the documents for the validation set, selected by hash; if there are few documents, the end of each")
      ->check([](const std::string& text) {
        double share = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), share);
        return error == std::errc() && end == text.data() + text.size()
                   ? ""
                   : fmt::format("{} is not a number; give a share, as 0.1 for a tenth", text);
      })
      ->capture_default_str();
  app->add_option("--shard-tokens", options->shard_tokens,
                  "a shard (train-00000.bin, ...) ends with the document that makes it this long; 0: one file")
      ->capture_default_str();
  app->add_option("--skip-bad", options->skip_bad,
                  "leave out up to this many documents that are not UTF-8, have NUL bytes, or whose line cannot be "
                  "parsed or lacks the field; one more is an error")
      ->capture_default_str();
  add_special_tokens(app, options->special_texts, "a document with one is bad");
  const std::function<void()> take_conversations = add_conversations(app, options, field);
  app->add_option("--threads", options->threads, "0: one for each core")->capture_default_str();
  return {app, [options, field, take_conversations] {
            options->corpus.pipes_are_json = field->count() > 0;
            take_conversations();
            if (options->corpus.separator == "none") options->corpus.separator.clear();
            StageBar bar;
            const PrepareReport report = prepare(
                *options, [&](std::string_view stage, int64_t done, int64_t all) { bar.draw(stage, done, all); });
            bar.clear();
            print(report, *options);
            return 0;
          }};
}

}  // namespace megalith
