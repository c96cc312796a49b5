// Texts that a tokenizer.json's tokenizer encodes in parts: cuts change nothing.
#include <gtest/gtest.h>

#include <random>

#include "data/tokenizers/tokenizer.h"
#include "tests/data/small_tokenizers.h"

namespace megalith {
namespace {

using namespace small_tokenizers;

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
  for (const Tokenizer* tokenizer : {&plainly, plainly.with_specials()}) {
    const auto encoder = tokenizer->encoder();
    const auto ids_of = [&](const std::string& text) {
      Ids ids;
      encoder->encode(text, ids);
      return ids;
    };
    for (int i = 0; i < 150; i++) {
      const std::string text = random_text(random, 1 + random() % 60);
      const size_t cut = tokenizer->last_cut(text);
      cuts += cut > 0;
      EXPECT_LE(cut, text.size());
      for (int j = 0; j < 4 && cut > 0; j++) {
        const std::string all = text + random_text(random, random() % 4);
        Ids parts = ids_of(all.substr(0, cut));
        encoder->encode_rest(all.substr(cut), parts);
        EXPECT_EQ(parts, ids_of(all)) << name << ": `" << text << "`, cut at " << cut << ", then `"
                                      << all.substr(text.size()) << "`";
      }
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

}  // namespace
}  // namespace megalith
