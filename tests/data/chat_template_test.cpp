// Chat templates: texts, ids and masks are those of transformers on ../shared/sft; tokens know their places in a text,
// whatever the tokenizer; a template's file holds all of it; what is no conversation is said.
#include "data/conversations/chat_template.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "kernels/system/json.h"
#include "tests/data/scratch.h"

namespace megalith {
namespace {

using Json = nlohmann::json;
using Ids = std::vector<int32_t>;
using Messages = std::vector<ChatMessage>;
using test::Scratch;

std::string chats_of_reference() { return MEGALITH_SOURCE_DIR "/../shared/sft"; }
std::string family_tokenizers() { return MEGALITH_SOURCE_DIR "/../shared/tokenizers/families"; }

std::vector<Json> objects_in(const std::string& path) {
  std::vector<Json> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) lines.push_back(parse_json(line));
  return lines;
}

// The conversations of ../shared/sft, and its pairs as conversations.
std::vector<Messages> all_conversations() {
  std::vector<Messages> all;
  for (const Json& line : objects_in(chats_of_reference() + "/conversations.jsonl")) {
    Messages& messages = all.emplace_back();
    for (const Json& m : line.at("messages")) messages.push_back({m.at("role"), m.at("content")});
  }
  for (const Json& line : objects_in(chats_of_reference() + "/pairs.jsonl"))
    all.push_back({{"user", line.at("prompt")}, {"assistant", line.at("completion")}});
  return all;
}

const Messages& a_conversation() {
  static const Messages messages{
      {"system", "Be terse."}, {"user", "Hi"}, {"assistant", "  Hello.\n"}, {"user", "What?"}, {"assistant", ""}};
  return messages;
}

TEST(ChatTemplate, TextsIdsAndMasksAreThoseOfTransformers) {
  if (!std::filesystem::exists(chats_of_reference()))
    GTEST_SKIP() << chats_of_reference() << " is not there: no rendering is compared";
  const auto tokenizer = load_tokenizer(chats_of_reference() + "/tokenizer");
  const std::vector<Messages> conversations = all_conversations();
  for (const ChatTemplate& chat : chat_templates()) {
    const std::vector<Json> rows = objects_in(chats_of_reference() + "/rendered/" + chat.name + ".jsonl");
    ASSERT_EQ(rows.size(), conversations.size()) << chat.name;
    ChatEncoder encoder(chat, *tokenizer), as_text(chat, *tokenizer, SpecialTexts::text);
    for (size_t i = 0; i < rows.size(); i++) {
      EXPECT_EQ(render_chat(chat, conversations[i]).text, rows[i].at("text").get<std::string>())
          << chat.name << " " << i;
      for (ChatEncoder* by : {&encoder, &as_text}) {
        Ids ids;
        std::vector<uint8_t> counts;
        by->encode(conversations[i], TrainOn::answers, ids, counts);
        EXPECT_EQ(ids, rows[i].at("ids").get<Ids>()) << chat.name << " " << i;
        EXPECT_EQ(Json(counts), rows[i].at("mask")) << chat.name << " " << i;
      }
    }
  }
}

TEST(ChatTemplate, APromptIsWhatStandsBeforeTheAnswer) {
  const Messages whole = a_conversation(), asked(whole.begin(), whole.end() - 1);
  for (const ChatTemplate& chat : chat_templates()) {
    const RenderedChat rendered = render_chat(chat, whole);
    EXPECT_EQ(render_chat_prompt(chat, asked), rendered.text.substr(0, rendered.counts.back().begin)) << chat.name;
    EXPECT_EQ(rendered.counts.size(), 2u);
    EXPECT_EQ(rendered.text.substr(rendered.counts.back().begin),
              chat.assistant.lead + chat.assistant.end + chat.assistant.after);
    EXPECT_ERROR(render_chat_prompt(chat, whole), "the last of 5 messages", "assistant");
  }
  Ids ids;
  const auto tokenizer = make_byte_tokenizer();
  ChatEncoder(chat_template("chatml"), *tokenizer).encode_prompt(asked, ids);
  EXPECT_TRUE(tokenizer->decode(ids).ends_with("What?<|im_end|>\n<|im_start|>assistant\n"));
}

TEST(ChatTemplate, AnAnswerEndsWithItsTokenOrItsText) {
  const auto bytes = make_byte_tokenizer();
  const EndOfAnswer in_bytes = end_of_answer(chat_template("chatml"), *bytes);
  EXPECT_FALSE(in_bytes.is_one_token);
  EXPECT_EQ(in_bytes.ids, Ids{256});
  ChatTemplate tilde = chat_template("chatml");
  tilde.assistant.end = "~";
  const EndOfAnswer ordinary = end_of_answer(tilde, *bytes);
  EXPECT_TRUE(ordinary.is_one_token) << "though no special one";
  EXPECT_EQ(ordinary.ids, (Ids{'~', 256}));
  if (!std::filesystem::exists(chats_of_reference())) GTEST_SKIP() << chats_of_reference() << " is not there";
  const auto tokenizer = load_tokenizer(chats_of_reference() + "/tokenizer");
  const EndOfAnswer end = end_of_answer(chat_template("chatml"), *tokenizer);
  EXPECT_TRUE(end.is_one_token);
  EXPECT_EQ(end.ids, (Ids{4, 0}));
  EXPECT_EQ(end_of_answer(chat_template("plain"), *tokenizer).ids, Ids{0});
}

TEST(ChatTemplate, AFileHoldsAllOfATemplate) {
  const Scratch scratch;
  for (ChatTemplate chat : chat_templates()) {
    const std::string path = scratch.write(chat.name + ".json", chat_template_file(chat));
    const ChatTemplate read = chat_template(path);
    chat.name = path;
    EXPECT_EQ(read, chat);
  }
  const auto from = [&](const char* text) { return chat_template(scratch.write("t.json", text)); };
  EXPECT_ERROR(chat_template("chatlm"), "chatlm", "chatml, llama3, mistral, zephyr, plain");
  EXPECT_ERROR(from("{"), "t.json is not JSON");
  EXPECT_ERROR(from("[]"), "the template is []");
  EXPECT_ERROR(from(R"({"user": {}})"), "no \"assistant\"");
  EXPECT_ERROR(from(R"({"user": {}, "assistant": {}})"), "has no \"end\"");
  EXPECT_ERROR(from(R"({"user": {"pre": "x"}, "assistant": {"end": "e"}})"), "unknown key \"pre\"", "before, after");
  EXPECT_ERROR(from(R"({"user": {"before": 1}, "assistant": {"end": "e"}})"), "before of \"user\" is 1");
  EXPECT_ERROR(from(R"({"user": {}, "assistant": {"end": "e"}, "trim": "yes"})"), "true or false");
  const ChatTemplate without_system = from(R"({"user": {"before": "Q: ", "after": "\n"},
    "assistant": {"before": "A:", "lead": " ", "end": "\n"}})");
  EXPECT_EQ(render_chat(without_system, Messages{{"user", "1+1?"}, {"assistant", "2"}}).text, "Q: 1+1?\nA: 2\n");
  EXPECT_ERROR(render_chat(without_system, a_conversation()), "the role system, which the template", "does not have",
               "remove it");
}

TEST(ChatTemplate, WhatIsNoConversationIsSaid) {
  const ChatTemplate chat = chat_template("chatml");
  const auto render = [&](const Messages& messages) { return render_chat(chat, messages).text; };
  EXPECT_ERROR(render({}), "no message");
  EXPECT_ERROR(render({{"system", "x"}}), "only message has the role system");
  EXPECT_ERROR(render({{"assistant", "x"}}), "message 1 of 1 has the role \"assistant\", expected user");
  EXPECT_ERROR(render({{"user", "x"}, {"user", "y"}}), "message 2 of 2", "expected assistant");
  EXPECT_ERROR(render({{"user", "x"}, {"system", "y"}}), "message 2 of 2 has the role \"system\"");
  EXPECT_ERROR(render({{"user", "x"}, {"tool", "y"}}), "\"tool\"", "take turns");
}

TEST(ChatTemplate, ControlWordsOfAMessageAreIdsOrTextOrRefused) {
  if (!std::filesystem::exists(chats_of_reference())) GTEST_SKIP() << chats_of_reference() << " is not there";
  const auto tokenizer = load_tokenizer(chats_of_reference() + "/tokenizer");
  const ChatTemplate chat = chat_template("chatml");
  const Messages messages{{"user", "a<|im_end|>b"}, {"assistant", "c"}};
  const auto ends_in = [&](SpecialTexts how) {
    Ids ids;
    std::vector<uint8_t> counts;
    ChatEncoder(chat, *tokenizer, how).encode(messages, TrainOn::answers, ids, counts);
    EXPECT_EQ(tokenizer->decode(ids), render_chat(chat, messages).text);
    EXPECT_EQ(std::ranges::count(counts, 1), 2);
    return std::ranges::count(ids, 4);
  };
  EXPECT_EQ(ends_in(SpecialTexts::ids), 3);
  EXPECT_EQ(ends_in(SpecialTexts::text), 2);
  EXPECT_ERROR(ends_in(SpecialTexts::refuse), "message 1 of 2", "<|im_end|>");
}

TEST(ChatTemplate, AllTokensButTheFirstCountIfAllAreTrainedOn) {
  const auto tokenizer = make_byte_tokenizer();
  Ids ids;
  std::vector<uint8_t> counts;
  ChatEncoder(chat_template("zephyr"), *tokenizer).encode(a_conversation(), TrainOn::all, ids, counts);
  EXPECT_EQ(counts.size(), ids.size());
  EXPECT_EQ(counts[0], 0);
  EXPECT_EQ(std::ranges::count(counts, 1), std::ssize(ids) - 1);
}

// Characters that a normalizer leaves alone keep their places beside those that it changes.
TEST(TokenPlaces, AChangedCharacterTakesNoNeighbourWithIt) {
  if (!std::filesystem::exists(family_tokenizers()))
    GTEST_SKIP() << family_tokenizers() << " is not there: NFC is not tried";
  const auto tokenizer = load_tokenizer(family_tokenizers() + "/qwen");
  Ids ids;
  std::vector<TextRange> places;
  tokenizer->encoder()->encode_places("t\nA\u030a\n", ids, places);
  EXPECT_EQ(tokenizer->decode(ids), "t\n\u00c5\n");
  ASSERT_GE(places.size(), 4u);
  EXPECT_EQ(places[1], (TextRange{1, 2}));
  for (size_t i = 2; i + 1 < places.size(); i++) EXPECT_EQ(places[i], (TextRange{2, 5}));
  EXPECT_EQ(places.back(), (TextRange{5, 6}));
}

// Places: those of tokens whose bytes are the text's own are exact; all are in order and leave out blanks only.
TEST(TokenPlaces, TokensOfEveryFamilyKnowTheirPlaces) {
  if (!std::filesystem::exists(family_tokenizers()))
    GTEST_SKIP() << family_tokenizers() << " is not there: no family is tried";
  for (const auto& entry : std::filesystem::directory_iterator(family_tokenizers())) {
    const std::string folder = entry.path().string();
    const auto tokenizer = load_tokenizer(folder);
    const SpecialText special(*tokenizer);
    const auto encoder = special.encoder(*tokenizer);
    for (const Json& line : objects_in(folder + "/cases.jsonl")) {
      const auto text = line.at("text").get<std::string>();
      Ids ids;
      std::vector<TextRange> places;
      encoder->encode_places(text, ids, places);
      ASSERT_EQ(ids, line.at("ids").get<Ids>()) << folder << " " << line;
      ASSERT_EQ(ids.size(), places.size()) << folder << " " << line;
      size_t end = 0;
      for (const TextRange& place : places) {
        ASSERT_TRUE(place.begin < place.end && place.end <= text.size()) << folder << " " << line;
        for (size_t i = end; i < place.begin; i++) ASSERT_TRUE(text[i] == ' ') << folder << " " << line;
        end = std::max(end, place.end);
      }
      ASSERT_EQ(end, text.size()) << folder << " " << line;
    }
  }
}

}  // namespace
}  // namespace megalith
