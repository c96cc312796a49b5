// Tokenizers of any tokenizer.json: ids, with and without special tokens, and decoded texts are those of Hugging Face's
// library on the seven forms of ../shared; small ones show each rule.
#include "data/tokenizers/pipeline_tokenizer.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "data/tokenizers/bpe_names.h"
#include "data/tokenizers/special_text.h"
#include "data/tokenizers/tokenizer_json.h"
#include "tests/data/small_tokenizers.h"
#include "tests/python.h"

namespace megalith {
namespace {

using namespace small_tokenizers;

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
    tokenizer->encoder()->encode_rest(std::string_view(text).substr(cut), parts);
    EXPECT_EQ(parts, ids) << folder;
  }
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
  // Every vowel and every final consonant of Hangul joins what is before it (Unicode 15, 3.12).
  const auto utf8 = [](uint32_t c) {
    return std::string{static_cast<char>(0xe0 | c >> 12), static_cast<char>(0x80 | (c >> 6 & 63)),
                       static_cast<char>(0x80 | (c & 63))};
  };
  const auto bytes = [](const std::string& text) {
    Ids all;
    for (const char c : text) all.push_back(static_cast<uint8_t>(c));
    return all;
  };
  for (uint32_t final = 0x11a8; final <= 0x11c2; final++)
    EXPECT_EQ(ids(nfc, utf8(0xac00) + utf8(final)), bytes(utf8(0xac00 + final - 0x11a7))) << std::hex << final;
  for (uint32_t vowel = 0x1161; vowel <= 0x1175; vowel++)
    EXPECT_EQ(ids(nfc, utf8(0x1100) + utf8(vowel)), bytes(utf8(0xac00 + (vowel - 0x1161) * 28))) << std::hex << vowel;
  for (const uint32_t neither : {0x1160u, 0x1176u, 0x11a7u, 0x11c3u})
    EXPECT_EQ(ids(nfc, utf8(0xac00) + utf8(neither)), bytes(utf8(0xac00) + utf8(neither))) << std::hex << neither;
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
  // Of those that overlap, the one that begins first; of those that begin there, the longest (as `tokenizers` has it).
  Json overlapping = of_bytes();
  for (const auto& [text, id] : {std::pair("xyz", 261), {"yzx", 262}, {"zx", 263}, {"xy", 264}})
    overlapping["added_tokens"].push_back(token(text, id, R"("special": false, "normalized": false)"));
  const Small overlap(overlapping);
  EXPECT_EQ(plain(*overlap, "xyzx"), (Ids{261, 'x'}));
  EXPECT_EQ(plain(*overlap, "yzxyz"), (Ids{262, 'y', 'z'}));
  EXPECT_EQ(plain(*overlap, "xyxyzx"), (Ids{264, 261, 'x'}));
  EXPECT_EQ(plain(*overlap, "zxyzx"), (Ids{263, 262}));
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
  EXPECT_ERROR(ids("  ", R"("normalized": true)", "", R"({"type": "Strip"})"), "normalized to an empty text");
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
  // A vocabulary without the byte of x: `tokenizers` 0.23 writes the unknown token after bytes that follow it.
  Json some = of_characters();
  Json& vocab = some["model"]["vocab"];
  vocab["another"] = vocab.at("<0x78>");
  vocab.erase("<0x78>");
  EXPECT_EQ(plain(*Small(some, "</s>"), "xyb"), (Ids{blank, first_byte + 'y', 0, b_}));
  EXPECT_EQ(plain(*Small(some, "</s>"), "yxxy"), (Ids{blank, first_byte + 'y', first_byte + 'y', 0}));
  EXPECT_EQ(plain(*Small(some, "</s>"), "xyx"), (Ids{blank, first_byte + 'y', 0}));
  Json file = of_characters();
  file["model"]["byte_fallback"] = false;
  file["model"]["unk_token"] = nullptr;
  EXPECT_EQ(plain(*Small(file, "</s>"), "xyb"), (Ids{blank, b_})) << "without an unknown token it is left out";
  file["model"]["unk_token"] = "<none>";
  EXPECT_ERROR(Small(file, "</s>"), "model.unk_token = \"<none>\" is not in model.vocab");
  file["model"]["type"] = "WordPiece";
  EXPECT_ERROR(Small(file, "</s>"), "the model is WordPiece, which is not supported");
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

TEST(PipelineTokenizer, IsSavedAsItCame) {
  const Small found(changed(of_bytes(), "/normalizer", R"({"type": "NFC"})"));
  for (const char* name : {"saved", "exported"}) {
    const std::string folder = found.path(name);
    std::filesystem::create_directory(folder);
    check_no_tokenizer_in(folder);
    name == std::string("saved") ? found->save(folder) : found->save_for_transformers(folder, 8, "");
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
