// tokenizer.json: read in both notations of merges as vocab.json and merges.txt are, written as `tokenizers` reads it,
// and refused where it would be almost right.
#include "data/tokenizers/tokenizer_json.h"

#include <nlohmann/json.hpp>

#include "data/tokenizers/special_text.h"
#include "data/tokenizers/tokenizer.h"
#include "tests/data/scratch.h"
#include "tests/python.h"

namespace megalith {
namespace {

using Json = nlohmann::json;
using test::gpt2_folder;
using test::random_text;
using test::Scratch;

const char* const gpt2_pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

std::vector<int32_t> ids_by(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<int32_t> ids;
  tokenizer.encode(text, ids);
  return ids;
}

// As GPT-2's own on the hub, of the files that we have.
Json published(bool pairs) {
  Json merges = Json::array();
  std::ifstream lines(gpt2_folder() + "/merges.txt");
  std::string line;
  std::getline(lines, line);
  while (std::getline(lines, line)) {
    const size_t space = line.find(' ');
    merges.push_back(pairs ? Json{line.substr(0, space), line.substr(space + 1)} : Json(line));
  }
  Json file = Json::parse(R"({"version": "1.0", "truncation": null, "padding": null, "normalizer": null,
    "added_tokens": [{"id": 50256, "special": true, "content": "<|endoftext|>", "single_word": false, "lstrip": false,
                      "rstrip": false, "normalized": true}],
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true},
    "post_processor": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": false},
    "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true},
    "model": {"dropout": null, "unk_token": null, "continuing_subword_prefix": "", "end_of_word_suffix": "",
              "fuse_unk": false}})");
  file["model"]["merges"] = merges;
  file["model"]["vocab"] = Json::parse(read_file(gpt2_folder() + "/vocab.json"));
  return file;
}

// Bytes, "ab", and the end of a text among the added tokens.
Json small() {
  Json file = Json::parse(R"({"added_tokens": [{"id": 257, "special": true, "content": "<|endoftext|>", "lstrip": false,
                                                "rstrip": false, "single_word": false, "normalized": false}],
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true},
    "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true},
    "model": {"type": "BPE", "vocab": {}, "merges": ["a b"]}})");
  const Scratch scratch;
  scratch.write("t/kept", "");
  make_byte_tokenizer()->save_for_transformers(scratch.path("t"), 8, "");
  file["model"]["vocab"] = Json::parse(read_file(scratch.path("t/vocab.json")));
  file["model"]["vocab"].erase("<|endoftext|>");
  file["model"]["vocab"]["ab"] = 256;
  return file;
}

std::unique_ptr<Tokenizer> load(const Scratch& scratch, const Json& file) {
  scratch.write("t/tokenizer.json", file.dump());
  return load_tokenizer(scratch.path("t"));
}

TEST(TokenizerJson, EqualsTheOtherFilesOfGpt2InBothNotations) {
  SKIP_WITHOUT_GPT2();
  const Scratch scratch;
  const auto expected = load_tokenizer(gpt2_folder());
  for (const bool pairs : {false, true}) {
    const auto found = load(scratch, published(pairs));
    ASSERT_EQ(found->vocab_size(), 50257);
    EXPECT_EQ(found->end_of_text(), 50256);
    std::ifstream cases(gpt2_folder() + "/cases.jsonl");
    for (std::string line; std::getline(cases, line);) {
      const Json json = Json::parse(line);
      EXPECT_EQ(ids_by(*found, json.at("text").get<std::string>()), json.at("ids").get<std::vector<int32_t>>());
    }
    const std::string text = random_text(20'000, 4);
    EXPECT_EQ(ids_by(*found, text), ids_by(*expected, text));
  }
}

TEST(TokenizerJson, WhatIsWrittenReadsBack) {
  const Scratch scratch;
  const auto bytes = make_byte_tokenizer(), other = load(scratch, small());
  for (const Tokenizer* tokenizer : {bytes.get(), other.get()}) {
    const std::string folder = scratch.path(tokenizer == bytes.get() ? "bytes" : "other");
    std::filesystem::create_directory(folder);
    check_no_tokenizer_in(folder);
    tokenizer->save_for_transformers(folder, 8, "");
    for (const bool by_tokenizer_json : {true, false}) {  // or by vocab.json and merges.txt
      if (!by_tokenizer_json && tokenizer == other.get()) break;
      if (!by_tokenizer_json) std::filesystem::remove(folder + "/" + tokenizer_json_file);
      const auto found = load_tokenizer(folder);
      EXPECT_EQ(found->end_of_text(), tokenizer->end_of_text());
      const std::string text = random_text(2000, 9) + "abba";
      EXPECT_EQ(ids_by(*found, text), ids_by(*tokenizer, text));
      EXPECT_EQ(found->decode(ids_by(*found, text)), text);
    }
    EXPECT_ERROR(check_no_tokenizer_in(folder), "exists already");
  }
  EXPECT_EQ(ids_by(*other, "abba"), (std::vector<int32_t>{256, 'b', 'a'}));
}

TEST(TokenizerJson, SpecialTokensKeepTheirIdsAndAreTextInTexts) {
  const Scratch scratch;
  Json file = small();
  file["added_tokens"].push_back({{"id", 258}, {"special", true}, {"content", "<|user|>"}});
  const auto found = load(scratch, file);
  EXPECT_EQ(found->vocab_size(), 259);
  EXPECT_EQ(found->end_of_text(), 257);
  EXPECT_EQ(found->token_bytes(258), "<|user|>");
  EXPECT_EQ(ids_by(*found, "<|user|>").size(), 8u);
}

TEST(TokenizerJson, WhatIsNotKnownIsRefusedByKeyAndValue) {
  const Scratch scratch;
  const auto refused = [&](const char* pointer, const Json& value, const std::vector<const char*>& words) {
    Json file = small();
    file[Json::json_pointer(pointer)] = value;
    const std::string message = message_of([&] { load(scratch, file); });
    for (const char* word : words) EXPECT_NE(message.find(word), std::string::npos) << pointer << ": " << message;
    EXPECT_NE(message.find("tokenizer.json"), std::string::npos) << message;
  };
  refused("/model/type", "Unigram", {"the model is Unigram"});
  refused("/model/dropout", 0.1, {"model.dropout is 0.1"});
  refused("/model/end_of_word_suffix", "</w>", {"end_of_word_suffix is \"</w>\""});
  refused("/model/continuing_subword_prefix", "##", {"continuing_subword_prefix is \"##\""});
  refused("/model/ignore_merges", "yes", {"ignore_merges = \"yes\"", "neither true nor false"});
  refused("/normalizer", {{"type", "BertNormalizer"}}, {"the normalizer has type = \"BertNormalizer\""});
  refused("/normalizer", Json::parse(R"({"type": "Sequence", "normalizers": [{"type": "Lowercase"}]})"),
          {"type = \"Lowercase\""});
  refused("/normalizer", Json::parse(R"({"type": "Replace", "pattern": {"Regex": "^a"}, "content": "b"})"),
          {"the normalizer Replace", "pattern ^a has `^`"});
  refused("/pre_tokenizer", {{"type", "UnicodeScripts"}}, {"the pre-tokenizer has type = \"UnicodeScripts\""});
  refused("/pre_tokenizer/add_prefix_space", 1, {"add_prefix_space = 1"});
  refused("/pre_tokenizer", Json::parse(R"({"type": "Metaspace", "replacement": "_", "prepend_scheme": "last"})"),
          {"prepend_scheme = \"last\""});
  const auto split = [](const char* pattern, const char* behavior) {
    return Json{{"type", "Sequence"},
                {"pretokenizers",
                 {{{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", behavior}, {"invert", false}},
                  {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}};
  };
  refused("/pre_tokenizer", split("(a)\\1", "Isolated"), {"the pre-tokenizer Split", "(a)\\1", "`\\1`"});
  refused("/pre_tokenizer", split(gpt2_pattern, "Merged"), {"behavior = \"Merged\""});
  refused("/post_processor", {{"type", "Own"}}, {"the post_processor has type = \"Own\""});
  refused("/post_processor", {{"type", "TemplateProcessing"}}, {"has no list `single`"});
  refused("/post_processor", Json::parse(R"({"type": "TemplateProcessing", "single": [
          {"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
          "special_tokens": {"<s>": {"id": "<s>", "ids": [900], "tokens": ["<s>"]}}})"),
          {"adds the id 900", "0 to 257"});
  refused("/post_processor", Json::parse(R"({"type": "TemplateProcessing", "single": [
          {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]})"),
          {"the text 2 times"});
  refused("/decoder", {{"type", "WordPiece"}}, {"the decoder has type = \"WordPiece\""});
  refused("/added_tokens/0/lstrip", 3, {"<|endoftext|>", "lstrip = 3"});
  refused("/added_tokens/0/id", 300, {"id 300", "0 to 257"});
  refused("/added_tokens/0/id", nullptr, {"no id"});
  refused("/added_tokens", Json::array(), {"no token <|endoftext|>"});
  refused("/model/merges", nullptr, {"not a list"});
  refused("/model/merges/0", "a b c", {"merge 1", "not two tokens"});
  refused("/model/merges/0", {"a", 3}, {"merge 1", "pair of texts"});
  refused("/model/merges/0", {"a", "c"}, {"merge 1", "\"ac\" is not in model.vocab"});
  refused("/model/merges/1", "a b", {"merge 2", "already in merge 1"});
  refused("/model/vocab/a", "x", {"\"a\"", "not an integer"});
  refused("/model/vocab/a", 98, {"same id 98"});
  refused("/model/vocab", Json::array(), {"not a JSON object of tokens"});
  refused("/model", nullptr, {"has no model"});
  scratch.write("t/tokenizer.json", "{");
  EXPECT_ERROR(load_tokenizer(scratch.path("t")), "tokenizer.json is not JSON");
}

// Sequences are what stands in them, and parts are what they do.
TEST(TokenizerJson, PartsThatMakeGpt2sIdsAreReadWhateverTheirNames) {
  const Scratch scratch;
  const std::string content = load(scratch, small())->content();
  const auto same = [&](const char* pointer, const std::string& value) {
    Json file = small();
    file[Json::json_pointer(pointer)] = Json::parse(value);
    EXPECT_EQ(load(scratch, file)->content(), content) << pointer << " " << value;
  };
  const std::string level = R"({"type": "ByteLevel", "add_prefix_space": false, "use_regex": )";
  const auto sequence = [](const char* members, const std::string& inside) {
    return fmt::format(R"({{"type": "Sequence", "{}": [{}]}})", members, inside);
  };
  const auto split = [](const std::string& pattern, const std::string& rest) {
    return fmt::format(R"({{"type": "Split", "pattern": {{"Regex": {}}}, {}}})", Json(pattern).dump(), rest);
  };
  const std::string isolated = R"("behavior": "Isolated", "invert": false)";
  same("/normalizer", sequence("normalizers", ""));
  same("/normalizer", sequence("normalizers", sequence("normalizers", "")));
  same("/normalizer", R"({"type": "Prepend", "prepend": ""})");
  same("/normalizer", R"({"type": "Strip", "strip_left": false, "strip_right": false})");
  same("/pre_tokenizer", sequence("pretokenizers", level + "true}"));
  same("/pre_tokenizer", sequence("pretokenizers", split(gpt2_pattern, isolated) + "," + level + "false}"));
  same("/pre_tokenizer", sequence("pretokenizers", split(gpt2_pattern, isolated) + "," + level + "true}"));
  same("/pre_tokenizer", sequence("pretokenizers", split(gpt2_pattern, R"("behavior": "Removed", "invert": true)") +
                                                       "," + level + "false}"));
  const std::string text = R"({"Sequence": {"id": "A", "type_id": 0}})", level_after = R"({"type": "ByteLevel"})";
  const std::string template_of_text = R"({"type": "TemplateProcessing", "single": [)" + text +
                                       R"(], "pair": [{"SpecialToken": {"id": "</s>", "type_id": 0}}],
                                          "special_tokens": {"</s>": {"id": "</s>", "ids": [257]}}})";
  same("/post_processor", template_of_text);
  same("/post_processor", sequence("processors", level_after + "," + template_of_text));
  same("/post_processor", sequence("processors", ""));
  same("/post_processor", R"({"type": "TemplateProcessing", "special_tokens": {"x": {"id": "x", "ids": []}},
                              "single": [{"SpecialToken": {"id": "x", "type_id": 0}}, )" +
                              text + "]}");
  same("/decoder", sequence("decoders", level_after + R"(, {"type": "Fuse"})"));
  same("/decoder", "null");
  same("/model/ignore_merges", "true");
  same("/model/byte_fallback", "true");
  same("/model/unk_token", R"("<|endoftext|>")");
  same("/truncation", R"({"max_length": 4, "strategy": "LongestFirst", "stride": 0, "direction": "Right"})");
}

// A token that no merge makes is what differs.
TEST(TokenizerJson, IgnoredMergesMatterWhereATokenHasNone) {
  const Scratch scratch;
  Json file = small();
  file["model"]["vocab"]["cd"] = 257;
  file["added_tokens"][0]["id"] = 258;
  EXPECT_EQ(ids_by(*load(scratch, file), "cd"), (std::vector<int32_t>{'c', 'd'}));
  file["model"]["ignore_merges"] = true;
  const auto found = load(scratch, file);
  EXPECT_EQ(ids_by(*found, "cd"), std::vector<int32_t>{257});
  EXPECT_EQ(ids_by(*found, "cdx"), (std::vector<int32_t>{'c', 'd', 'x'})) << "a whole pre-token only";
}

TEST(TokenizerJson, TheEndOfTextIsTheOneThatTheTokenizerNames) {
  const Scratch scratch;
  Json file = small();
  file["added_tokens"][0]["content"] = "</s>";
  EXPECT_EQ(load(scratch, file)->end_of_text(), 257);  // the only special token
  file["added_tokens"].push_back({{"id", 258}, {"special", true}, {"content", "<s>"}});
  EXPECT_ERROR(load(scratch, file), "2 other special ones; name the one that ends texts as \"eos_token\"");
  scratch.write("t/special_tokens_map.json", R"({"eos_token": {"content": "</s>", "lstrip": false}})");
  const auto found = load(scratch, file);
  EXPECT_EQ(found->end_of_text(), 257);
  scratch.write("t/tokenizer_config.json", R"({"eos_token": "<s>"})");  // goes first
  EXPECT_EQ(load(scratch, file)->end_of_text(), 258);
  scratch.write("t/tokenizer_config.json", R"({"eos_token": "<end>"})");
  EXPECT_ERROR(load(scratch, file), "no token <end>, the eos_token of the other files");
  // The name and the other special tokens are kept, by save and for transformers.
  for (const char* folder : {"saved", "exported"}) {
    std::filesystem::create_directory(scratch.path(folder));
    if (folder == std::string("saved"))
      found->save(scratch.path(folder));
    else
      found->save_for_transformers(scratch.path(folder), 8, "");
    EXPECT_EQ(load_tokenizer(scratch.path(folder))->content(), found->content()) << folder;
  }
}

// One is GPT-2's as today's transformers saves it, and one ends texts with </s>.
TEST(TokenizerJson, ReadsTheInputsThatWereRefused) {
  const std::string cases = MEGALITH_SOURCE_DIR "/../shared/cases/";
  if (!std::filesystem::exists(cases)) GTEST_SKIP() << cases << " is not there";
  const auto special = load_tokenizer(cases + "tokenizer-special");
  std::vector<int32_t> ids;
  encode_with_specials(*special, "<|user|>hello", ids);
  EXPECT_EQ(ids, (std::vector<int32_t>{257, 'h', 'e', 'l', 'l', 'o'}));
  for (const char* name : {"tokenizer-v5", "tokenizer-eos"}) {
    const auto found = load_tokenizer(cases + name);
    EXPECT_EQ(found->end_of_text(), 256) << name;
    EXPECT_EQ(ids_by(*found, "a b"), (std::vector<int32_t>{'a', ' ', 'b'})) << name;
  }
}

// Hugging Face's own library makes our ids of what we write.
TEST(TokenizerJson, TokenizersMakesTheSameIds) {
  const std::string python = python_with("tokenizers");
  if (python.empty()) GTEST_SKIP() << "MEGALITH_PYTHON does not name a Python with tokenizers";
  const Scratch scratch;
  std::vector<std::unique_ptr<Tokenizer>> all;
  all.push_back(make_byte_tokenizer());
  all.push_back(load(scratch, small()));
  if (std::filesystem::exists(gpt2_folder())) all.push_back(load_tokenizer(gpt2_folder()));
  std::string text;  // that library takes UTF-8 only, and cuts <|endoftext|> out
  for (const char byte : random_text(30'000, 6) + " abba ab")
    if (static_cast<unsigned char>(byte) < 0x80 && byte != '<') text += byte;
  text += "caf\xc3\xa9 \xe4\xb8\x96\xe7\x95\x8c \xf0\x9f\x8c\x8d";
  for (size_t i = 0; i < all.size(); i++) {
    const std::string folder = scratch.path(fmt::format("w{}", i));
    std::filesystem::create_directory(folder);
    all[i]->save_for_transformers(folder, 8, "");
    scratch.write("ids.json", Json{{"text", text}, {"ids", ids_by(*all[i], text)}}.dump());
    scratch.write("same.py",
                  "import json, sys, tokenizers\n"
                  "t = tokenizers.Tokenizer.from_file(sys.argv[1])\n"
                  "want = json.load(open(sys.argv[2]))\n"
                  "ids = t.encode(want['text']).ids\n"
                  "assert ids == want['ids'], [p for p in zip(ids, want['ids']) if p[0] != p[1]][:5]\n"
                  "assert t.decode(ids) == want['text']\n");
    EXPECT_EQ(std::system(fmt::format("'{}' '{}' '{}' '{}'", python, scratch.path("same.py"),
                                      folder + "/tokenizer.json", scratch.path("ids.json"))
                              .c_str()),
              0);
  }
}

}  // namespace
}  // namespace megalith
