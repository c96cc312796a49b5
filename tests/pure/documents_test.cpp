// Documents that share sequences and are kept apart (data.isolate_documents): where they begin, and that a whole model
// is trained on them as on each alone.
#include "trainer/parallel/documents.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/pure/small_run.h"

namespace megalith {
namespace {

TEST(FindDocuments, TheirEndIsTheirLastToken) {
  std::vector<int32_t> tokens{5, 9, 1, 9, 9, 2,   // ends amid, two in a row
                              9, 1, 2, 3, 4, 9,   // at both edges
                              1, 2, 3, 4, 5, 6},  // none: it began before, or goes on
      starts(tokens.size(), -7);
  find_documents({starts.data(), DType::i32, {3, 6}}, {tokens.data(), DType::i32, {18}}, 9);
  EXPECT_EQ(starts, (std::vector<int32_t>{0, 0, 2, 2, 4, 5, 0, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0}));
  find_documents({starts.data(), DType::i32, {3, 6}}, {tokens.data(), DType::i32, {18}}, -1);
  EXPECT_EQ(starts, std::vector<int32_t>(18, 0)) << "not known";
}

constexpr int32_t end_of_text = 7;

Config packed_config() {
  Config config = small_config();
  config.model.layers = 2;
  config.data.isolate_documents = true;
  config.data.end_of_text = end_of_text;
  return config;
}

// Lengths 1 to 5 in turn, so that documents begin at every place of a sequence, and are cut by some.
int32_t packed_token(int64_t index, int64_t vocab) {
  constexpr int64_t ends[] = {0, 2, 5, 9, 14};
  for (int64_t end : ends)
    if (index % 15 == end) return end_of_text;
  const int32_t token = token_at(index, vocab);
  return token == end_of_text ? token + 1 : token;
}

Feed feed_packed(const Config& config) {
  const int64_t T = config.batch.sequence_length, V = config.model.vocab;
  return [=](Interval sequences, Tensor tokens, Tensor targets) {
    for (int64_t i = 0; i < tokens.numel(); i++) {
      const bool here = i < sequences.size() * T;
      tokens.data<int32_t>()[i] = here ? packed_token(sequences.begin * T + i, V) : 0;
      targets.data<int32_t>()[i] = here ? packed_token(sequences.begin * T + i + 1, V) : -1;
    }
  };
}

// Where each document of the batch lies, or the part of one that a sequence has.
std::vector<Interval> documents_of(const Config& config) {
  const int64_t T = config.batch.sequence_length, all = T * config.batch.global_batch_size;
  std::vector<Interval> documents;
  for (int64_t i = 0; i < all; i++)
    if (i % T == 0 || packed_token(i - 1, config.model.vocab) == end_of_text)
      documents.push_back({i, i + 1});
    else
      documents.back().end++;
  return documents;
}

// Each in a sequence of its own, with the targets that it has among the others; what follows it has none.
Feed feed_alone(const Config& config) {
  const int64_t T = config.batch.sequence_length, V = config.model.vocab;
  return [=, documents = documents_of(packed_config())](Interval sequences, Tensor tokens, Tensor targets) {
    for (int64_t i = 0; i < tokens.numel(); i++) {
      const int64_t sequence = sequences.begin + i / T, t = i % T;
      const bool here = i / T < sequences.size() && t < documents[static_cast<size_t>(sequence)].size();
      const int64_t at = here ? documents[static_cast<size_t>(sequence)].begin + t : 0;
      tokens.data<int32_t>()[i] = here ? packed_token(at, V) : 3;
      targets.data<int32_t>()[i] = here ? packed_token(at + 1, V) : -1;
    }
  };
}

struct Trained {
  double loss = 0, evaluated = 0;
  std::map<std::string, std::vector<float>> gradients;
};

Trained one_step(const Config& config, const Feed& feed) {
  SmallRun run(config);
  Trained result;
  result.evaluated = run.trainer.evaluate(config.batch.global_batch_size, feed);
  StepScalars scalars;
  run.runtime.stream.receive(run.trainer.step(0, 0, feed, {}, &scalars));
  result.loss = scalars.loss;
  for (const Unit& unit : run.units())
    for (const PlacedParam& param : unit.plan().params)
      result.gradients[param.spec.name] = values_of(unit.gradient().flat(param.range().begin, param.range().end));
  EXPECT_EQ(run.runtime.memory.peaks(), run.rehearsal.memory);
  return result;
}

double norm_of(const std::vector<float>& v) {
  double sum = 0;
  for (float x : v) sum += static_cast<double>(x) * static_cast<double>(x);
  return std::sqrt(sum);
}

// The largest difference of a gradient, relative to its norm; `a` times a factor, for the mean of a loss is over all
// targets that a batch has room for.
double difference(const Trained& a, const Trained& b, double factor) {
  double worst = 0;
  for (const auto& [name, gradient] : a.gradients) {
    std::vector<float> rest = b.gradients.at(name);
    for (size_t i = 0; i < rest.size(); i++) rest[i] -= static_cast<float>(factor) * gradient[i];
    worst = std::max(worst, norm_of(rest) / (norm_of(b.gradients.at(name)) + 1e-3));
  }
  return worst;
}

TEST(IsolatedDocuments, TrainAsEachAlone) {
  const Config packed = packed_config();
  Config alone = packed;
  alone.data.isolate_documents = false;
  alone.batch.global_batch_size = static_cast<int64_t>(documents_of(packed).size());
  ASSERT_GT(alone.batch.global_batch_size, 2 * packed.batch.global_batch_size);
  alone.batch.microbatch_size = 1;
  const double factor =
      static_cast<double>(alone.batch.global_batch_size) / static_cast<double>(packed.batch.global_batch_size);
  const Trained a = one_step(alone, feed_alone(alone)), b = one_step(packed, feed_packed(packed));
  EXPECT_NEAR(b.loss, a.loss * factor, 1e-6 * b.loss);
  EXPECT_NEAR(b.evaluated, a.evaluated * factor, 1e-6 * b.evaluated);
  EXPECT_LT(difference(a, b, factor), 1e-5);

  Config together = packed;
  together.data.isolate_documents = false;
  const Trained c = one_step(together, feed_packed(together));
  EXPECT_GT(std::abs(c.loss - b.loss), 1e-6 * b.loss) << "what they see of each other makes a difference";
  EXPECT_GT(difference(c, b, 1), 0.01);
}

TEST(IsolatedDocuments, AreTheSameBitsWhateverIsRecomputed) {
  Config config = packed_config();
  config.model.dropout = 0.2;
  const Trained kept = one_step(config, feed_packed(config));
  using Kind = ActivationCheckpointing::Kind;
  for (const ActivationCheckpointing& kind :
       {ActivationCheckpointing{Kind::each}, {Kind::selective}, {Kind::group, 2}}) {
    config.memory.activation_checkpointing = kind;
    const Trained again = one_step(config, feed_packed(config));
    EXPECT_EQ(again.loss, kept.loss);
    EXPECT_EQ(again.gradients, kept.gradients);
  }
}

// A format may know where documents end that no token ends.
TEST(IsolatedDocuments, ByPlacesAreTheSameBitsAsByTokens) {
  Config config = packed_config();
  const Trained by_token = one_step(config, feed_packed(config));
  const int64_t T = config.batch.sequence_length;
  config.data.end_of_text = config.model.vocab - 1;
  for (int64_t i = 0; i <= T * config.batch.global_batch_size; i++)
    ASSERT_NE(packed_token(i, config.model.vocab), config.data.end_of_text) << "no token ends a document now";
  const auto begins = [T, documents = documents_of(config)](int64_t sequence) {
    std::vector<int64_t> places;
    for (const Interval& d : documents)
      if (d.begin / T == sequence && d.begin % T > 0) places.push_back(d.begin % T);
    return places;
  };
  const Trained by_place = one_step(config, {feed_packed(config).fill, begins});
  EXPECT_EQ(by_place.loss, by_token.loss);
  EXPECT_EQ(by_place.evaluated, by_token.evaluated);
  EXPECT_EQ(by_place.gradients, by_token.gradients);
}

// A text without ends is one that nobody asked to keep apart.
TEST(IsolatedDocuments, WithoutAnEndAreTheSameBits) {
  Config config = packed_config();
  config.model.dropout = 0.2;
  config.data.end_of_text = config.model.vocab - 1;  // which no document has
  const Feed feed = [read = feed_packed(config), end = static_cast<int32_t>(config.data.end_of_text)](
                        Interval sequences, Tensor tokens, Tensor targets) {
    read.fill(sequences, tokens, targets);
    for (int64_t i = 0; i < tokens.numel(); i++)
      if (tokens.data<int32_t>()[i] == end) tokens.data<int32_t>()[i] = 1;
  };
  const Trained apart = one_step(config, feed);
  config.data.isolate_documents = false;
  const Trained shared = one_step(config, feed);
  EXPECT_EQ(apart.loss, shared.loss);
  EXPECT_EQ(apart.evaluated, shared.evaluated);
  EXPECT_EQ(apart.gradients, shared.gradients);
}

}  // namespace
}  // namespace megalith
