// Tokenizers of others that would hang or fill the memory, and keys beside them that would change ids.
#include <gtest/gtest.h>

#include "data/conversations/chat_template.h"
#include "tests/data/small_tokenizers.h"

namespace megalith {
namespace {

using namespace small_tokenizers;

std::string message_of_text(const Json& file, const std::string& text, const char* end_name = "<end>") {
  return message_of([&] { plain(*Small(file, end_name), text); });
}

TEST(Limits, APatternThatBacktracksWithoutEndIsRefused) {
  const Json split =
      changed(of_bytes(), "/pre_tokenizer",
              R"({"type": "Sequence", "pretokenizers": [{"type": "Split", "behavior": "Isolated", "invert": false,
    "pattern": {"Regex": "(?:a|b|ab)*c"}}, {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]})");
  std::string text;
  for (int i = 0; i < 40; i++) text += "ab";
  EXPECT_NE(message_of_text(split, text).find("backtracks too much"), std::string::npos);
  EXPECT_NE(message_of_text(split, text).find("tokenizer.json"), std::string::npos) << "the file is named";
  EXPECT_FALSE(plain(*Small(split), "ababc x").empty());
}

TEST(Limits, PartsThatDoubleATextAreRefused) {
  std::string doubling = R"({"type": "Sequence", "normalizers": [)";
  for (int i = 0; i < 40; i++)
    doubling += std::string(i > 0 ? ", " : "") + R"({"type": "Replace", "pattern": {"String": "a"}, "content": "aa"})";
  EXPECT_NE(message_of_text(changed(of_characters(), "/normalizer", doubling + "]}"), "a", "</s>")
                .find("the normalizer makes"),
            std::string::npos);
  std::string decoder = doubling;
  decoder.replace(decoder.find("normalizers"), 11, "decoders");
  const std::string said = message_of([&] { Small(changed(of_characters(), "/decoder", decoder + "]}"), "</s>"); });
  EXPECT_NE(said.find("decoder"), std::string::npos) << said;
  EXPECT_NE(said.find("makes"), std::string::npos) << said;
}

TEST(Limits, AnEmptyReplacementIsRefused) {
  for (const char* pointer : {"/pre_tokenizer", "/decoder"}) {
    const Json file =
        changed(of_characters(), pointer, R"({"type": "Metaspace", "replacement": "", "prepend_scheme": "always"})");
    EXPECT_ERROR(Small(file, "</s>"), "Metaspace", "empty replacement");
  }
}

// Of each key a value of which transformers makes other ids, and one that says what tokenizer.json says.
TEST(TokenizerConfig, KeysThatChangeIdsAreRefusedAndOthersDoNothing) {
  const Scratch scratch;
  const auto with = [&](const char* keys) {
    Json config = Json::parse(keys);
    config["eos_token"] = "<end>";
    scratch.write("t/tokenizer.json", of_bytes().dump());
    scratch.write("t/tokenizer_config.json", config.dump());
    try {
      load_tokenizer(scratch.path("t"));
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  for (
      const auto& [keys, word] : std::vector<std::pair<const char*, const char*>>{
          {R"({"add_prefix_space": true})", "add_prefix_space = true"},
          {R"({"add_prefix_space": false})", ""},
          {R"({"added_tokens_decoder": {"300": {"content": "<x>"}}})", "added_tokens_decoder of 300"},
          {R"({"added_tokens_decoder": {"5": {"content": "<end>", "special": true}}})", "added_tokens_decoder of 5"},
          {R"({"added_tokens_decoder": {"260": {"content": "<end>", "special": true, "lstrip": false}}})", ""},
          {R"({"added_tokens_decoder": {"260": {"content": "<end>", "lstrip": true}}})", "lstrip"},
          {R"({"extra_special_tokens": ["<x>"]})", "extra_special_tokens = \"<x>\""},
          {R"({"extra_special_tokens": {"image": "<x>"}})", "extra_special_tokens = \"<x>\""},
          {R"({"additional_special_tokens": ["<end>"]})", ""},
          {R"({"additional_special_tokens": ["abc"]})", "additional_special_tokens"},
          {R"({"pad_token": "<pad>"})", "pad_token = \"<pad>\""},
          {R"({"pad_token": {"content": "<end>", "lstrip": true}})", "lstrip"},
          {R"({"pad_token": "<end>", "bos_token": null})", ""},
          {R"({"split_special_tokens": true})", "split_special_tokens = true"},
          {R"({"split_special_tokens": false, "do_lower_case": false})", ""},
          {R"({"do_lower_case": true})", "do_lower_case = true"},
          {R"({"add_bos_token": true})", "add_bos_token = true"},
          {R"({"add_bos_token": false, "add_eos_token": false})", ""},
          {R"({"some_new_way": {"x": 1}})", "some_new_way"},
          {R"({"some_new_way": null, "other": [], "third": false})", ""},
          {R"({"model_max_length": 512, "clean_up_tokenization_spaces": true, "tokenizer_class": "X", "legacy": true})",
           ""}}) {
    const std::string said = with(keys);
    EXPECT_EQ(said.empty(), *word == 0) << keys << ": " << said;
    EXPECT_NE(said.find(word), std::string::npos) << keys << ": " << said;
  }
}

// What a tokenizer's files say of roles comes back from what is saved, and from what transformers gets.
TEST(TokenizerConfig, RolesAndTheTemplateAreKept) {
  const Scratch scratch;
  Json file = of_bytes();
  file["added_tokens"].push_back(token("<begin>", 261, R"("special": true)"));
  for (const bool pipeline : {false, true}) {
    const std::string folder = pipeline ? "p" : "b";
    if (pipeline) file["normalizer"] = Json{{"type", "NFC"}};
    scratch.write(folder + "/tokenizer.json", file.dump());
    scratch.write(folder + "/tokenizer_config.json",
                  R"({"eos_token": "<end>", "bos_token": {"content": "<begin>"}, "chat_template": "{{ bos_token }}"})");
    const auto found = load_tokenizer(scratch.path(folder));
    for (const char* form : {"saved", "exported"}) {
      const std::string to = scratch.path(folder + form);
      std::filesystem::create_directory(to);
      if (form == std::string("saved"))
        found->save(to);
      else
        found->save_for_transformers(to, 8, "{{ eos_token }}");
      const auto again = load_tokenizer(to);
      EXPECT_EQ(again->use().roles.at("bos_token"), "<begin>") << folder << form;
      EXPECT_EQ(again->use().roles.at("eos_token"), "<end>");
      EXPECT_EQ(again->use().jinja, form == std::string("saved") ? "{{ bos_token }}" : "{{ eos_token }}");
      EXPECT_EQ(again->content(), found->content());
    }
  }
}

// Metaspace's scheme `first` puts a blank before the text alone, and not before each message after a special token.
TEST(ChatEncoder, TextsBehindSpecialTokensAreNotBeginnings) {
  Json file = changed(of_characters(), "/normalizer", "null");
  file["pre_tokenizer"] =
      Json::parse(R"({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": false})");
  const Small tokenizer(file, "</s>");
  const ChatTemplate chat{
      .name = "x", .begin = "<s>", .system = {}, .user = {"a", "<s>"}, .assistant = {"", "", "</s>", ""}};
  for (const SpecialTexts how : {SpecialTexts::ids, SpecialTexts::text}) {
    Ids ids;
    ChatEncoder(chat, *tokenizer, how).encode_prompt(std::vector<ChatMessage>{{"user", "b"}}, ids);
    EXPECT_EQ(ids, (Ids{1, ab_, 1})) << static_cast<int>(how);
  }
}

}  // namespace
}  // namespace megalith
