// Inference::generate: texts take the cache slots of a Decoder, which continues all of them at once.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>

#include "data/special_text.h"
#include "trainer/inference/engine.h"
#include "trainer/inference/inference.h"
#include "trainer/parallel/decoder.h"

namespace megalith {

namespace {

// A text that is being continued; the cache holds its tokens from `begin` on.
struct ContinuedText {
  size_t prompt = 0;
  int64_t sample = 0, begin = 0, added = 0;
  std::vector<int32_t> ids;
  StoppingText shown;
  int64_t position() const { return std::ssize(ids) - 1 - begin; }  // the newest token's
};

// Continues all texts of a call, in the same slots on every rank.
struct Texts {
  static constexpr int32_t over = -1, not_finite = -2;  // instead of a token
  Decoder& decoder;
  const Session& session;
  const ModelConfig& model;
  const Tokenizer& tokenizer;
  const std::vector<std::vector<int32_t>>& prompts;
  const Generation& how;
  const std::function<void(size_t, int64_t, std::string_view)>& out;
  const std::function<void(size_t, int64_t)>& end;
  std::vector<std::optional<ContinuedText>> slots;
  std::vector<float> logits{};
  int64_t started = 0, added = 0;

  // Returns how many tokens were added.
  int64_t run() {
    while (fill_slots()) go_on();
    return added;
  }

  // Starts texts in free slots. Returns whether a text is left.
  bool fill_slots() {
    const int64_t num_texts = static_cast<int64_t>(prompts.size()) * how.samples;
    bool any = false;
    for (size_t p = 0; p < slots.size(); p++) {
      while (!slots[p] && started < num_texts) {
        const auto prompt = static_cast<size_t>(started / how.samples);
        ContinuedText text{.prompt = prompt,
                           .sample = started % how.samples,
                           .ids = prompts[prompt],
                           .shown = StoppingText(how.stops)};
        text.begin = std::max<int64_t>(0, static_cast<int64_t>(text.ids.size()) - model.context);
        slots[p] = std::move(text);
        started++;
        begin(p);
      }
      any = any || slots[p];
    }
    return any;
  }

  // Adds a token to each text. Where the context is full, reads its last half again from position 0.
  void go_on() {
    std::vector<size_t> passed;
    std::vector<Decoder::Next> next;
    for (size_t p = 0; p < slots.size(); p++) {
      if (!slots[p]) continue;
      ContinuedText& text = *slots[p];
      if (text.position() >= model.context) {
        text.begin = static_cast<int64_t>(text.ids.size()) - std::max<int64_t>(1, model.context / 2);
        begin(p);
      } else {
        next.push_back({static_cast<int64_t>(p), text.position(), text.ids.back()});
        passed.push_back(p);
      }
    }
    if (next.empty()) return;
    decoder.go_on(next);
    add_tokens(passed);
  }

  void begin(size_t slot) {
    const ContinuedText& text = *slots[slot];
    decoder.begin(static_cast<int64_t>(slot), std::span(text.ids).subspan(static_cast<size_t>(text.begin)));
    add_tokens({slot});
  }

  // Adds the next token to the texts of these slots, the same on all ranks, or ends them. Rank 0 alone chooses, since
  // two machines may round differently.
  void add_tokens(const std::vector<size_t>& passed) {
    decoder.read_logits(logits);
    std::vector<int32_t> tokens(passed.size());
    if (session.rank() == 0)
      for (size_t i = 0; i < passed.size(); i++) tokens[i] = next_token(*slots[passed[i]], i);
    if (session.size() > 1) decoder.share(tokens);
    if (std::ranges::find(tokens, not_finite) != tokens.end())
      together(session, [] { FAIL("the logits of the next token are not finite: {}", why_not_finite); });
    for (size_t i = 0; i < passed.size(); i++) {
      std::optional<ContinuedText>& text = slots[passed[i]];
      if (tokens[i] != over) {
        text->ids.push_back(tokens[i]);
        added++;
        if (++text->added < how.tokens) continue;
      }
      if (session.rank() == 0) finish(*text);
      text.reset();
    }
  }

  // Returns the token by a row of the logits, or `over` or `not_finite`.
  int32_t next_token(ContinuedText& text, size_t row) const {
    const std::span<const float> known(logits.data() + row * static_cast<size_t>(model.vocab),
                                       static_cast<size_t>(tokenizer.vocab_size()));
    if (!std::ranges::all_of(known, [](float logit) { return std::isfinite(logit); })) return not_finite;
    const auto token = static_cast<int32_t>(
        choose(known, how.sampling, static_cast<uint64_t>(text.sample), static_cast<uint64_t>(text.added)));
    if (token == tokenizer.end_of_text()) return over;
    const std::string more = text.shown.add(tokenizer.token_bytes(token));
    if (!more.empty()) out(text.prompt, text.sample, more);
    return text.shown.stopped() ? over : token;
  }

  void finish(ContinuedText& text) const {
    if (const std::string rest = text.shown.rest(); !rest.empty()) out(text.prompt, text.sample, rest);
    if (end) end(text.prompt, text.sample);
  }
};

}  // namespace

GenerationRate Inference::generate(const std::vector<std::string>& prompts, const Generation& how,
                                   const std::function<void(size_t, int64_t, std::string_view)>& out,
                                   const std::function<void(size_t, int64_t)>& end) {
  const int64_t context = weights_.model.context;
  std::vector<std::vector<int32_t>> starts;
  int64_t longest = 1;
  Config config;
  together(session_, [&] {
    for (const std::string& prompt : prompts) {
      std::vector<int32_t>& ids = starts.emplace_back(tokenizer().beginning());
      encode_with_specials(tokenizer(), prompt, ids, special_texts_, fmt::format("prompt {}", starts.size()));
      if (ids.empty()) ids.push_back(tokenizer_->end_of_text());  // texts follow one another in training
      longest = std::max(longest, static_cast<int64_t>(ids.size()));
    }
    config = config_for(context, 1);
    CHECK(config.parallel.pipeline_parallel_degree == 1 && !config.parallel.sequence_parallel,
          "text is generated token by token, with nothing to divide over the stages of a pipeline or by sequence "
          "parallelism; use parallel.tensor_parallel_degree, and sharding for the rest of the ranks");
  });
  const int64_t num_texts = static_cast<int64_t>(prompts.size()) * how.samples;
  if (how.tokens == 0 || num_texts == 0) {
    for (int64_t i = 0; i < num_texts && session_.rank() == 0 && end; i++)
      end(static_cast<size_t>(i / how.samples), i % how.samples);
    return {};
  }

  const int64_t num_slots = std::clamp<int64_t>(how.batch, 1, num_texts);
  const int64_t positions = std::min(context, longest + std::min(context, how.tokens));
  const auto build = [&](const Plan& plan, Runtime& runtime) {
    return std::make_unique<Decoder>(plan, runtime, num_slots, positions);
  };
  const auto rehearse = [&](Decoder& decoder, const Plan&) {
    std::vector<float> logits;
    decoder.begin(0, std::vector<int32_t>(static_cast<size_t>(positions)));
    decoder.read_logits(logits);
    std::vector<Decoder::Next> next;
    for (int64_t slot = 0; slot < num_slots; slot++) next.push_back({slot, positions - 1, 0});
    decoder.go_on(next);
    decoder.read_logits(logits);
  };
  Engine<Decoder> engine(config, session_, device_.world, device_.ranks, *weights_.tensors, build, rehearse);

  const auto start = std::chrono::steady_clock::now();
  Texts texts{*engine.worker,
              session_,
              weights_.model,
              *tokenizer_,
              starts,
              how,
              out,
              end,
              std::vector<std::optional<ContinuedText>>(static_cast<size_t>(num_slots))};
  const int64_t added = texts.run();
  return {.tokens = added, .seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count()};
}

}  // namespace megalith
