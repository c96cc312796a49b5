// Implements megalith generate, evaluate.
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "configs/config.h"
#include "configs/output_file.h"
#include "data/tokenizers/whole_characters.h"
#include "kernels/system/counted.h"
#include "kernels/system/files.h"
#include "kernels/system/json.h"
#include "trainer/commands/command.h"
#include "trainer/commands/model_arguments.h"
#include "trainer/commands/texts.h"
#include "trainer/inference/engine.h"
#include "trainer/inference/inference.h"
#include "trainer/job/agreement.h"
#include "trainer/train/metrics.h"
#include "trainer/train/progress_bar.h"

namespace megalith {

namespace {

// Returns on all ranks the lines that rank 0 reads, or throws its error on all.
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
  bool interactive = false;
  Generation how;
  SamplingArguments sampling;
};

void say(const Session& session, const std::vector<std::string>& lines) {
  if (session.rank() == 0)
    for (const std::string& line : lines) fmt::print(stderr, "{}\n", line);
}

// Returns how to generate texts: by the options, and by the model's folder for those that are not given.
Generation generation_of(const GenerateOptions& o, const Inference& inference, const Session& session) {
  const ModelUse& use = inference.use();
  SamplingArguments sampling = o.sampling;
  say(session, sampling.take_defaults(use.generation));
  Generation how = o.how;
  how.sampling = sampling.sampling;
  how.ends = {.tokens = use.ends, .least = sampling.least};
  how.shows_specials = sampling.shows_specials;
  if (how.shows_specials) return how;
  // Special tokens are not part of the text, and end it by their ids.
  const std::vector<SpecialToken> specials = inference.tokenizer().special_tokens();
  std::erase_if(how.stops, [&](const std::string& stop) {
    const auto special = std::ranges::find(specials, stop, &SpecialToken::text);
    if (special != specials.end()) how.ends.tokens.push_back(special->id);
    return special != specials.end();
  });
  if (use.chat)
    if (const EndOfAnswer end = end_of_answer(*use.chat, inference.tokenizer()); !end.is_one_token)
      how.stops.push_back(end.text);
  return how;
}

// Returns a line if a prompt is longer than the context; otherwise "".
std::string why_cut(const std::string& what, size_t tokens, int64_t context) {
  if (std::cmp_less_equal(tokens, context)) return "";
  return fmt::format("{} has {}, but the model's context is {}: its first {} are not read", what,
                     counted(tokens, "token"), context, static_cast<int64_t>(tokens) - context);
}

void check_generation(const GenerateOptions& o) {
  CHECK(o.prompt.empty() || o.prompts.empty(), "--prompt and --prompts; give one of them");
  CHECK(!o.interactive || (o.prompt.empty() && o.prompts.empty()),
        "--interactive reads prompts from standard input and does not work with {}; leave one of them out",
        o.prompt.empty() ? "--prompts" : "--prompt");
  CHECK(!o.interactive || o.how.samples == 1,
        "--interactive prints a text as it comes, but --samples {} would come at once; leave one of them out",
        o.how.samples);
  CHECK(!o.interactive || o.how.tokens > 0, "--interactive with --tokens 0 adds nothing; give 1 or more");
  o.sampling.check();
  for (const std::string& stop : o.how.stops) CHECK(!stop.empty(), "--stop is empty; give the text to stop before");
}

// Continues each typed line, until the end of the input.
int continue_lines(const GenerateOptions& o, const Session& session) {
  together(session, [&] { check_generation(o); });
  Dialogue dialogue;
  Inference inference = o.model.open(session);
  Generation how;
  together(session, [&] { how = generation_of(o, inference, session); });
  const auto engine = inference.open_decoder(1, inference.model().context);
  const bool speaks = session.rank() == 0;
  const std::string ends = "Ctrl-C ends a text, Ctrl-D the program.";
  if (speaks && dialogue.with_somebody()) dialogue.remark("A line is continued. " + ends);
  while (const std::optional<std::string> line = typed_line(session, dialogue, "> ", ends)) {
    std::vector<int32_t> ids;
    try {
      ids = inference.prompt_ids(*line, "the line");  // the same on all ranks
    } catch (const Error& e) {
      if (speaks) dialogue.remark(e.what());
      continue;
    }
    if (const std::string cut = why_cut("the line", ids.size(), inference.model().context); !cut.empty() && speaks)
      dialogue.remark(cut);
    WholeCharacters characters;
    continue_texts(*engine->worker, session, inference.tokenizer(), {ids}, how,
                   {.out = [&](size_t, int64_t, std::string_view text) { dialogue.write(characters.add(text)); },
                    .interrupted = [&] { return dialogue.interrupted(); }});
    if (speaks) dialogue.write(characters.rest() + "\n");
  }
  if (speaks && dialogue.with_somebody()) dialogue.write("\n");
  return 0;
}

int generate(const GenerateOptions& o, const Session& session) {
  if (o.interactive) return continue_lines(o, session);
  const std::vector<std::string> prompts = of_rank_0(session, [&]() -> std::vector<std::string> {
    check_generation(o);
    if (!o.prompts.empty()) return read_prompts(o.prompts);
    return {o.prompt == "-" ? standard_input() : o.prompt};
  });
  Inference inference = o.model.open(session);
  std::optional<TextPrinter> printer;
  const auto printed = [&]() -> TextPrinter& {  // created when there is text to print
    if (!printer) printer.emplace(prompts, o.how.samples, !o.prompts.empty());
    return *printer;
  };
  Generation how;
  together(session, [&] {
    how = generation_of(o, inference, session);
    for (size_t i = 0; i < prompts.size(); i++) {
      const std::string name = prompts.size() == 1 ? "the prompt" : fmt::format("prompt {}", i + 1);
      if (const std::string cut =
              why_cut(name, inference.prompt_ids(prompts[i], name).size(), inference.model().context);
          !cut.empty())
        say(session, {cut});
    }
  });
  const GenerationRate rate = inference.generate(
      prompts, how, [&](size_t prompt, int64_t sample, std::string_view text) { printed().add(prompt, sample, text); },
      [&](size_t prompt, int64_t sample) { printed().end(prompt, sample); });
  if (session.rank() == 0 && rate.tokens > 0)
    fmt::print(stderr, "{} in {:.3f} s, {:.1f} a second\n", counted(rate.tokens, "token"), rate.seconds,
               static_cast<double>(rate.tokens) / rate.seconds);
  return 0;
}

struct EvaluateOptions {
  ModelArguments model;
  std::string data, choices, items;
  std::vector<std::string> texts;
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
  ProgressBar bar(ProgressBar::WithoutTerminal::lines);
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

void print_evaluation(const EvaluationResult& r, const std::string& name) {
  fmt::print("loss {:.8f} nats a token over {} tokens", r.loss, r.tokens);
  if (r.bytes > 0) fmt::print(", {:.4f} bits per byte", bits_per_byte(r.loss, r.tokens, r.bytes));
  fmt::print(", perplexity {:.4f}", std::exp(r.loss));
  if (r.windows < r.all_windows) fmt::print("; the first {} of {}", r.windows, counted(r.all_windows, "window"));
  if (r.documents_apart)
    fmt::print("; documents isolated, as in training{}", r.documents == 0 ? ", but none was found to end" : "");
  fmt::print("{}{}\n", name.empty() ? "" : ": ", name);
}

// Returns the evaluation of all texts as one: every token counts the same.
EvaluationResult all_of(const std::vector<TextEvaluation>& evaluations) {
  EvaluationResult all;
  double sum = 0;
  for (const auto& [name, r] : evaluations) {
    sum += r.loss * static_cast<double>(r.tokens);
    all.tokens += r.tokens;
    all.bytes += r.bytes;
    all.windows += r.windows;
    all.all_windows += r.all_windows;
    all.documents_apart = r.documents_apart;
    all.documents += r.documents;
  }
  all.loss = sum / static_cast<double>(all.tokens);
  return all;
}

void evaluate_texts(const EvaluateOptions& o, Inference& inference, const Session& session) {
  ProgressBar bar(ProgressBar::WithoutTerminal::lines);
  const std::vector<TextEvaluation> evaluations = inference.evaluate_texts(
      o.texts, o.sequence_length, o.sequences, [&](double share) { bar.draw(share, {{"evaluating"}}); });
  bar.clear();
  together(session, [&] {
    for (const auto& [name, r] : evaluations) check_finite(o.model, r.loss, name);
  });
  if (session.rank() != 0) return;
  const bool one = evaluations.size() == 1;
  for (const auto& [name, r] : evaluations) print_evaluation(r, one ? "" : name);
  if (!one) print_evaluation(all_of(evaluations), counted(evaluations.size(), "text"));
}

void check_evaluation(const EvaluateOptions& o) {
  const int given = !o.data.empty() + !o.choices.empty() + !o.texts.empty();
  CHECK(given == 1, "{}; give --text FILE, --data FILE of tokens, or --choices FILE of questions",
        given == 0 ? "nothing to evaluate on" : "two of --text, --data and --choices");
  CHECK(o.model.special_texts == SpecialTexts::ids || o.data.empty(),
        "--special-tokens applies to texts, those of --text and --choices, but --data holds tokens; give it to "
        "`megalith prepare`, which makes them from texts");
}

int evaluate(const EvaluateOptions& o, const Session& session) {
  together(session, [&] {
    check_evaluation(o);
    CHECK(o.items.empty() || !o.choices.empty(), "--items needs the questions of --choices; give that as well");
    if (session.rank() == 0) check_output("--items", o.items);
  });
  Inference inference = o.model.open(session);
  if (!o.choices.empty()) {
    answer_questions(o, inference, session);
    return 0;
  }
  if (!o.texts.empty()) {
    evaluate_texts(o, inference, session);
    return 0;
  }
  ProgressBar bar(ProgressBar::WithoutTerminal::lines);
  const EvaluationResult r = inference.evaluate(o.data, o.sequence_length, o.sequences,
                                                [&](double share) { bar.draw(share, {{"evaluating"}}); });
  bar.clear();
  together(session, [&] { check_finite(o.model, r.loss, o.data); });
  if (session.rank() == 0) print_evaluation(r, "");
  return 0;
}

}  // namespace

Command generate_command(CLI::App& cli) {
  auto* app = cli.add_subcommand("generate", "Continue texts; on one rank or under mpirun");
  auto o = std::make_shared<GenerateOptions>();
  add_model(app, o->model);
  add_model_options(app, o->model);
  Generation& how = o->how;
  app->add_option("--prompt", o->prompt, "text to continue; -: standard input");
  app->add_option("--prompts", o->prompts,
                  "file of texts to continue, one a line, or with {\"prompt\": TEXT} on each line of a .jsonl file; -: "
                  "standard input. Prints {\"prompt\", \"sample\", \"text\"} for each, in their order");
  app->add_flag("--interactive", o->interactive,
                "continue each line of standard input, as it is typed: Ctrl-C ends a text, Ctrl-D the program");
  add_number(app, "--tokens", how.tokens, "maximum number of tokens to add");
  add_number(app, "--samples", how.samples, "continuations of each text, sampled separately", 1);
  add_number(app, "--batch", how.batch, "texts continued at once, each with memory for its keys and values", 1);
  app->add_option("--stop", how.stops, "end before this text; may be given several times")->allow_extra_args(false);
  add_sampling(app, o->sampling);
  return {app,
          {},
          [o](const Session& session) { return generate(*o, session); },
          [o] { return o->model.communication(o->interactive); }};
}

Command evaluate_command(CLI::App& cli) {
  auto* app = cli.add_subcommand("evaluate",
                                 "Loss, bits per byte and perplexity of a checkpoint on texts or a token file, or its "
                                 "scores on questions; on one rank or under mpirun");
  auto o = std::make_shared<EvaluateOptions>();
  add_model(app, o->model);
  add_model_options(app, o->model);
  const auto take = [o](const std::vector<std::string>& words) {
    for (const std::string& word : words) (is_override(word) ? o->model.overrides : o->texts).push_back(word);
  };
  app->add_option_function<std::vector<std::string>>(
      "--text", take,
      "texts, each evaluated separately, and all together: files, folders, patterns or -, read as by `megalith "
      "prepare`, with the tokenizer of the checkpoint. A text is cut into windows, and each token is predicted from "
      "the earlier ones in its window: the first of a window from one, the first of a text not at all");
  app->add_option("--data", o->data, "token file");
  app->add_option("--choices", o->choices,
                  "file of questions, JSON lines in HellaSwag's form, {\"ctx\", \"endings\", \"label\"}, or LAMBADA's, "
                  "{\"text\"}, whose last word is the answer; scored as by lm-evaluation-harness");
  app->add_option("--items", o->items, "with --choices: file for the result of each question, JSON lines");
  add_number(app, "--sequence-length", o->sequence_length,
             "tokens per window of --text or --data; 0: the model's context");
  add_number(app, "--sequences", o->sequences,
             "evaluate only this many first windows of --data, or of each text; 0: all");
  return {
      app, {}, [o](const Session& session) { return evaluate(*o, session); }, [o] { return o->model.communication(); }};
}

}  // namespace megalith
