// Inference::generate: texts take places of a Decoder, which goes on with all of them at once; when one has ended, the
// next takes its place.
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

// One text that is being continued: tokens from `begin` on stand in the cache, or will.
struct ContinuedText {
  size_t prompt = 0;
  int64_t sample = 0, begin = 0, added = 0;
  std::vector<int32_t> ids;
  StoppingText shown;
  int64_t position() const { return static_cast<int64_t>(ids.size()) - 1 - begin; }  // of the newest token
};

// All texts of a call. Every rank has the same of them, in the same places.
class Texts {
 public:
  using Out = std::function<void(size_t, int64_t, std::string_view)>;
  using End = std::function<void(size_t, int64_t)>;

  Texts(Decoder& decoder, const Session& session, const ModelConfig& model, const Tokenizer& tokenizer,
        const std::vector<std::vector<int32_t>>& prompts, const Generation& how, int64_t num_places, Out out, End end)
      : decoder_(decoder),
        session_(session),
        model_(model),
        tokenizer_(tokenizer),
        prompts_(prompts),
        how_(how),
        out_(std::move(out)),
        end_(std::move(end)),
        places_(static_cast<size_t>(num_places)) {}

  // Returns how many tokens were added.
  int64_t run() {
    while (fill_places()) go_on();
    return added_;
  }

 private:
  // Starts texts wherever there is a place. False: none is left.
  bool fill_places() {
    const int64_t num_texts = static_cast<int64_t>(prompts_.size()) * how_.samples;
    bool any = false;
    for (size_t p = 0; p < places_.size(); p++) {
      while (!places_[p] && started_ < num_texts) {
        const auto prompt = static_cast<size_t>(started_ / how_.samples);
        ContinuedText text{.prompt = prompt,
                           .sample = started_ % how_.samples,
                           .ids = prompts_[prompt],
                           .shown = StoppingText(how_.stops)};
        text.begin = std::max<int64_t>(0, static_cast<int64_t>(text.ids.size()) - model_.context);
        places_[p] = std::move(text);
        started_++;
        begin(p);
      }
      any = any || places_[p];
    }
    return any;
  }

  // One more token of each text. Where the context is full, its last half is read again from position 0.
  void go_on() {
    std::vector<size_t> passed;
    std::vector<Decoder::Next> next;
    for (size_t p = 0; p < places_.size(); p++) {
      if (!places_[p]) continue;
      ContinuedText& text = *places_[p];
      if (text.position() >= model_.context) {
        text.begin = static_cast<int64_t>(text.ids.size()) - std::max<int64_t>(1, model_.context / 2);
        begin(p);
      } else {
        next.push_back({static_cast<int64_t>(p), text.position(), text.ids.back()});
        passed.push_back(p);
      }
    }
    if (next.empty()) return;
    decoder_.go_on(next);
    add_tokens(passed);
  }

  void begin(size_t place) {
    const ContinuedText& text = *places_[place];
    decoder_.begin(static_cast<int64_t>(place), std::span(text.ids).subspan(static_cast<size_t>(text.begin)));
    add_tokens({place});
  }

  // After a pass over these places: each gets its next token, the same on all ranks, or has ended. Rank 0 alone
  // chooses, since two machines may round differently.
  void add_tokens(const std::vector<size_t>& passed) {
    decoder_.read_logits(logits_);
    std::vector<int32_t> tokens(passed.size());
    if (session_.rank() == 0)
      for (size_t i = 0; i < passed.size(); i++) tokens[i] = next_token(*places_[passed[i]], i);
    if (session_.size() > 1) decoder_.share(tokens);
    if (std::ranges::find(tokens, not_finite) != tokens.end())
      together(session_, [] { FAIL("the logits of the next token are not finite: {}", why_not_finite); });
    for (size_t i = 0; i < passed.size(); i++) {
      std::optional<ContinuedText>& text = places_[passed[i]];
      if (tokens[i] != over) {
        text->ids.push_back(tokens[i]);
        added_++;
        if (++text->added < how_.tokens) continue;
      }
      if (session_.rank() == 0) finish(*text);
      text.reset();
    }
  }

  // By its row of the logits; or `over`, or `not_finite`.
  int32_t next_token(ContinuedText& text, size_t row) const {
    const std::span<const float> known(logits_.data() + row * static_cast<size_t>(model_.vocab),
                                       static_cast<size_t>(tokenizer_.vocab_size()));
    if (!std::ranges::all_of(known, [](float logit) { return std::isfinite(logit); })) return not_finite;
    const auto token = static_cast<int32_t>(
        choose(known, how_.sampling, static_cast<uint64_t>(text.sample), static_cast<uint64_t>(text.added)));
    if (token == tokenizer_.end_of_text()) return over;
    const std::string more = text.shown.add(tokenizer_.token_bytes(token));
    if (!more.empty()) out_(text.prompt, text.sample, more);
    return text.shown.stopped() ? over : token;
  }

  void finish(ContinuedText& text) const {
    if (const std::string rest = text.shown.rest(); !rest.empty()) out_(text.prompt, text.sample, rest);
    if (end_) end_(text.prompt, text.sample);
  }

  static constexpr int32_t over = -1, not_finite = -2;

  Decoder& decoder_;
  const Session& session_;
  const ModelConfig& model_;
  const Tokenizer& tokenizer_;
  const std::vector<std::vector<int32_t>>& prompts_;
  const Generation& how_;
  Out out_;
  End end_;
  std::vector<std::optional<ContinuedText>> places_;
  std::vector<float> logits_;
  int64_t started_ = 0, added_ = 0;
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
      std::vector<int32_t>& ids = starts.emplace_back();
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

  const int64_t num_places = std::clamp<int64_t>(how.batch, 1, num_texts);
  const int64_t positions = std::min(context, longest + std::min(context, how.tokens));
  const auto build = [&](const Plan& plan, Runtime& runtime) {
    return std::make_unique<Decoder>(plan, runtime, num_places, positions);
  };
  const auto rehearse = [&](Decoder& decoder, const Plan&) {
    std::vector<float> logits;
    decoder.begin(0, std::vector<int32_t>(static_cast<size_t>(positions)));
    decoder.read_logits(logits);
    std::vector<Decoder::Next> next;
    for (int64_t place = 0; place < num_places; place++) next.push_back({place, positions - 1, 0});
    decoder.go_on(next);
    decoder.read_logits(logits);
  };
  Engine<Decoder> engine(config, session_, device_.world, device_.ranks, *weights_.tensors, build, rehearse);

  const auto start = std::chrono::steady_clock::now();
  Texts texts(*engine.worker, session_, weights_.model, *tokenizer_, starts, how, num_places, out, end);
  const int64_t added = texts.run();
  return {.tokens = added, .seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count()};
}

}  // namespace megalith
