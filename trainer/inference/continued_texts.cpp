#include "trainer/inference/continued_texts.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <span>

#include "trainer/job/agreement.h"

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
  Decoder& decoder;
  const Session& session;
  const Tokenizer& tokenizer;
  const std::vector<std::vector<int32_t>>& prompts;
  const Generation& how;
  const TextSink& sink;
  std::vector<std::optional<ContinuedText>> slots;
  SpecialIds specials{tokenizer};
  std::vector<float> logits{};
  int64_t started = 0, added = 0;
  bool interrupted = false;

  int64_t run() {
    while (fill_slots()) advance();
    return added;
  }

  // Starts texts in free slots. Returns whether any text is left.
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
        text.begin = std::max<int64_t>(0, std::ssize(text.ids) - decoder.positions());
        slots[p] = std::move(text);
        started++;
        begin(p);
      }
      any = any || slots[p];
    }
    return any;
  }

  // Adds a token to each text. Where the positions are full, the older half of the context is dropped and the rest is
  // read again from position 0.
  void advance() {
    std::vector<size_t> passed;
    std::vector<Decoder::Next> next;
    for (size_t p = 0; p < slots.size(); p++) {
      if (!slots[p]) continue;
      ContinuedText& text = *slots[p];
      if (text.position() >= decoder.positions()) {
        text.begin = std::ssize(text.ids) - std::max<int64_t>(1, decoder.positions() / 2);
        begin(p);
      } else {
        next.push_back({static_cast<int64_t>(p), text.position(), text.ids.back()});
        passed.push_back(p);
      }
    }
    if (next.empty()) return;
    decoder.advance(next);
    add_tokens(passed);
  }

  void begin(size_t slot) {
    const ContinuedText& text = *slots[slot];
    decoder.begin(static_cast<int64_t>(slot), std::span(text.ids).subspan(static_cast<size_t>(text.begin)));
    add_tokens({slot});
  }

  // Adds the next token to the texts of these slots, the same on all ranks, or ends them.
  void add_tokens(const std::vector<size_t>& passed) {
    decoder.read_logits(logits);
    std::vector<int32_t> tokens(passed.size());
    const int chooser = decoder.first_with_logits();
    const size_t columns = logits.size() / passed.size();
    if (session.rank() == chooser)
      for (size_t i = 0; i < passed.size(); i++)
        tokens[i] = choose_for(*slots[passed[i]], std::span(logits).subspan(i * columns, columns));
    if (session.size() > 1) decoder.share(tokens, chooser);
    if (!sink.not_finite && std::ranges::find(tokens, logits_not_finite) != tokens.end())
      together(session, [] { FAIL("the logits of the next token are not finite: {}", why_not_finite); });
    look_for_interrupt();
    for (size_t i = 0; i < passed.size(); i++) {
      std::optional<ContinuedText>& text = slots[passed[i]];
      if (!interrupted && continues(*text, tokens[i])) continue;
      finish(*text);
      text.reset();
    }
    if (interrupted) started = static_cast<int64_t>(prompts.size()) * how.samples;
  }

  void look_for_interrupt() {
    if (!sink.interrupted) return;
    std::vector<int32_t> said{session.rank() == 0 && sink.interrupted()};
    if (session.size() > 1) decoder.share(said, 0);
    interrupted = interrupted || said[0] != 0;
  }

  int32_t choose_for(const ContinuedText& text, std::span<const float> row) const {
    const uint64_t draws = how.draws.empty() ? 0 : how.draws[text.prompt];
    return next_token(row, tokenizer, how.sampling, how.ends, text.ids, draws + static_cast<uint64_t>(text.sample),
                      text.added);
  }

  // Adds a chosen token. Returns whether more may follow.
  bool continues(ContinuedText& text, int32_t token) {
    if (token == logits_not_finite && session.rank() == 0) sink.not_finite(text.prompt, text.sample);
    if (token < 0) return false;
    const std::string more =
        text.shown.add(how.shows_specials ? tokenizer.token_bytes(token) : specials.bytes_of(token));
    if (!more.empty() && session.rank() == 0) sink.out(text.prompt, text.sample, more);
    if (text.shown.stopped()) return false;
    text.ids.push_back(token);
    added++;
    return ++text.added < how.tokens;
  }

  void finish(ContinuedText& text) const {
    if (session.rank() != 0) return;
    if (const std::string rest = text.shown.rest(); !rest.empty()) sink.out(text.prompt, text.sample, rest);
    if (sink.end) sink.end(text.prompt, text.sample);
  }
};

}  // namespace

int64_t continue_texts(Decoder& decoder, const Session& session, const Tokenizer& tokenizer,
                       const std::vector<std::vector<int32_t>>& prompts, const Generation& how, const TextSink& sink) {
  const int64_t texts = static_cast<int64_t>(prompts.size()) * how.samples;
  const int64_t slots = std::min({how.batch, decoder.places(), texts});
  return Texts{decoder,
               session,
               tokenizer,
               prompts,
               how,
               sink,
               std::vector<std::optional<ContinuedText>>(static_cast<size_t>(slots))}
      .run();
}

int32_t next_token(std::span<const float> logits, const Tokenizer& tokenizer, const Sampling& sampling,
                   const TextEnds& ends, std::span<const int32_t> text, uint64_t sample, int64_t number) {
  const auto known = logits.first(static_cast<size_t>(tokenizer.vocab_size()));
  if (!std::ranges::all_of(known, [](float logit) { return std::isfinite(logit); })) return logits_not_finite;
  const std::vector<int32_t> usual{tokenizer.end_of_text()};
  const std::vector<int32_t>& over = ends.tokens.empty() ? usual : ends.tokens;
  std::vector<float> mine(known.begin(), known.end());
  penalize(mine, text, sampling.repetition_penalty);
  if (number < ends.least)
    for (const int32_t end : over)
      if (end < tokenizer.vocab_size()) mine[static_cast<size_t>(end)] = -std::numeric_limits<float>::infinity();
  const auto token = static_cast<int32_t>(choose(mine, sampling, sample, static_cast<uint64_t>(number)));
  return std::ranges::find(over, token) != over.end() ? text_is_over : token;
}

SpecialIds::SpecialIds(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {
  for (const SpecialToken& special : tokenizer.special_tokens()) ids_.push_back(special.id);
  std::ranges::sort(ids_);
}

std::string_view SpecialIds::bytes_of(int32_t token) const {
  return std::ranges::binary_search(ids_, token) ? std::string_view() : tokenizer_.token_bytes(token);
}

}  // namespace megalith
