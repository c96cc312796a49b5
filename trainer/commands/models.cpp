// Implements megalith generate, evaluate.
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "configs/output_file.h"
#include "kernels/system/counted.h"
#include "kernels/system/files.h"
#include "kernels/system/json.h"
#include "trainer/commands/command.h"
#include "trainer/commands/texts.h"
#include "trainer/inference/inference.h"
#include "trainer/job/agreement.h"
#include "trainer/machine/machine.h"
#include "trainer/train/metrics.h"
#include "trainer/train/progress_bar.h"

namespace megalith {

namespace {

struct ModelArguments {
  std::string checkpoint, tokenizer;
  Device device = Device::automatic;
  SpecialTexts special_texts = SpecialTexts::ids;
  std::vector<std::string> overrides;

  std::vector<std::string> options() const {
    std::vector<std::string> all{"run.device=" + to_string(device)};
    all.insert(all.end(), overrides.begin(), overrides.end());
    return all;
  }
  CommunicationConfig communication() const { return load_communication("", overrides); }
  // Collective.
  Inference open(const Session& session) const {
    use_threads(session.ranks_on_this_node());
    Inference inference(checkpoint, tokenizer, options(), session, special_texts);
    if (session.rank() == 0 && !inference.why_cpu().empty())
      fmt::print(stderr, "on the CPU: {}\n", inference.why_cpu());
    return inference;
  }
};

void add_model(CLI::App* app, ModelArguments& model) {
  app->add_option("--checkpoint", model.checkpoint, "checkpoint, run folder, or Hugging Face GPT-2 folder")->required();
  app->add_option("--tokenizer", model.tokenizer, "folder; default: the one the checkpoint was trained with");
  add_choice(app, "--device", model.device, "where to compute; auto: on a GPU where there is one");
  add_special_tokens(app, model.special_texts, "a text with one is an error");
  add_overrides(app, model.overrides,
                "section.key=value ... under mpirun: parallel.tensor_parallel_degree=2 and the like, as in train; the "
                "rest of the ranks share the weights out. Also communication.*, precision.compute, precision.residual, "
                "memory.lm_head_chunks");
}

// Returns what rank 0 reads, or its error, on all ranks.
std::vector<std::string> of_rank_0(const Session& session, const std::function<std::vector<std::string>()>& read) {
  std::vector<std::string> texts;
  together(session, [&] {
    if (session.rank() == 0) texts = read();
  });
  return from_cbor(session.broadcast_text(to_cbor(texts))).get<std::vector<std::string>>();
}

struct GenerateOptions {
  ModelArguments model;
  std::string prompt, prompts;
  Generation how;
};

int generate(const GenerateOptions& o, const Session& session) {
  const std::vector<std::string> prompts = of_rank_0(session, [&]() -> std::vector<std::string> {
    CHECK(o.prompt.empty() || o.prompts.empty(), "--prompt and --prompts; give one of them");
    CHECK(o.how.sampling.top_p > 0 && o.how.sampling.top_p <= 1,
          "--top-p {} is not a probability; give one above 0, up to 1", o.how.sampling.top_p);
    for (const std::string& stop : o.how.stops) CHECK(!stop.empty(), "--stop is empty; give the text to stop before");
    if (!o.prompts.empty()) return read_prompts(o.prompts);
    return {o.prompt == "-" ? standard_input() : o.prompt};
  });
  Inference inference = o.model.open(session);
  std::optional<TextPrinter> printer;
  const auto printed = [&]() -> TextPrinter& {  // made when there is something to print
    if (!printer) printer.emplace(prompts, o.how.samples, !o.prompts.empty());
    return *printer;
  };
  const GenerationRate rate = inference.generate(
      prompts, o.how,
      [&](size_t prompt, int64_t sample, std::string_view text) { printed().add(prompt, sample, text); },
      [&](size_t prompt, int64_t sample) { printed().end(prompt, sample); });
  if (session.rank() == 0 && rate.tokens > 0)
    fmt::print(stderr, "{} in {:.3f} s, {:.1f} a second\n", counted(rate.tokens, "token"), rate.seconds,
               static_cast<double>(rate.tokens) / rate.seconds);
  return 0;
}

struct EvaluateOptions {
  ModelArguments model;
  std::string data, choices, items;
  int64_t sequence_length = 0, sequences = 0;
};

void write_items(const std::string& path, const std::vector<Question>& questions,
                 const std::vector<Answered>& answered) {
  std::string lines;
  for (size_t i = 0; i < questions.size(); i++) {
    nlohmann::ordered_json line{{"item", i}, {"log_likelihood", answered[i].log_likelihood}};
    if (questions[i].last_word) {
      line["greedy"] = static_cast<bool>(answered[i].greedy[0]);
    } else {
      line["label"] = questions[i].right;
      line["best"] = best_answer(questions[i], answered[i], false);
      line["best_norm"] = best_answer(questions[i], answered[i], true);
    }
    lines += json_text(line) + "\n";
  }
  write_file(path, lines, {.replace = true});
}

void check_finite(const ModelArguments& model, double value, const std::string& data) {
  CHECK(std::isfinite(value), "the loss of {} on {} is {}: {}", model.checkpoint, data, value, why_not_finite);
}

void answer_questions(const EvaluateOptions& o, Inference& inference, const Session& session) {
  std::vector<Question> questions;
  together(session, [&] { questions = read_questions(o.choices); });
  ProgressBar bar;
  const std::vector<Answered> answered =
      inference.answer(questions, [&](double share) { bar.draw(share, {{"evaluating"}}); });
  bar.clear();
  together(session, [&] {
    for (const Answered& answer : answered)
      for (const double log_likelihood : answer.log_likelihood) check_finite(o.model, log_likelihood, o.choices);
    if (session.rank() != 0) return;
    if (!o.items.empty()) write_items(o.items, questions, answered);
    const Scores s = score(questions, answered);
    if (s.questions > 0)
      fmt::print("acc {:.6f}, acc_norm {:.6f} over {}\n", s.acc, s.acc_norm, counted(s.questions, "question"));
    if (s.last_words > 0)
      fmt::print("acc {:.6f}, perplexity {:.6f} over {}\n", s.last_word_acc, s.perplexity,
                 counted(s.last_words, "last word"));
  });
}

int evaluate(const EvaluateOptions& o, const Session& session) {
  together(session, [&] {
    CHECK(o.data.empty() != o.choices.empty(), "{}; give --data FILE of tokens, or --choices FILE of questions",
          o.data.empty() ? "nothing to evaluate on" : "--data and --choices");
    CHECK(o.model.special_texts == SpecialTexts::ids || !o.choices.empty(),
          "--special-tokens applies to the texts of --choices, and --data holds tokens; give it to `megalith prepare`, "
          "which makes them from texts");
    CHECK(o.items.empty() || !o.choices.empty(), "--items needs the questions of --choices; give that as well");
    if (session.rank() == 0) check_output("--items", o.items);
  });
  Inference inference = o.model.open(session);
  if (!o.choices.empty()) {
    answer_questions(o, inference, session);
    return 0;
  }
  ProgressBar bar;
  const EvaluationResult r = inference.evaluate(o.data, o.sequence_length, o.sequences,
                                                [&](double share) { bar.draw(share, {{"evaluating"}}); });
  bar.clear();
  together(session, [&] { check_finite(o.model, r.loss, o.data); });
  if (session.rank() != 0) return 0;
  fmt::print("loss {:.8f} nats a token over {} tokens", r.loss, r.tokens);
  if (r.bytes > 0) fmt::print(", {:.4f} bits per byte", bits_per_byte(r.loss, r.tokens, r.bytes));
  if (r.windows < r.all_windows) fmt::print("; the first {} of {}", r.windows, counted(r.all_windows, "window"));
  if (r.documents_apart)
    fmt::print("; documents kept apart, as in training{}", r.documents == 0 ? ", but none was found to end" : "");
  fmt::print("\n");
  return 0;
}

}  // namespace

Command generate_command(CLI::App& cli) {
  auto* app = cli.add_subcommand("generate", "Continue texts; alone or under mpirun");
  auto o = std::make_shared<GenerateOptions>();
  add_model(app, o->model);
  Generation& how = o->how;
  app->add_option("--prompt", o->prompt, "text to continue; -: standard input");
  app->add_option("--prompts", o->prompts,
                  "file of texts to continue, one a line, or with {\"prompt\": TEXT} on each line of a .jsonl file; -: "
                  "standard input. Prints {\"prompt\", \"sample\", \"text\"} for each, in their order");
  add_number(app, "--tokens", how.tokens, "tokens to add, at most");
  add_number(app, "--samples", how.samples, "continuations of each text, each with draws of its own", 1);
  add_number(app, "--batch", how.batch, "texts continued at once, each with memory for its keys and values", 1);
  app->add_option("--stop", how.stops, "end before this text; may be given several times")->allow_extra_args(false);
  add_number(app, "--temperature", how.sampling.temperature, "0: always the most likely token");
  add_number(app, "--top-k", how.sampling.top_k, "sample among this many most likely tokens; 0: all");
  app->add_option("--top-p", how.sampling.top_p,
                  "sample among the fewest most likely tokens that together have this probability; 1: all")
      ->capture_default_str();
  app->add_option("--seed", how.sampling.seed, "seed of the draws")->capture_default_str();
  return {
      app, {}, [o](const Session& session) { return generate(*o, session); }, [o] { return o->model.communication(); }};
}

Command evaluate_command(CLI::App& cli) {
  auto* app = cli.add_subcommand(
      "evaluate",
      "Loss and bits per byte of a checkpoint on a token file, or its scores on questions; alone or under mpirun");
  auto o = std::make_shared<EvaluateOptions>();
  add_model(app, o->model);
  app->add_option("--data", o->data, "token file");
  app->add_option("--choices", o->choices,
                  "file of questions, JSON lines in HellaSwag's form, {\"ctx\", \"endings\", \"label\"}, or LAMBADA's, "
                  "{\"text\"}, whose last word is the answer; scored as by lm-evaluation-harness");
  app->add_option("--items", o->items, "with --choices: file for the result of each question, JSON lines");
  add_number(app, "--sequence-length", o->sequence_length, "tokens per window of --data; 0: the model's context");
  add_number(app, "--sequences", o->sequences, "evaluate only this many first windows of --data; 0: all");
  return {
      app, {}, [o](const Session& session) { return evaluate(*o, session); }, [o] { return o->model.communication(); }};
}

}  // namespace megalith
