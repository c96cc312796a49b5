// Questions as they are read, encoded and scored.
#include "trainer/inference/questions.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "tests/framed_bytes.h"
#include "tests/message_of.h"

namespace megalith {
namespace {

class Questions : public testing::Test {
 protected:
  Questions()
      : path_((std::filesystem::temp_directory_path() / fmt::format("questions_{}.jsonl", getpid())).string()) {}
  ~Questions() override { std::filesystem::remove(path_); }
  std::vector<Question> of(const std::string& text) const {
    std::ofstream(path_) << text;
    return read_questions(path_);
  }
  std::string refused(const std::string& text) const {
    return message_of([&] { of(text); });
  }
  std::string path_;
};

TEST_F(Questions, BothFormsAreRead) {
  const std::vector<Question> all =
      of("{\"ctx\": \"A man\", \"endings\": [\"sits.\", \"caf\u00e9\"], \"label\": 1, \"ind\": 7}\r\n\n"
         "{\"context\": \"B\", \"endings\": [\"x\"], \"label\": \"0\"}\n"
         "{\"text\": \"it was the last word\"}");
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].context, "A man");
  EXPECT_EQ(all[0].answers, (std::vector<std::string>{" sits.", " caf\u00e9"}));
  EXPECT_EQ(all[0].right, 1);
  EXPECT_FALSE(all[0].last_word);
  EXPECT_EQ(all[1].right, 0);
  EXPECT_EQ(all[2].context, "it was the last");
  EXPECT_EQ(all[2].answers, (std::vector<std::string>{" word"}));
  EXPECT_TRUE(all[2].last_word);
}

TEST_F(Questions, WhatIsNoQuestionIsRefusedWithItsLine) {
  const std::string good = "{\"text\": \"a b\"}\n";
  const auto says = [&](const std::string& line, const std::string& words) {
    const std::string message = refused(good + line);
    EXPECT_NE(message.find(path_ + ":2: "), std::string::npos) << message;
    EXPECT_NE(message.find(words), std::string::npos) << message;
  };
  says("{\"text\": ", "not JSON");
  says("[1]", "expected an object");
  says("{\"question\": \"a b\"}", "expected an object");
  says("{\"text\": 3}", "is not a text");
  says("{\"text\": \"word\"}", "does not end in a word");
  says("{\"text\": \"word \"}", "does not end in a word");
  says("{\"endings\": [\"a\"], \"label\": 0}", "without \"ctx\"");
  says("{\"ctx\": \"a\", \"endings\": [], \"label\": 0}", "not a list of texts");
  says("{\"ctx\": \"a\", \"endings\": [\"b\", 3], \"label\": 0}", "ending 1 is not a text");
  says("{\"ctx\": \"a\", \"endings\": [\"b\", \"\"], \"label\": 0}", "ending 1 is empty");
  says("{\"ctx\": \"a\", \"endings\": [\"b\"]}", "no \"label\"");
  says("{\"ctx\": \"a\", \"endings\": [\"b\"], \"label\": 1}", "\"label\" is 1, expected 0 to 0");
  says("{\"ctx\": \"a\", \"endings\": [\"b\"], \"label\": \"\"}", "expected 0 to 0");
  EXPECT_NE(refused("\n \n").find("has no question"), std::string::npos);
}

TEST_F(Questions, BlanksBeforeAnAnswerAreItsOwn) {
  const auto tokenizer = make_byte_tokenizer();
  const AnswerTokens a = encode_answer(*tokenizer, {.context = "ab ", .answers = {}}, " c", 3);
  EXPECT_EQ(a.ids, (std::vector<int32_t>{'a', 'b', ' ', ' ', 'c'}));
  EXPECT_EQ(a.answer, 3);
  const AnswerTokens empty = encode_answer(*tokenizer, {}, " c", 3);
  EXPECT_EQ(empty.ids, (std::vector<int32_t>{256, ' ', 'c'}));
  EXPECT_EQ(empty.answer, 2);
}

TEST_F(Questions, TextsBeginAsTheTokenizerBeginsThem) {
  const std::string folder = path_ + ".tokenizer";
  std::filesystem::create_directory(folder);
  const auto tokenizer = write_framed_bytes(folder);
  std::filesystem::remove_all(folder);
  const AnswerTokens a = encode_answer(*tokenizer, {.context = "ab", .answers = {}}, " c", 3);
  EXPECT_EQ(a.ids, (std::vector<int32_t>{256, 'a', 'b', ' ', 'c'}));
  EXPECT_EQ(a.answer, 2);
  EXPECT_EQ(encode_answer(*tokenizer, {}, " c", 3).ids, (std::vector<int32_t>{256, ' ', 'c'})) << "once";
}

TEST_F(Questions, AnAnswerThatDoesNotFitIsRefusedWithItsLine) {
  const auto tokenizer = make_byte_tokenizer();
  const std::vector<Question> all = of("{\"text\": \"a b\"}\n\n{\"text\": \"a bcdef\"}\n");
  EXPECT_EQ(encode_answer(*tokenizer, all[1], all[1].answers[0], 6).answer, 6);
  const std::string message = message_of([&] { encode_answer(*tokenizer, all[1], all[1].answers[0], 5); });
  EXPECT_EQ(message.find(path_ + ":3: an answer of 6 tokens, but the model's context is 5"), 0u) << message;
}

TEST_F(Questions, ScoresAreThoseOfTheirDefinitions) {
  const std::vector<Question> all =
      of("{\"ctx\": \"a\", \"endings\": [\"one\", \"caf\u00e9\u00e9\u00e9\"], \"label\": 1}\n"
         "{\"ctx\": \"a\", \"endings\": [\"x\", \"y\", \"z\"], \"label\": 1}\n"
         "{\"text\": \"a b\"}\n{\"text\": \"a c\"}");
  // By character -1 and -0.9, by byte -1 and -0.6.
  std::vector<Answered> answered{
      {{-3, -5.4}, {false, false}}, {{-2, -1, -1}, {true, true, true}}, {{-1}, {true}}, {{-2}, {false}}};
  Scores s = score(all, answered);
  EXPECT_EQ(s.questions, 2);
  EXPECT_EQ(s.last_words, 2);
  EXPECT_DOUBLE_EQ(s.acc, 0.5) << "of equals the first";
  EXPECT_DOUBLE_EQ(s.acc_norm, 1);
  EXPECT_DOUBLE_EQ(s.last_word_acc, 0.5);
  EXPECT_DOUBLE_EQ(s.perplexity, std::exp(1.5));
  answered[0].log_likelihood[1] = -6.3;  // -1.05 by character
  s = score(all, answered);
  EXPECT_DOUBLE_EQ(s.acc_norm, 0.5) << "characters count, not bytes";
}

}  // namespace
}  // namespace megalith
