// Implements Inference::evaluate and Inference::answer with forward passes of a Stage, in any layout.
#include <algorithm>
#include <optional>

#include "kernels/elementwise/elementwise.h"
#include "kernels/system/counted.h"
#include "trainer/checkpointing/run_fingerprint.h"
#include "trainer/inference/engine.h"
#include "trainer/inference/inference.h"
#include "trainer/inference/text_tokens.h"
#include "trainer/step/text_data.h"

namespace megalith {

namespace {

// Feeds sequences of T tokens or fewer, and their targets.
Feed feed_of(const std::vector<AnswerTokens>& sequences, int64_t T) {
  return [&sequences, T](Interval part, Tensor tokens, Tensor targets) {
    std::fill_n(tokens.data<int32_t>(), tokens.numel(), 0);
    std::fill_n(targets.data<int32_t>(), targets.numel(), -1);
    for (int64_t i = part.begin; i < part.end; i++) {
      const AnswerTokens& s = sequences[static_cast<size_t>(i)];
      int32_t *in = tokens.data<int32_t>() + (i - part.begin) * T,
              *out = targets.data<int32_t>() + (i - part.begin) * T;
      std::copy(s.ids.begin(), s.ids.end() - 1, in);
      std::copy(s.ids.end() - s.answer, s.ids.end(), out + static_cast<int64_t>(s.ids.size()) - 1 - s.answer);
    }
  };
}

// Collects, for each sequence, the evaluation of its rows with targets.
struct Tally {
  Tally(const std::vector<AnswerTokens>& of, int64_t length)
      : sequences(of), T(length), log_likelihood(of.size()), greedy(of.size(), 1), here(of.size(), 0) {}

  void add(const std::string& name, int64_t first_row, const std::vector<float>& rows) {
    if (name == "largest logit") {
      largest = rows;
      return;
    }
    const bool losses = name == "loss";
    for (int64_t row = 0; row < static_cast<int64_t>(rows.size()); row++) {
      const auto s = static_cast<size_t>((first_row + row) / T);
      const int64_t at = (first_row + row) % T, end = static_cast<int64_t>(sequences[s].ids.size()) - 1;
      if (at < end - sequences[s].answer || at >= end) continue;
      const float value = rows[static_cast<size_t>(row)];
      here[s] = 1;
      if (losses)
        log_likelihood[s] -= static_cast<double>(value);
      else if (value < largest[static_cast<size_t>(row)])
        greedy[s] = 0;
    }
  }

  const std::vector<AnswerTokens>& sequences;
  int64_t T;
  std::vector<double> log_likelihood;
  std::vector<char> greedy, here;
  std::vector<float> largest;
};

}  // namespace

EvaluationResult Inference::evaluate(const std::string& data, int64_t T, int64_t limit,
                                     const std::function<void(double)>& progress) {
  std::vector<Windows> windows;
  together(session_, [&] {
    for (const auto& [source, folder, made_by] : tokenizers_of_sources("--data", data))
      check_same_tokenizer(weights_.path, weights_, hash_of(*made_by),
                           fmt::format("the one in {}, with which --data = {} was prepared", folder, source));
    windows.push_back(
        open_windows("--data", data, config_of_windows(window_length(T), 1), session_.rank(), session_.size()));
  });
  return evaluate(windows, limit, progress).front();
}

std::vector<TextEvaluation> Inference::evaluate_texts(const std::vector<std::string>& names, int64_t T, int64_t limit,
                                                      const std::function<void(double)>& progress) {
  std::vector<Windows> windows;
  int64_t length = 0;
  together(session_, [&] {
    tokenizer();
    length = window_length(T);
  });
  std::vector<TokenStream> texts = tokens_of_texts(names, tokenizer(), special_texts_, session_);
  together(session_, [&] {
    for (TokenStream& text : texts) windows.emplace_back(std::vector<TokenStream>{std::move(text)}, length);
  });
  const std::vector<EvaluationResult> results = evaluate(windows, limit, progress);
  std::vector<TextEvaluation> evaluations;
  for (size_t i = 0; i < windows.size(); i++) evaluations.push_back({windows[i].streams().front().path(), results[i]});
  return evaluations;
}

int64_t Inference::window_length(int64_t T) const {
  const int64_t length = T > 0 ? T : weights_.model.context;
  CHECK(length <= weights_.model.context, "sequences of {} tokens, but the model's context is {}", length,
        weights_.model.context);
  return length;
}

Config Inference::config_of_windows(int64_t length, int64_t microbatch) const {
  Config config = config_for(length, microbatch);
  config.data.isolate_documents = weights_.end_of_documents.has_value();
  config.data.end_of_text = weights_.end_of_documents.value_or(-1);
  return config;
}

std::vector<EvaluationResult> Inference::evaluate(const std::vector<Windows>& windows, int64_t limit,
                                                  const std::function<void(double)>& progress) {
  std::vector<EvaluationResult> results;
  int64_t most = 1, all = 0, before = 0;
  for (const Windows& w : windows) {
    results.push_back({.windows = limit > 0 ? std::min(limit, w.size()) : w.size(), .all_windows = w.size()});
    most = std::max(most, results.back().windows);
    all += results.back().windows;
  }
  const int64_t length = windows.front().length();
  Config config;
  together(session_, [&] {
    config = config_of_windows(length, std::clamp<int64_t>(4096 / length, 1, most));
    if (std::ranges::any_of(windows, &Windows::is_masked)) {  // examples are kept apart by the index
      config.data.isolate_documents = true;
      config.data.end_of_text = -1;
    }
  });
  together(session_, [&] {
    for (size_t i = 0; i < windows.size(); i++)
      CHECK(windows[i].targets(results[i].windows) > 0, "{}: none of the tokens of its first {} counts; evaluate more",
            windows[i].streams().front().path(), counted(results[i].windows, "window"));
  });
  const std::unique_ptr<Engine<Stage>> engine = open_stage(config, {});
  for (size_t i = 0; i < windows.size(); i++) {
    const int64_t sequences = results[i].windows;
    const double mean = mean_loss(*engine, sequences, feed_from(windows[i], weights_.model.vocab), [&](double share) {
      progress((static_cast<double>(before) + share * static_cast<double>(sequences)) / static_cast<double>(all));
    });
    before += sequences;
    // The mean counts positions after the end of a text, which have no loss.
    EvaluationResult& r = results[i];
    r.tokens = windows[i].targets(sequences);
    r.loss = mean * (static_cast<double>(sequences * length) / static_cast<double>(r.tokens));
    r.bytes = tokenizer_ ? target_bytes(windows[i], sequences, *tokenizer_) : 0;
    r.documents_apart = config.data.isolate_documents;
    if (r.documents_apart) r.documents = count_documents(windows[i].streams(), config.data.end_of_text).begins;
  }
  return results;
}

std::vector<Answered> Inference::answer(const std::vector<Question>& questions,
                                        const std::function<void(double)>& progress) {
  const int64_t context = weights_.model.context;
  std::vector<AnswerTokens> sequences;
  int64_t T = 1;
  Config config;
  together(session_, [&] {
    for (const Question& question : questions)
      for (const std::string& answer : question.answers) {
        AnswerTokens& s = sequences.emplace_back(encode_answer(tokenizer(), question, answer, context, special_texts_));
        if (const auto size = static_cast<int64_t>(s.ids.size()); size > context + 1)
          s.ids.erase(s.ids.begin(), s.ids.begin() + (size - context - 1));
        T = std::max(T, static_cast<int64_t>(s.ids.size()) - 1);
      }
    T = std::min(context, round_up(T, layout_.parallel.tensor_parallel_degree));
    config = config_for(T, std::clamp<int64_t>(4096 / T, 1, static_cast<int64_t>(sequences.size())));
  });
  Tally mine(sequences, T);
  const std::unique_ptr<Engine<Stage>> engine =
      open_stage(config, [&](const std::string& name, int64_t first_row, const std::vector<float>& rows) {
        mine.add(name, first_row, rows);
      });
  mean_loss(*engine, static_cast<int64_t>(sequences.size()), feed_of(sequences, T), progress);

  using Part = std::vector<std::tuple<size_t, double, bool>>;
  Part part;
  for (size_t s = 0; s < sequences.size(); s++)
    if (mine.here[s]) part.emplace_back(s, mine.log_likelihood[s], mine.greedy[s] != 0);
  std::vector<std::pair<double, bool>> all(sequences.size());
  for (const Part& theirs : of_all_ranks(session_, part))
    for (const auto& [s, log_likelihood, greedy] : theirs) all[s] = {log_likelihood, greedy};
  std::vector<Answered> answered;
  size_t s = 0;
  for (const Question& question : questions) {
    Answered& a = answered.emplace_back();
    for (size_t i = 0; i < question.answers.size(); i++, s++) {
      a.log_likelihood.push_back(all[s].first);
      a.greedy.push_back(all[s].second);
    }
  }
  return answered;
}

std::unique_ptr<Engine<Stage>> Inference::open_stage(const Config& config, const Observer& observe) {
  const auto build = [&](const Plan& plan, Runtime& runtime) {
    auto stage = std::make_unique<Stage>(plan, runtime, false);
    if (!observe) return stage;
    stage->observe([observe, &runtime](const std::string& name, int64_t first_row, Tensor rows) {
      if (name != "loss" && name != "largest logit" && name != "target's logit") return;
      std::vector<float> values;
      runtime.stream.download(
          "show", rows, [&](Tensor host) { values.assign(host.data<float>(), host.data<float>() + host.numel()); });
      runtime.stream.synchronize();
      if (runtime.stream.world() != World::dry) observe(name, first_row, values);
    });
    return stage;
  };
  const auto rehearse = [](Stage& stage, const Plan& plan) {
    stage.evaluate({.feed = {}, .batch = plan.batch, .dropout = {}});
  };
  return std::make_unique<Engine<Stage>>(config, session_, device_.world, device_.ranks, *weights_.tensors, build,
                                         rehearse);
}

double Inference::mean_loss(Engine<Stage>& engine, int64_t sequences, const Feed& read,
                            const std::function<void(double)>& progress) {
  BatchPlan batch = engine.plan.batch;
  batch.batch = sequences;
  const auto fill_and_tell = [&](Interval part, Tensor tokens, Tensor targets) {
    if (part.begin > 0 && part.size() > 0 && session_.rank() == 0)
      progress(static_cast<double>(part.begin) / static_cast<double>(sequences));
    read.fill(part, tokens, targets);
  };
  Stream& s = engine.runtime->stream;
  engine.worker->evaluate({.feed = {fill_and_tell, read.begins}, .batch = batch, .dropout = {}});
  const Tensor sum = engine.worker->loss();
  if (engine.plan.tensor.rank != 0) launch(s, Fill{.y = sum, .value = 0});  // a tensor-parallel group counts once
  engine.runtime->mesh.channel(Channel::world).all_reduce(s, sum, Reduce::sum).wait();
  double loss = 0;
  s.download("read_loss", sum, [&](Tensor host) { loss = *host.data<double>(); });
  s.synchronize();
  if (session_.rank() == 0) progress(1);
  return loss;
}

}  // namespace megalith
