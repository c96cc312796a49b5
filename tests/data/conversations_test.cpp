// prepare of conversations: ids, masks and statistics are those of ../shared/sft; examples are cut or left out; what is
// no conversation is said with its line; prepares go on and depend on no thread.
#include <nlohmann/json.hpp>

#include "data/corpus/prepare.h"
#include "data/samples/token_stream.h"
#include "kernels/system/json.h"
#include "tests/data/scratch.h"

namespace megalith {
namespace {

using Json = nlohmann::json;
using Ids = std::vector<int32_t>;
using test::Scratch;

std::string inputs_of_reference() { return MEGALITH_SOURCE_DIR "/../shared/sft"; }

PrepareOptions examples_of(std::vector<std::string> texts, const std::string& out, const std::string& name,
                           const std::string& tokenizer = "bytes") {
  PrepareOptions options;
  options.corpus.texts = std::move(texts);
  options.corpus.conversations = ConversationFields();
  options.corpus.validation_fraction = 0;
  options.examples.chat_template = name;
  options.tokenizer = tokenizer;
  options.out = out;
  return options;
}

struct Examples {
  std::vector<Ids> ids;
  std::vector<std::vector<uint8_t>> counts;
};
Examples examples_in(const std::string& path) {
  const TokenStream stream = TokenStream::open(path);
  std::vector<int64_t> bounds = stream.document_begins(0, stream.size());
  bounds.insert(bounds.begin(), 0);
  bounds.push_back(stream.size());
  Examples all;
  for (size_t i = 0; i + 1 < bounds.size(); i++) {
    const auto size = static_cast<size_t>(bounds[i + 1] - bounds[i]);
    stream.read(bounds[i], all.ids.emplace_back(size));
    stream.read_mask(bounds[i], all.counts.emplace_back(size));
  }
  return all;
}

std::string conversation_line(const std::string& user, const std::string& answer) {
  return Json{{"messages", {{{"role", "user"}, {"content", user}}, {{"role", "assistant"}, {"content", answer}}}}}
             .dump() +
         "\n";
}

TEST(Conversations, AreExamplesWithTheMasksOfTransformers) {
  if (!std::filesystem::exists(inputs_of_reference()))
    GTEST_SKIP() << inputs_of_reference() << " is not there: no rendering is compared";
  for (const char* name : {"chatml", "llama3", "mistral", "zephyr", "plain"}) {
    std::vector<Ids> ids;
    std::vector<std::vector<uint8_t>> masks;
    std::ifstream rows(inputs_of_reference() + "/rendered/" + name + ".jsonl");
    for (std::string line; std::getline(rows, line);) {
      const Json row = parse_json(line);
      ids.push_back(row.at("ids"));
      masks.push_back(row.at("mask"));
    }
    for (const int threads : {1, 3}) {
      const Scratch scratch;
      PrepareOptions options = examples_of({inputs_of_reference() + "/conversations.jsonl"}, scratch.path("c"), name,
                                           inputs_of_reference() + "/tokenizer");
      options.threads = threads;
      options.window_bytes = 1000;
      const PrepareReport report = prepare(options);
      EXPECT_EQ(report.examples.examples, 30);
      EXPECT_GT(report.examples.without_counted, 0);
      PrepareOptions pairs = examples_of({inputs_of_reference() + "/pairs.jsonl"}, scratch.path("p"), name,
                                         inputs_of_reference() + "/tokenizer");
      pairs.corpus.conversations = ConversationFields{.prompt = "prompt", .completion = "completion"};
      pairs.threads = threads;
      EXPECT_EQ(prepare(pairs).examples.turns, 60);
      Examples found = examples_in(scratch.path("c/train.bin")), more = examples_in(scratch.path("p/train.bin"));
      found.ids.insert(found.ids.end(), more.ids.begin(), more.ids.end());
      found.counts.insert(found.counts.end(), more.counts.begin(), more.counts.end());
      EXPECT_EQ(found.ids, ids) << name;
      EXPECT_EQ(found.counts, masks) << name;
      EXPECT_EQ(chat_template(scratch.path("c/chat_template.json")).assistant, chat_template(name).assistant);
    }
  }
}

TEST(Conversations, LongOnesAreCutOrLeftOut) {
  const Scratch scratch;
  const std::string text =
      scratch.write("x.jsonl", conversation_line("a", "b") + conversation_line("a", std::string(100, 'b')));
  PrepareOptions options = examples_of({text}, scratch.path("cut"), "zephyr");
  options.examples.sequence_length = 60;
  const PrepareReport cut = prepare(options);
  EXPECT_EQ(cut.examples.examples, 2);
  EXPECT_EQ(cut.examples.cut, 1);
  const Examples tokens = examples_in(scratch.path("cut/train.bin"));
  EXPECT_EQ(tokens.ids[1].size(), 61u);
  EXPECT_EQ(cut.examples.tokens, std::ssize(tokens.ids[0]) + 61);
  options.out = scratch.path("left");
  options.examples.longer = ExampleOptions::Longer::leave_out;
  const PrepareReport left = prepare(options);
  EXPECT_EQ(left.examples.examples, 1);
  EXPECT_EQ(left.examples.left_out, 1);
  EXPECT_EQ(examples_in(scratch.path("left/train.bin")).ids.size(), 1u);
  EXPECT_EQ(left.end_of_answer, "</s>") << "bytes know no special token";
}

TEST(Conversations, AllTokensCountIfAllAreTrainedOn) {
  const Scratch scratch;
  PrepareOptions options =
      examples_of({scratch.write("x.jsonl", conversation_line("a", "b"))}, scratch.path("out"), "plain");
  options.examples.train_on = TrainOn::all;
  EXPECT_EQ(prepare(options).examples.counted, prepare(options).examples.tokens - 1);
}

TEST(Conversations, AMaskThatIsLostIsMissed) {
  const Scratch scratch;
  prepare(examples_of({scratch.write("x.jsonl", conversation_line("a", "b"))}, scratch.path("out"), "plain"));
  EXPECT_TRUE(TokenStream::open(scratch.path("out/train.bin")).is_masked());
  std::filesystem::remove(scratch.path("out/train.mask"));
  const std::string said = message_of([&] { TokenStream::open(scratch.path("out/train.bin")); });
  EXPECT_NE(said.find("/out/train.mask, the mask of the tokens that count, is missing"), std::string::npos) << said;
}

TEST(Conversations, WholeOnesAreHeldOut) {
  const Scratch scratch;
  std::string lines;
  for (int i = 0; i < 40; i++) lines += conversation_line("question " + std::to_string(i), "answer");
  PrepareOptions options = examples_of({scratch.write("x.jsonl", lines)}, scratch.path("out"), "plain");
  options.corpus.validation_fraction = 0.25;
  const PrepareReport report = prepare(options);
  EXPECT_GT(report.validation.documents, 2);
  EXPECT_EQ(report.validation.documents + report.train.documents, 40);
  EXPECT_EQ(examples_in(scratch.path("out/validation.bin")).counts[0].back(), 0);
}

TEST(Conversations, WhatIsNoneIsSaidWithItsLine) {
  const Scratch scratch;
  const auto fails = [&](const std::string& lines, auto... words) {
    const std::string good = conversation_line("a", "b");
    PrepareOptions options = examples_of({scratch.write("x.jsonl", good + lines)}, scratch.path("out"), "chatml");
    const std::string message = message_of([&] { prepare(options); });
    for (const std::string& word : {std::string(words)...}) EXPECT_NE(message.find(word), std::string::npos) << message;
  };
  fails(R"({"messages": [{"role": "assistant", "content": "x"}]})", "x.jsonl, line 2 (at byte", "expected user");
  fails(R"({"messages": [{"role": "user"}]})", "line 2", "message 1 of 1 has no \"content\"");
  fails(R"({"messages": [{"role": "user", "content": null}]})", "\"content\" that is not a string but null");
  fails(R"({"messages": ["x"]})", "message 1 of 1 is a string");
  fails(R"({"messages": "x"})", "\"messages\" is not a list but a string");
  fails(R"({"messages": []})", "there are no messages");
  fails(R"({"text": "x"})", "without \"messages\"", "--prompt-field and --completion-field");
  fails("{\"messages\": [{\"role\": \"user\", \"content\": \"\xff\"}]}", "not UTF-8", "0xff");
  fails(R"({"messages": [{"role": "user", "content": "a\u0000"}]})", "NUL character");
  PrepareOptions options = examples_of({scratch.write("t.txt", "text")}, scratch.path("out"), "chatml");
  EXPECT_ERROR(prepare(options), "t.txt is a text, but conversations are JSON lines");
  options = examples_of({scratch.write("x.jsonl", conversation_line("a", "b"))}, scratch.path("out"), "chatlm");
  EXPECT_ERROR(prepare(options), "chatlm is neither built in nor a file");
  options = examples_of({scratch.path("x.jsonl")}, scratch.path("out"), "chatml");
  options.corpus.conversations->prompt = "prompt";
  EXPECT_ERROR(prepare(options), "takes both");
  options = examples_of({scratch.write("x.jsonl", R"({"messages": []})")}, scratch.path("out"), "chatml");
  options.corpus.conversations.reset();
  EXPECT_ERROR(prepare(options), "conversations take --template");
  options =
      examples_of({scratch.write("x.jsonl", conversation_line("a", "b") + "{}\n")}, scratch.path("some"), "chatml");
  options.skip_bad = 1;
  EXPECT_EQ(prepare(options).bad_documents, 1);
}

TEST(Conversations, AnEqualPrepareIsRecognizedAndAnotherIsNot) {
  const Scratch scratch;
  PrepareOptions options =
      examples_of({scratch.write("x.jsonl", conversation_line("a", "b"))}, scratch.path("out"), "chatml");
  const PrepareReport first = prepare(options), again = prepare(options);
  EXPECT_TRUE(again.was_made);
  EXPECT_EQ(again.examples, first.examples);
  EXPECT_EQ(again.end_of_answer, first.end_of_answer);
  options.examples.chat_template = "zephyr";
  EXPECT_ERROR(prepare(options), "--template is another");
  options.corpus.conversations.reset();
  EXPECT_ERROR(prepare(options), "is another");
}

// A prepare that fails after a note goes on there, with shards, and makes the same files.
TEST(Conversations, APrepareThatWasCutOffGoesOn) {
  const Scratch scratch;
  std::vector<std::string> texts;
  for (int file = 0; file < 20; file++) {
    std::string lines;
    for (int i = 0; i < 10; i++)
      lines += conversation_line("q " + std::to_string(i), std::string(static_cast<size_t>(10 * file + i), 'x'));
    texts.push_back(scratch.write(fmt::format("x{:02}.jsonl", file), lines));
  }
  PrepareOptions options = examples_of(texts, scratch.path("whole"), "chatml");
  options.shard_tokens = 5000;
  const PrepareReport whole = prepare(options);
  options.out = scratch.path("cut");
  options.note_bytes = 5000;
  options.note_seconds = 0;
  int batches = 0;
  EXPECT_ERROR(prepare(options,
                       [&](std::string_view stage, int64_t, int64_t) {
                         if (stage == "encoding" && ++batches == 15) FAIL("cut off");
                       }),
               "cut off");
  const PrepareReport report = prepare(options);
  EXPECT_TRUE(report.continued);
  EXPECT_EQ(report.examples, whole.examples);
  int shards = 0;
  for (const auto& entry : std::filesystem::directory_iterator(scratch.path("whole"))) {
    const std::string name = entry.path().filename().string();
    if (entry.is_directory() || name == "prepared.json") continue;
    shards += name.ends_with(".mask");
    EXPECT_EQ(read_file(entry.path().string()), read_file(scratch.path("cut/" + name))) << name;
  }
  EXPECT_GT(shards, 2);
}

// The forms that people have: OpenAI's, ShareGPT's, Alpaca's, an array; what counts, and what is refused by its name.
TEST(Conversations, FormsOfLines) {
  const auto texts_of = [](const std::string& name, const std::string& lines, std::string& why) {
    const Scratch scratch;
    std::string text;
    try {
      prepare(examples_of({scratch.write(name, lines)}, scratch.path("c"), "plain"));
      const Examples found = examples_in(scratch.path("c/train.bin"));
      for (size_t e = 0; e < found.ids.size(); e++) {
        for (size_t i = 0; i < found.ids[e].size(); i++)
          text += fmt::format("{}{}", found.counts[e][i] == 1 ? "^" : "",
                              found.ids[e][i] < 256 ? std::string(1, static_cast<char>(found.ids[e][i])) : "$");
        text += "|";
      }
    } catch (const Error& e) {
      why = e.what();
    }
    return text;
  };
  const auto of = [&](const std::string& lines, const std::string& name = "x.jsonl") {
    std::string why;
    const std::string text = texts_of(name, lines, why);
    EXPECT_EQ(why, "") << lines;
    return text;
  };
  const auto refused = [&](const std::string& line) {
    std::string why;
    texts_of("x.jsonl", line, why);
    return why;
  };
  const std::string usual =
      of(R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]})");
  EXPECT_NE(usual.find("^a^"), std::string::npos) << usual;
  EXPECT_EQ(of(R"({"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}], "id": 7})"),
            usual);
  EXPECT_EQ(of(R"({"instruction": "q", "input": "", "output": "a"})"), usual);
  EXPECT_EQ(of("["
               R"({"instruction": "q", "output": "a"})"
               ",\n  "
               R"({"instruction": "q",)"
               "\n"
               R"("output": "a"}])",
               "x.json"),
            usual + usual);
  EXPECT_EQ(of(R"({"instruction": "q", "input": "more", "output": "a"})"),
            of(R"({"messages": [{"role": "user", "content": "q\nmore"}, {"role": "assistant", "content": "a"}]})"));
  const std::string turns = R"({"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "p"},
    {"role": "assistant", "content": "b"}, {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]})";
  std::string on_one_line = turns;
  std::erase(on_one_line, '\n');
  EXPECT_EQ(of(R"({"system": "s", "history": [["p", "b"]], "instruction": "q", "output": "a"})"), of(on_one_line));
  EXPECT_EQ(
      of(R"({"system": "s", "conversations": [{"from": "human", "value": "p"}, {"from": "gpt", "value": "b"}, {"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]})"),
      of(on_one_line));
  for (const char* key : {R"("weight": 0)", R"("train": false)", R"("weight": 0.0, "name": "x")"}) {
    const std::string text = of(fmt::format(
        R"({{"messages": [{{"role": "user", "content": "q"}}, {{"role": "assistant", "content": "b", {}}}, {{"role": "user", "content": "r"}}, {{"role": "assistant", "content": "a", "weight": 1}}]}})",
        key));
    EXPECT_NE(text.find("^a^"), std::string::npos) << text;
    EXPECT_EQ(text.find("^b"), std::string::npos) << text;
  }
  const std::string supported = "megalith trains on texts of system, user and assistant";
  for (
      const auto& [line, word] : std::vector<std::pair<std::string, std::string>>{
          {R"({"tools": [{"name": "f"}], "messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]})",
           "\"tools\""},
          {R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "", "tool_calls": [{"x": 1}]}]})",
           "\"tool_calls\""},
          {R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a", "reasoning_content": "r"}]})",
           "\"reasoning_content\""},
          {R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a", "thinking": "r"}]})",
           "\"thinking\""},
          {R"({"messages": [{"role": "developer", "content": "q"}, {"role": "assistant", "content": "a"}]})",
           "\"developer\""},
          {R"({"messages": [{"role": "user", "content": "q"}, {"role": "tool", "content": "a"}]})", "\"tool\""},
          {R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "q"}]}, {"role": "assistant", "content": "a"}]})",
           "in parts"},
          {R"({"conversations": [{"from": "human", "value": "q"}, {"from": "function_call", "value": "a"}]})",
           "\"function_call\""}}) {
    const std::string why = refused(line);
    EXPECT_NE(why.find(word), std::string::npos) << why;
    EXPECT_NE(why.find(supported), std::string::npos) << why;
    EXPECT_NE(why.find("line 1"), std::string::npos) << why;
  }
  EXPECT_NE(
      refused(
          R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a", "weight": 0.5}]})")
          .find("\"weight\" of 0.5"),
      std::string::npos);
  EXPECT_NE(
      refused(R"({"messages": [{"role": "user", "content": "q", "weight": 1}, {"role": "assistant", "content": "a"}]})")
          .find("with the role user"),
      std::string::npos);
  const std::string long_one = R"({"messages": [{"role": "user", "content": ")" + std::string(17 << 20, 'q') +
                               R"("}, {"role": "assistant", "content": "a"}]})";
  EXPECT_NE(refused(long_one).find("line 1 (at byte 0) has more than 16777216 bytes"), std::string::npos)
      << refused(long_one).substr(0, 300);
}

}  // namespace
}  // namespace megalith
