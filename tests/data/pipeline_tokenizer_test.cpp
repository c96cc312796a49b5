// Tokenizers of any tokenizer.json: ids, with and without special tokens, and decoded texts are those of Hugging Face's
// library on the seven forms of ../shared; small ones show each rule; cuts change nothing.
#include "data/pipeline_tokenizer.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "data/bpe_names.h"
#include "data/special_text.h"
#include "data/tokenizer_json.h"
#include "tests/data/scratch.h"
#include "tests/python.h"

namespace megalith {
namespace {

using Json = nlohmann::json;
using Ids = std::vector<int32_t>;
using test::Scratch;

std::string families() { return MEGALITH_SOURCE_DIR "/../shared/tokenizers/families"; }

std::vector<std::string> family_folders() {
  std::vector<std::string> folders;
  if (std::filesystem::is_directory(families()))
    for (const auto& entry : std::filesystem::directory_iterator(families())) folders.push_back(entry.path().string());
  std::sort(folders.begin(), folders.end());
  return folders;
}

Ids plain(const Tokenizer& tokenizer, std::string_view text) {
  Ids ids;
  tokenizer.encode(text, ids);
  return ids;
}

Ids with_specials(const Tokenizer& tokenizer, std::string_view text) {
  Ids ids;
  encode_with_specials(tokenizer, text, ids);
  return ids;
}

Ids framed(const Tokenizer& tokenizer, const Ids& ids) {
  Ids all = tokenizer.beginning();
  all.insert(all.end(), ids.begin(), ids.end());
  const Ids ending = tokenizer.ending();
  all.insert(all.end(), ending.begin(), ending.end());
  return all;
}

TEST(PipelineTokenizer, AllFormsAreExact) {
  const std::vector<std::string> folders = family_folders();
  if (folders.empty()) GTEST_SKIP() << families() << " is not there: no tokenizer of a family is compared";
  EXPECT_EQ(folders.size(), 7u);
  for (const std::string& folder : folders) {
    const auto tokenizer = load_tokenizer(folder);
    std::ifstream cases(folder + "/cases.jsonl");
    int count = 0;
    for (std::string line; std::getline(cases, line); count++) {
      const Json json = Json::parse(line);
      const auto text = json.at("text").get<std::string>();
      const Ids ids = with_specials(*tokenizer, text);
      ASSERT_EQ(ids, json.at("ids").get<Ids>()) << folder << ": " << line;
      ASSERT_EQ(framed(*tokenizer, ids), json.at("ids_special").get<Ids>()) << folder << ": " << line;
      ASSERT_EQ(tokenizer->decode(ids), json.at("decoded").get<std::string>()) << folder << ": " << line;
      ASSERT_EQ(tokenizer->decode(framed(*tokenizer, ids), false), json.at("decoded_skip").get<std::string>())
          << folder << ": " << line;
    }
    EXPECT_EQ(count, 190) << folder;
  }
}

// The vocabularies of Llama 3, Qwen and Mistral 7B, where Python packages carry them.
TEST(PipelineTokenizer, RealVocabulariesMakeTheSameIds) {
  const std::string python = python_with("tokenizers");
  if (python.empty()) GTEST_SKIP() << "MEGALITH_PYTHON does not name a Python with tokenizers";
  const Scratch scratch;
  const std::string mixed = scratch.write("mixed.txt", test::valid_text(300'000, 3));
  const std::string source = MEGALITH_SOURCE_DIR;
  ASSERT_EQ(std::system(fmt::format("'{}' '{}/tests/data/tokenizers_of_packages.py' '{}' '{}' '{}/README.md'", python,
                                    source, scratch.path("found"), mixed, source)
                            .c_str()),
            0);
  if (!std::filesystem::exists(scratch.path("found")))
    GTEST_SKIP() << "MEGALITH_PYTHON has none of the packages llama-models, dashscope and mistral-common";
  for (const auto& entry : std::filesystem::directory_iterator(scratch.path("found"))) {
    const std::string folder = entry.path().string();
    const auto tokenizer = load_tokenizer(folder);
    const std::string text = read_file(folder + "/text.txt"), want = read_file(folder + "/ids.bin");
    const Ids ids = plain(*tokenizer, text);
    ASSERT_EQ(ids.size() * sizeof(int32_t), want.size()) << folder;
    EXPECT_EQ(std::memcmp(ids.data(), want.data(), want.size()), 0) << folder;
    const size_t cut = tokenizer->last_cut(std::string_view(text).substr(0, text.size() / 2));
    EXPECT_GT(cut, text.size() / 2 - 1000) << folder;
    Ids parts = plain(*tokenizer, std::string_view(text).substr(0, cut));
    tokenizer->encoder()->go_on(std::string_view(text).substr(cut), parts);
    EXPECT_EQ(parts, ids) << folder;
  }
}

// A byte-level tokenizer: ids 0 to 255 are the bytes, then come "ab", "12", " a", "abc" without a merge, and <end>.
Json of_bytes() {
  Json file = Json::parse(R"({"added_tokens": [{"id": 260, "special": true, "content": "<end>"}], "normalizer": null,
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true}, "post_processor": null,
    "decoder": {"type": "ByteLevel"}, "model": {"type": "BPE", "vocab": {}, "merges": ["a b", "1 2", "Ġ a"]}})");
  Json& vocab = file["model"]["vocab"];
  for (int byte = 0; byte < 256; byte++) vocab[name_of_byte(static_cast<char>(byte))] = byte;
  for (const char* token : {"ab", "12", "Ġa", "abc"}) vocab[token] = vocab.size();
  return file;
}
constexpr int32_t ab = 256, twelve = 257, blank_a = 258, abc = 259, end = 260;

// Llama 2's kind: <unk>, <s>, </s>, the bytes, then characters and what merges make of them.
Json of_characters() {
  Json file = Json::parse(R"({"added_tokens": [{"id": 0, "special": true, "content": "<unk>"},
      {"id": 1, "special": true, "content": "<s>"}, {"id": 2, "special": true, "content": "</s>"}],
    "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"},
      {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
    "pre_tokenizer": null, "post_processor": null,
    "decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
      {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
    "model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": true,
      "vocab": {"<unk>": 0, "<s>": 1, "</s>": 2}, "merges": [["▁", "a"], ["a", "b"], ["▁a", "b"], ["▁", "▁"]]}})");
  Json& vocab = file["model"]["vocab"];
  for (int byte = 0; byte < 256; byte++) vocab[fmt::format("<0x{:02X}>", byte)] = vocab.size();
  for (const char* token : {"▁", "a", "b", "é", "▁a", "ab", "▁ab", "▁▁"}) vocab[token] = vocab.size();
  return file;
}
constexpr int32_t first_byte = 3, blank = 259, b_ = 261, e_acute = 262, _a = 263, ab_ = 264, _ab = 265,
                  two_blanks = 266;

class Small {
 public:
  explicit Small(const Json& file, const char* end_name = "<end>") {
    scratch_.write("t/tokenizer.json", file.dump());
    scratch_.write("t/tokenizer_config.json", Json{{"eos_token", end_name}}.dump());
    tokenizer_ = load_tokenizer(scratch_.path("t"));
  }
  const Tokenizer* operator->() const { return tokenizer_.get(); }
  const Tokenizer& operator*() const { return *tokenizer_; }
  std::string path(const std::string& name) const { return scratch_.path(name); }

 private:
  const Scratch scratch_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

Json changed(Json file, const char* pointer, const std::string& value) {
  file[Json::json_pointer(pointer)] = Json::parse(value);
  return file;
}

Json token(const char* content, int32_t id, const std::string& flags) {
  Json made = Json::parse("{" + flags + "}");
  made["content"] = content;
  made["id"] = id;
  return made;
}

TEST(PipelineTokenizer, TextsAreCutByTheirPattern) {
  const auto split = [](const char* pattern, const char* behavior, bool invert = false) {
    return fmt::format(R"({{"type": "Sequence", "pretokenizers": [{{"type": "Split", "pattern": {{"Regex": "{}"}},
        "behavior": "{}", "invert": {}}}, {{"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}}]}})",
                       pattern, behavior, invert);
  };
  const auto ids = [&](const std::string& pre_tokenizer, const char* text) {
    return plain(*Small(changed(of_bytes(), "/pre_tokenizer", pre_tokenizer)), text);
  };
  EXPECT_EQ(ids(split("x", "Isolated"), "ab12xab"), (Ids{ab, twelve, 'x', ab}));
  EXPECT_EQ(ids(split("1", "Isolated"), "ab12"), (Ids{ab, '1', '2'}));
  EXPECT_EQ(ids(split("1", "Removed"), "12ab"), (Ids{'2', ab}));
  EXPECT_EQ(ids(split("1", "Removed", true), "12ab1"), (Ids{'1', '1'}));
  EXPECT_EQ(ids(split("a", "MergedWithPrevious"), "1ab"), (Ids{'1', 'a', 'b'}));
  EXPECT_EQ(ids(split("a", "MergedWithNext"), "1ab"), (Ids{'1', ab}));
  EXPECT_EQ(ids(split("b|2", "MergedWithNext"), "ab12"), (Ids{'a', 'b', '1', '2'}));
  EXPECT_EQ(ids(split("a|b", "Contiguous"), "ab12"), (Ids{ab, twelve}));
  EXPECT_EQ(ids(split("a|b", "Isolated"), "ab12"), (Ids{'a', 'b', twelve}));
  const auto before_bytes = [](const char* step) {
    return fmt::format(R"({{"type": "Sequence", "pretokenizers": [{}, {{"type": "ByteLevel", "add_prefix_space": false,
                          "use_regex": true}}]}})",
                       step);
  };
  EXPECT_EQ(ids(before_bytes(R"({"type": "Digits", "individual_digits": true})"), " ab12"), (Ids{' ', ab, '1', '2'}));
  EXPECT_EQ(ids(before_bytes(R"({"type": "Digits", "individual_digits": false})"), "ab12"), (Ids{ab, twelve}));
  EXPECT_EQ(ids(before_bytes(R"({"type": "WhitespaceSplit"})"), "1 ab"), (Ids{'1', ab}));
  EXPECT_EQ(ids(before_bytes(R"({"type": "Whitespace"})"), "ab.- 1"), (Ids{ab, '.', '-', '1'}));
  EXPECT_EQ(ids(before_bytes(R"({"type": "Punctuation", "behavior": "Removed"})"), "a.b+"), (Ids{'a', 'b'}));
  EXPECT_EQ(ids(R"({"type": "ByteLevel", "add_prefix_space": true, "use_regex": true})", "a b"),
            (Ids{blank_a, ' ', 'b'}));
  // Parts behind ByteLevel see bytes as characters: a byte of é is the character ©, which is no letter.
  EXPECT_EQ(ids(R"({"type": "Sequence", "pretokenizers": [{"type": "ByteLevel", "add_prefix_space": false},
                {"type": "Split", "pattern": {"Regex": "\\p{L}"}, "behavior": "Removed"}]})",
                "\xc3\xa9 1"),
            (Ids{0xa9, '1'}));
}

TEST(PipelineTokenizer, IgnoredMergesFindWholePieces) {
  const Small found(changed(of_bytes(), "/model/ignore_merges", "true"));
  EXPECT_EQ(plain(*found, "abc 12"), (Ids{abc, ' ', twelve}));
  EXPECT_EQ(plain(*found, "abcd"), (Ids{ab, 'c', 'd'}));
  EXPECT_EQ(plain(*Small(of_bytes()), "abc"), (Ids{ab, 'c'}));
}

TEST(PipelineTokenizer, TextsAreNormalized) {
  const auto ids = [&](const char* normalizer, const std::string& text) {
    return plain(*Small(changed(of_bytes(), "/normalizer", normalizer)), text);
  };
  const char* const nfc = R"({"type": "NFC"})";
  EXPECT_EQ(ids(nfc, "e\xcc\x81x"), (Ids{0xc3, 0xa9, 'x'}));
  EXPECT_EQ(ids(nfc, "\xe2\x84\xa6"), (Ids{0xce, 0xa9})) << "the ohm sign";
  EXPECT_EQ(ids(nfc, "a\xcc\xa7\xcc\x81"), (Ids{0xc3, 0xa1, 0xcc, 0xa7})) << "in the order of their classes";
  EXPECT_EQ(ids(nfc, "\xe1\x84\x92\xe1\x85\xa1\xe1\x86\xab"), (Ids{0xed, 0x95, 0x9c})) << "Hangul";
  EXPECT_EQ(ids(nfc, "\xe0\xa7\x87\xe0\xa6\xbe"), (Ids{0xe0, 0xa7, 0x8b})) << "vowel signs, both of class 0";
  EXPECT_EQ(ids(nfc,
                "\xff"
                "e\xcc\x81\xcc"),
            (Ids{0xff, 0xc3, 0xa9, 0xcc}))
      << "stray bytes stay";
  EXPECT_EQ(ids(R"({"type": "NFD"})", "\xc3\xa9"), (Ids{'e', 0xcc, 0x81}));
  EXPECT_EQ(ids(R"({"type": "NFKC"})", "\xef\xac\x81"), (Ids{'f', 'i'}));
  EXPECT_EQ(ids(R"({"type": "Strip", "strip_left": true, "strip_right": false})", " \nx "), (Ids{'x', ' '}));
  EXPECT_EQ(ids(R"({"type": "Replace", "pattern": {"Regex": "x+"}, "content": "ab"})", "xx1x"), (Ids{ab, '1', ab}));
  EXPECT_EQ(ids(R"({"type": "Prepend", "prepend": "a"})", "b"), Ids{ab});
}

TEST(PipelineTokenizer, AddedTokensAreCutOut) {
  Json file = of_bytes();
  file["added_tokens"].push_back(token("<think>", 261, R"("special": false, "normalized": false)"));
  file["added_tokens"].push_back(token("<thi", 262, R"("special": false, "normalized": false)"));
  file["added_tokens"].push_back(token("<user>", 263, R"("special": true, "normalized": false)"));
  const Small found(file);
  EXPECT_EQ(plain(*found, "a<think>b<thi"), (Ids{'a', 261, 'b', 262})) << "the longest";
  EXPECT_EQ(plain(*found, "<user>").size(), 6u) << "a special one is text";
  EXPECT_EQ(with_specials(*found, "a<user><think>b"), (Ids{'a', 263, 261, 'b'}));
  EXPECT_EQ(with_specials(*found, "a<end>"), (Ids{'a', end}));
  EXPECT_EQ(found->decode(Ids{'a', 263, 261, 'b', end}), "a<user><think>b<end>");
  EXPECT_EQ(found->decode(Ids{'a', 263, 261, 'b', end}, false), "a<think>b");
  EXPECT_EQ(found->vocab_size(), 264);

  const auto ids = [&](const char* content, const std::string& flags, const char* text,
                       const char* normalizer = "null") {
    Json one = changed(of_bytes(), "/normalizer", normalizer);
    one["added_tokens"].push_back(token(content, 261, R"("special": false, )" + flags));
    return plain(*Small(one), text);
  };
  EXPECT_EQ(ids("<X>", R"("normalized": false, "lstrip": true)", "1 \n<X> 2"), (Ids{'1', 261, ' ', '2'}));
  EXPECT_EQ(ids("<X>", R"("normalized": false, "rstrip": true)", "1 <X> \n2"), (Ids{'1', ' ', 261, '2'}));
  EXPECT_EQ(ids("XY", R"("normalized": false, "single_word": true)", "XY aXY XY_ XY"),
            (Ids{261, blank_a, 'X', 'Y', ' ', 'X', 'Y', '_', ' ', 261}));
  EXPECT_EQ(ids("XY", R"("normalized": false, "single_word": true)", "XY\xe2\x80\x8d"),
            (Ids{'X', 'Y', 0xe2, 0x80, 0x8d}))
      << "a joiner is part of a word";
  const char* const nfc = R"({"type": "NFC"})";
  EXPECT_EQ(ids("\xc3\xa9x", R"("normalized": true)", "e\xcc\x81x", nfc), Ids{261});
  EXPECT_EQ(ids("\xc3\xa9x", R"("normalized": false)", "e\xcc\x81x\xc3\xa9x", nfc), (Ids{0xc3, 0xa9, 'x', 261}));
  EXPECT_EQ(ids("e\xcc\x81x", R"("normalized": true)", "\xc3\xa9x", nfc), Ids{261}) << "it is normalized as well";
  EXPECT_ERROR(ids("  ", R"("normalized": true)", "", R"({"type": "Strip"})"), "normalized to nothing");
}

TEST(PipelineTokenizer, ThePostProcessorFramesTexts) {
  const Small found(changed(of_characters(), "/post_processor", R"({"type": "Sequence", "processors": [
    {"type": "ByteLevel"}, {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
      {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}],
     "special_tokens": {"<s>": {"id": "<s>", "ids": [1]}, "</s>": {"id": "</s>", "ids": [2, 2]}}}]})"),
                    "</s>");
  EXPECT_EQ(found->beginning(), Ids{1});
  EXPECT_EQ(found->ending(), (Ids{2, 2}));
  EXPECT_EQ(with_specials(*found, "a"), Ids{_a}) << "encoders leave them out";
  EXPECT_EQ(found->token_bytes(1), "");
  EXPECT_EQ(found->token_name(1), "<s>");
  const Small bert(changed(of_characters(), "/post_processor",
                           R"({"type": "RobertaProcessing", "cls": ["<s>", 1], "sep": ["</s>", 2]})"),
                   "</s>");
  EXPECT_EQ(framed(*bert, {7}), (Ids{1, 7, 2}));
  EXPECT_EQ(Small(of_characters(), "</s>")->beginning(), Ids{});
}

TEST(PipelineTokenizer, CharactersFallBackToBytes) {
  const Small found(of_characters(), "</s>");
  EXPECT_EQ(plain(*found, "ab"), Ids{_ab}) << "a blank is put before";
  EXPECT_EQ(plain(*found, ""), Ids{});
  EXPECT_EQ(plain(*found, "  ab"), (Ids{two_blanks, _ab}));
  EXPECT_EQ(plain(*found, "b ab"), (Ids{blank, b_, _ab}));
  EXPECT_EQ(with_specials(*found, "<s>ab</s>b"), (Ids{1, _ab, 2, blank, b_})) << "before every piece";
  EXPECT_EQ(plain(*found, "\xc3\xa9\xe4\xb8\xad\n"),
            (Ids{blank, e_acute, first_byte + 0xe4, first_byte + 0xb8, first_byte + 0xad, first_byte + '\n'}));
  EXPECT_EQ(plain(*found, "\xff"), (Ids{blank, first_byte + 0xff}));
  EXPECT_EQ(found->decode(plain(*found, "b \xe4\xb8\xad ab")), "b \xe4\xb8\xad ab");
  EXPECT_EQ(found->decode(Ids{first_byte + 0xe4, first_byte + 0xb8, b_}),
            "\xef\xbf\xbd\xef\xbf\xbd"
            "b");
  EXPECT_EQ(found->token_bytes(_ab), " ab") << "inside a text the blank stays";
  EXPECT_EQ(found->token_bytes(first_byte + 0xff), "\xff");
  EXPECT_EQ(found->token_bytes(2), "");
}

TEST(PipelineTokenizer, WhatHasNoTokenIsUnknown) {
  const auto ids = [](bool fuses, bool falls_back, const char* text) {
    Json file = of_characters();
    file["model"]["fuse_unk"] = fuses;
    file["model"]["byte_fallback"] = falls_back;
    return plain(*Small(file, "</s>"), text);
  };
  EXPECT_EQ(ids(true, false, "xyb"), (Ids{blank, 0, b_}));
  EXPECT_EQ(ids(false, false, "xyb"), (Ids{blank, 0, 0, b_}));
  EXPECT_EQ(ids(true, false, "x\xc3\xbf"), (Ids{blank, 0})) << "at the end too";
  EXPECT_EQ(ids(true, true, "xb"), (Ids{blank, first_byte + 'x', b_}));
  Json file = of_characters();
  file["model"]["byte_fallback"] = false;
  file["model"]["unk_token"] = nullptr;
  EXPECT_EQ(plain(*Small(file, "</s>"), "xyb"), (Ids{blank, b_})) << "without an unknown token it is left out";
  file["model"]["unk_token"] = "<none>";
  EXPECT_ERROR(Small(file, "</s>"), "model.unk_token = \"<none>\" is not in model.vocab");
  file["model"]["type"] = "WordPiece";
  EXPECT_ERROR(Small(file, "</s>"), "the model is WordPiece, which is not known here");
}

TEST(PipelineTokenizer, BlanksAreWrittenByMetaspace) {
  const auto ids = [](const char* scheme, bool split, const char* text) {
    Json file = of_characters();
    file["normalizer"] = nullptr;
    file["pre_tokenizer"] = {{"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", scheme}, {"split", split}};
    return with_specials(*Small(file, "</s>"), text);
  };
  EXPECT_EQ(ids("first", false, "ab<s>ab"), (Ids{_ab, 1, ab_}));
  EXPECT_EQ(ids("first", false, "<s>ab"), (Ids{1, ab_}));
  EXPECT_EQ(ids("always", false, "ab<s>ab"), (Ids{_ab, 1, _ab}));
  EXPECT_EQ(ids("never", false, "ab"), Ids{ab_});
  EXPECT_EQ(ids("always", false, " ab"), Ids{_ab}) << "one is there";
  EXPECT_EQ(ids("always", false, "b  a"), (Ids{blank, b_, blank, _a}));
  EXPECT_EQ(ids("always", true, "b  a"), (Ids{blank, b_, blank, _a}));
  EXPECT_EQ(ids("never", false, "  b"), (Ids{two_blanks, b_}));
  EXPECT_EQ(ids("never", true, "  b"), (Ids{blank, blank, b_})) << "each blank begins a piece";
  const Small decoded(
      changed(of_characters(), "/decoder", R"({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"})"),
      "</s>");
  EXPECT_EQ(decoded->decode(Ids{_ab, _ab}), "ab ab");
}

std::string random_text(std::mt19937& random, size_t parts) {
  static const std::vector<std::string> all = {"ab",
                                               " ab",
                                               "a",
                                               "b",
                                               " ",
                                               "  ",
                                               "      ",
                                               "\n",
                                               "\r\n",
                                               "12",
                                               "123",
                                               "1",
                                               "the",
                                               "The ",
                                               "'ll",
                                               "'",
                                               "e\xcc\x81",
                                               "\xcc\xa7",
                                               "\xc3\xa9",
                                               "\xe4\xb8\xad",
                                               "\xe4\xb8\xad\xe6\x96\x87",
                                               "\xf0\x9f\x98\x80",
                                               "<s>",
                                               "</s>",
                                               "<end>",
                                               "<|begin_of_text|>",
                                               "<think>",
                                               "<|im_end|>",
                                               "[INST]",
                                               "▁",
                                               ".",
                                               "!?",
                                               "return",
                                               "\t",
                                               "\xe1\x85\xa1",
                                               "nk>",
                                               "<thi",
                                               "_"};
  std::string text;
  for (size_t i = 0; i < parts; i++) text += all[random() % all.size()];
  return text;
}

// encode(text + more) is encode(text up to the cut) and what follows, whatever `more` is. Returns how often it cut.
int check_cuts(const Tokenizer& plainly, const std::string& name) {
  std::mt19937 random(5);
  int cuts = 0;
  for (const Tokenizer* tokenizer : {&plainly, plainly.with_specials()})
    for (int i = 0; i < 150; i++) {
      const std::string text = random_text(random, 1 + random() % 60);
      const size_t cut = tokenizer->last_cut(text);
      cuts += cut > 0;
      EXPECT_LE(cut, text.size());
      for (int j = 0; j < 4 && cut > 0; j++) {
        const std::string all = text + random_text(random, random() % 4);
        Ids parts = plain(*tokenizer, all.substr(0, cut));
        tokenizer->encoder()->go_on(all.substr(cut), parts);
        EXPECT_EQ(parts, plain(*tokenizer, all))
            << name << ": `" << text << "`, cut at " << cut << ", then `" << all.substr(text.size()) << "`";
      }
    }
  return cuts;
}

TEST(PipelineTokenizer, CutsChangeNothing) {
  EXPECT_GT(check_cuts(*Small(of_characters(), "</s>"), "characters"), 150);
  const char* const bytes_alone = R"({"type": "ByteLevel", "add_prefix_space": false, "use_regex": false})";
  const auto after = [&](const std::string& step) {
    return R"({"type": "Sequence", "pretokenizers": [)" + step + ", " + bytes_alone + "]}";
  };
  const std::string digits = R"({"type": "Digits", "individual_digits": true})";
  const std::string words =
      R"({"type": "Split", "pattern": {"Regex": " ?\\p{L}+|\\s+(?!\\S)|\\s"}, "behavior": "Isolated"})";
  for (const std::string& pre_tokenizer : {after(words), after(digits + ", " + words), after(words + ", " + digits)}) {
    Json file = changed(changed(of_bytes(), "/pre_tokenizer", pre_tokenizer), "/normalizer", R"({"type": "NFC"})");
    file["added_tokens"].push_back(token("<think>", 261, R"("special": false, "normalized": false)"));
    file["added_tokens"].push_back(token("   ", 262, R"("special": false, "normalized": true)"));
    EXPECT_GT(check_cuts(*Small(file), pre_tokenizer), 100);
  }
  for (const char* scheme : {"first", "always", "never"})
    for (const bool split : {false, true}) {
      Json file = changed(of_characters(), "/normalizer", "null");
      file["pre_tokenizer"] = {
          {"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", scheme}, {"split", split}};
      EXPECT_GT(check_cuts(*Small(file, "</s>"), scheme), 100);
    }
  EXPECT_GT(check_cuts(*Small(changed(of_bytes(), "/pre_tokenizer/add_prefix_space", "true")), "a blank before"), 100);
  // A later step cuts nothing that may become a match of an earlier one.
  const Small found(
      changed(of_bytes(), "/pre_tokenizer",
              after(R"({"type": "Split", "pattern": {"Regex": "a a a"}, "behavior": "Isolated"}, )" + words)));
  EXPECT_EQ(plain(*found, "b a a a"), (Ids{'b', ' ', 'a', blank_a, blank_a}));
  EXPECT_EQ(plain(*found, "b a a"), (Ids{'b', blank_a, blank_a}));
  EXPECT_EQ(found->last_cut("b a a a12"), 1u) << "the last four bytes may begin <end>";
  // Tokens that take the blanks around them, and that are looked for in normalized texts, specials among them.
  for (const char* flags : {R"("lstrip": true, "normalized": false)", R"("rstrip": true, "normalized": false)",
                            R"("lstrip": true, "rstrip": true, "normalized": true)"}) {
    Json bytes = of_bytes();
    bytes["added_tokens"].push_back(token("<think>", 261, std::string(R"("special": true, )") + flags));
    EXPECT_GT(check_cuts(*Small(bytes), flags), 100);
    Json characters = of_characters();
    for (Json& one : characters["added_tokens"]) one["normalized"] = true;
    characters["added_tokens"].push_back(token("<think>", 267, std::string(R"("special": false, )") + flags));
    EXPECT_GT(check_cuts(*Small(characters, "</s>"), flags), 100);
  }
  // There is no cut where none is known.
  Json strips = of_bytes();
  strips["normalizer"] = {{"type", "Strip"}};
  EXPECT_EQ(check_cuts(*Small(strips), "strips"), 0);
  Json word = of_bytes();
  word["added_tokens"].push_back(token("<think>", 261, R"("special": false, "single_word": true)"));
  EXPECT_EQ(check_cuts(*Small(word), "word"), 0);
  for (const std::string& folder : family_folders())
    EXPECT_GT(check_cuts(*load_tokenizer(folder), folder), 100) << folder;
}

TEST(PipelineTokenizer, IsSavedAsItCame) {
  const Small found(changed(of_bytes(), "/normalizer", R"({"type": "NFC"})"));
  for (const char* name : {"saved", "exported"}) {
    const std::string folder = found.path(name);
    std::filesystem::create_directory(folder);
    check_no_tokenizer_in(folder);
    name == std::string("saved") ? found->save(folder) : found->save_for_transformers(folder, 8);
    for (const char* file : {"tokenizer.json", "tokenizer_config.json"})
      EXPECT_EQ(read_file(folder + "/" + file), read_file(found.path(std::string("t/") + file)));
    EXPECT_EQ(load_tokenizer(folder)->content(), found->content());
    EXPECT_ERROR(check_no_tokenizer_in(folder), "exists already");
  }
}

TEST(PipelineTokenizer, ContentIsWhatDecidesIds) {
  const auto content = [](const Json& file) { return Small(file)->content(); };
  const Json file = changed(of_bytes(), "/normalizer", R"({"type": "NFC"})");
  EXPECT_EQ(content(changed(file, "/model/merges", R"([["a", "b"], ["1", "2"], ["Ġ", "a"]])")), content(file));
  EXPECT_EQ(content(changed(file, "/truncation", R"({"max_length": 4})")), content(file));
  EXPECT_NE(content(changed(file, "/normalizer", R"({"type": "NFD"})")), content(file));
  EXPECT_NE(content(changed(file, "/model/merges", R"(["a b", "Ġ a", "1 2"])")), content(file));
}

}  // namespace
}  // namespace megalith
