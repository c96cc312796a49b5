// Generation and evaluation against the plain twin: the same next tokens, the same loss. The model is written as a
// Hugging Face folder with the byte tokenizer beside it, as a user would bring one.
#include "tests/pure/inference_model.h"

namespace megalith {
namespace {

// The prompt, then three times the context, which is begun again from its last half.
TEST_F(InferenceTest, WithoutTemperatureTheLikeliestTokenFollows) {
  Inference inference = open(exported(plain_), bytes());
  std::string expected = "a text";
  for (int i = 0; i < 36; i++) expected += static_cast<char>(ranking(next_logits(expected, expected.size(), 6))[0]);
  EXPECT_EQ(text_of(inference, "a text", 36, {.temperature = 0, .top_k = 0, .seed = 1}), expected);
  EXPECT_EQ(text_of(inference, "a text", 36, {.temperature = 3, .top_k = 1, .seed = 9}), expected)
      << "one to choose from";
  EXPECT_EQ(text_of(inference, "a text", 36, {.temperature = 1e-6, .top_k = 0, .seed = 9}), expected) << "frozen";
  EXPECT_EQ(text_of(inference, "a text", 0, {.temperature = 0, .top_k = 0, .seed = 1}), "a text");
}

TEST_F(InferenceTest, PromptsBeginAsTheTokenizerBeginsThem) {
  const std::string framed = folder_ + "/framed";
  std::filesystem::create_directory(framed);
  write_framed_bytes(framed);
  const std::string model = exported(plain_);
  Inference with = open(model, framed), without = open(model, bytes());
  const Sampling likeliest{.temperature = 0, .top_k = 0, .seed = 1};
  const std::string text = text_of(with, "ab", 5, likeliest);
  EXPECT_NE(text, text_of(without, "ab", 5, likeliest)) << "the beginning decides what follows";
  // Without a prompt the end of a text begins texts.
  EXPECT_EQ(text_of(with, "", 5, likeliest), text_of(without, "", 5, likeliest));
}

TEST_F(InferenceTest, APromptBeyondTheContextCountsByItsEnd) {
  Inference inference = open(exported(plain_), bytes());
  const std::string end = "the last twelve", prompt = std::string(100, 'x') + end;
  const Sampling greedy{.temperature = 0, .top_k = 0, .seed = 1};
  const std::string text = text_of(inference, prompt, 5, greedy);
  EXPECT_EQ(text.substr(100), text_of(inference, end, 5, greedy));
}

TEST_F(InferenceTest, TheSeedDecides) {
  Inference inference = open(exported(plain_), bytes());
  const auto with_seed = [&](uint64_t seed) {
    return text_of(inference, "abc", 20, {.temperature = 1, .top_k = 50, .seed = seed});
  };
  EXPECT_EQ(with_seed(1), with_seed(1));
  EXPECT_NE(with_seed(1), with_seed(2));
}

// Two to choose from, 600 times: always one of the twin's two, and the first as often as its probability says, within
// five standard deviations.
TEST_F(InferenceTest, SamplesByTheProbabilitiesOfTheTopTokens) {
  Inference inference = open(exported(plain_), bytes());
  const double temperature = 1.7;
  const std::string text = text_of(inference, "q", 600, {.temperature = temperature, .top_k = 2, .seed = 3});
  ASSERT_EQ(text.size(), 601u);
  double expected = 0, variance = 0, first = 0;
  for (size_t i = 1; i < text.size(); i++) {
    const std::vector<double> z = next_logits(text, i, 1);
    const std::vector<size_t> order = ranking(z);
    const double p = 1 / (1 + std::exp((z[order[1]] - z[order[0]]) / temperature));
    const auto token = static_cast<size_t>(static_cast<uint8_t>(text[i]));
    ASSERT_TRUE(token == order[0] || token == order[1]) << "at " << i;
    expected += p;
    variance += p * (1 - p);
    first += token == order[0];
  }
  EXPECT_NEAR(first, expected, 5 * std::sqrt(variance));
  EXPECT_GT(variance, 50) << "the choice is a real one";
}

// Texts of unequal lengths, more of them than are continued at once, some beyond the context: each is what it is alone.
TEST_F(InferenceTest, ABatchGivesEachTextAsAlone) {
  Inference inference = open(exported(plain_), bytes());
  const std::vector<std::string> prompts{"a", "some words", "", "the third one is beyond the context", "b", "xyz"};
  Generation how{.tokens = 20, .samples = 2, .batch = 3, .sampling = {.temperature = 1, .seed = 4}};
  for (const double temperature : {0.0, 1.0}) {
    how.sampling.temperature = temperature;
    const auto together = texts_of(inference, prompts, how);
    for (size_t p = 0; p < prompts.size(); p++) {
      Generation alone = how;
      alone.batch = 1;
      EXPECT_EQ(texts_of(inference, {prompts[p]}, alone)[0], together[p]);
      EXPECT_EQ(together[p][0] == together[p][1], temperature == 0) << "samples have draws of their own";
    }
  }
}

TEST_F(InferenceTest, ATextEndsBeforeAStopString) {
  Inference inference = open(exported(plain_), bytes());
  Generation how{.tokens = 30, .sampling = {.temperature = 0}};
  const std::string whole = texts_of(inference, {"a text"}, how)[0][0], added = whole.substr(6);
  const std::string stop = added.substr(7, 3);
  const size_t first = added.find(stop);
  how.stops = {"not in there", stop};
  EXPECT_EQ(texts_of(inference, {"a text"}, how)[0][0], "a text" + added.substr(0, first));
  how.stops = {added.substr(27) + "?"};  // kept back at the end, and shown after all
  EXPECT_EQ(texts_of(inference, {"a text"}, how)[0][0], whole);
}

TEST_F(InferenceTest, TheEndOfTheTextEndsIt) {
  // The final norm gives about (1, 1, ...), which the last row of the table answers to.
  std::fill(plain_.weights.at("ln_f.weight").begin(), plain_.weights.at("ln_f.weight").end(), 0.01);
  std::fill(plain_.weights.at("ln_f.bias").begin(), plain_.weights.at("ln_f.bias").end(), 1);
  std::vector<double>& table = plain_.weights.at("wte.weight");
  std::fill(table.end() - plain_.model.hidden, table.end(), 5);
  Inference inference = open(exported(plain_), bytes());
  EXPECT_EQ(text_of(inference, "abc", 20, {}), "abc");
  EXPECT_EQ(text_of(inference, "abc", std::numeric_limits<int64_t>::max(), {}), "abc") << "until then";
  EXPECT_EQ(text_of(inference, "", 20, {}), "") << "no prompt: as after the end of another text";
}

// Vocabularies are often rounded up; ids beyond the tokenizer's must not be drawn.
TEST_F(InferenceTest, NothingIsDrawnBeyondTheTokenizer) {
  ModelConfig model = model_of_bytes();
  model.vocab = 320;
  PlainModel plain = random_model(model);
  // Only ids 257 to 319 are likely, by far.
  std::vector<double>& table = plain.weights.at("wte.weight");
  std::fill(plain.weights.at("ln_f.bias").begin(), plain.weights.at("ln_f.bias").end(), 1);
  std::fill(table.begin() + 257 * model.hidden, table.end(), 3);
  Inference inference = open(exported(plain), bytes());
  EXPECT_EQ(text_of(inference, "ab", 8, {.temperature = 0, .top_k = 0, .seed = 1}).size(), 10u);
}

// Else the first token of all would follow for ever.
TEST_F(InferenceTest, LogitsThatAreNotFiniteAreRefused) {
  plain_.weights.at("ln_f.bias")[3] = std::numeric_limits<double>::quiet_NaN();
  Inference inference = open(exported(plain_), bytes());
  for (const double temperature : {0.0, 1.0}) {
    const std::string message =
        message_of([&] { text_of(inference, "a text", 3, {.temperature = temperature, .top_k = 0, .seed = 1}); });
    EXPECT_NE(message.find("logits of the next token are not finite"), std::string::npos) << message;
    EXPECT_NE(message.find("megalith checkpoint inspect"), std::string::npos) << message;
  }
}

TEST_F(InferenceTest, ATokenizerLargerThanTheModelIsRefused) {
  ModelConfig model = model_of_bytes();
  model.vocab = 200;
  const std::string folder = exported(random_model(model));
  const std::string message = message_of([&] { open(folder, bytes()); });
  EXPECT_NE(message.find("257"), std::string::npos) << message;
  EXPECT_NE(message.find("200"), std::string::npos) << message;
}

TEST_F(InferenceTest, EvaluatesEveryTargetOnce) {
  std::mt19937 random(8);
  std::vector<uint16_t> tokens(7 * 41 + 4);  // 41 windows of 7, and one of 3
  for (uint16_t& t : tokens) t = static_cast<uint16_t>(random() % 257);
  tokens[8] = end_of_bytes;
  const std::string path = folder_ + "/tokens.bin";
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(tokens.data()), static_cast<std::streamsize>(2 * tokens.size()));
  const auto twin_loss = [&](size_t samples) {
    std::vector<std::vector<int32_t>> sequences;
    for (size_t i = 0; i < samples; i++) sequences.emplace_back(tokens.begin() + 7 * i, tokens.begin() + 7 * i + 8);
    return plain_.loss(sequences, {});
  };

  Inference inference = open(exported(plain_), bytes());
  double last = 0;
  const EvaluationResult all = inference.evaluate(path, 7, 0, [&](double share) {
    EXPECT_GT(share, last);
    last = share;
  });
  EXPECT_EQ(last, 1);
  const std::vector<std::vector<int32_t>> rest{{tokens.end() - 4, tokens.end()}};
  EXPECT_NEAR(all.loss, (41 * 7 * twin_loss(41) + 3 * plain_.loss(rest, {})) / (41 * 7 + 3), 1e-5);
  EXPECT_EQ(all.tokens, 41 * 7 + 3);
  EXPECT_EQ(all.windows, 42);
  EXPECT_EQ(all.bytes, 41 * 7 + 3 - std::count(tokens.begin() + 1, tokens.end(), end_of_bytes))
      << "the end of a text is no byte";
  const EvaluationResult some = inference.evaluate(path, 7, 5, [](double) {});
  EXPECT_NEAR(some.loss, twin_loss(5), 1e-5);
  EXPECT_EQ(some.tokens, 35);
  EXPECT_EQ(some.all_windows, 42);
  EXPECT_EQ(inference.evaluate(path, 0, 0, [](double) {}).windows, 25) << "as long as the context";
  EXPECT_NE(message_of([&] { inference.evaluate(path, 13, 0, [](double) {}); }).find("context is 12"),
            std::string::npos);
}

// Answers of one to several tokens, a context that is empty and one that is cut: the twin's log-likelihoods.
TEST_F(InferenceTest, AnswersAreAsLikelyAsTheTwinSays) {
  const std::vector<Question> questions{
      {.context = "one", .answers = {" two", " t", " three times"}, .right = 1},
      {.context = "", .answers = {"alone"}, .last_word = true},
      {.context = "a context of many more tokens", .answers = {" end"}, .last_word = true}};
  Inference inference = open(exported(plain_), bytes());
  const std::vector<Answered> found = inference.answer(questions, [](double) {});
  ASSERT_EQ(found.size(), questions.size());
  for (size_t i = 0; i < questions.size(); i++)
    for (size_t a = 0; a < questions[i].answers.size(); a++) {
      std::vector<int32_t> ids;
      if (questions[i].context.empty()) ids.push_back(end_of_bytes);
      for (char c : questions[i].context + questions[i].answers[a]) ids.push_back(static_cast<uint8_t>(c));
      if (ids.size() > 13) ids.erase(ids.begin(), ids.end() - 13);
      const std::vector<int32_t> inputs(ids.begin(), ids.end() - 1);
      const std::vector<std::vector<double>> logits = plain_.logits(inputs, {});
      double expected = 0;
      bool greedy = true;
      for (size_t at = ids.size() - questions[i].answers[a].size(); at < ids.size(); at++) {
        const std::vector<double>& z = logits[at - 1];
        double sum = 0;
        for (double v : z) sum += std::exp(v);
        expected += z[static_cast<size_t>(ids[at])] - std::log(sum);
        greedy = greedy && ranking(z)[0] == static_cast<size_t>(ids[at]);
      }
      EXPECT_NEAR(found[i].log_likelihood[a], expected, 1e-4) << i << " " << a;
      EXPECT_EQ(found[i].greedy[a], greedy);
    }
  // What the model would say itself is greedy.
  const std::string said = text_of(inference, "one", 9, {.temperature = 0});
  const Question own{.context = "one", .answers = {said.substr(3)}, .last_word = true};
  EXPECT_TRUE(inference.answer({own}, [](double) {})[0].greedy[0]);
}

TEST_F(InferenceTest, RefusesWhatItCannotDo) {
  const auto refused = [&](const std::string& option) {
    return message_of([&] {
      Inference inference = open(exported(plain_), bytes(), {option});
      text_of(inference, "a", 1, {});
    });
  };
  EXPECT_NE(refused("data.train=x").find("override `data.train=x`"), std::string::npos);
  EXPECT_NE(refused("parallel.pipeline_parallel_degree=2"), "");
  EXPECT_NE(refused("parallel.tensor_parallel_degree=2"), "");
  Inference inference = open(exported(plain_), bytes());
  const Question long_one{.context = "a", .answers = {" an answer beyond the context"}};
  EXPECT_NE(message_of([&] { inference.answer({long_one}, [](double) {}); }).find("context is 12"), std::string::npos);
}

TEST_F(InferenceTest, SaysWhatIsMissing) {
  EXPECT_NE(message_of([&] { open(folder_ + "/absent"); }).find("no such folder"), std::string::npos);
  EXPECT_NE(message_of([&] { open(bytes()); }).find("has no complete one"), std::string::npos);
  const std::string in_parts = exported(plain_);
  std::filesystem::rename(in_parts + "/model.safetensors", in_parts + "/model-00001-of-00002.safetensors");
  const std::string message = message_of([&] { open(in_parts, bytes()); });
  EXPECT_NE(message.find(in_parts + " has neither model.safetensors nor model.safetensors.index.json"),
            std::string::npos)
      << message;
  Inference without_tokenizer = open(exported(plain_));
  EXPECT_NE(message_of([&] { text_of(without_tokenizer, "a", 1, {}); }).find("--tokenizer"), std::string::npos);
}

}  // namespace
}  // namespace megalith
