#include "data/tokenizers/tokenizer.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>

#include "data/tokenizers/bpe_merger.h"
#include "tests/data/scratch.h"
#include "tests/data/small_tokenizers.h"
#include "tests/python.h"

namespace megalith {
namespace {

using test::gpt2_folder;
using test::random_text;
using test::Scratch;

std::vector<int32_t> ids_of(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<int32_t> ids;
  tokenizer.encode(text, ids);
  return ids;
}

const Tokenizer& gpt2() {
  static const auto it = load_tokenizer(gpt2_folder());
  return *it;
}

TEST(Tokenizer, BytesAreThemselves) {
  const auto tokenizer = make_byte_tokenizer();
  EXPECT_EQ(tokenizer->vocab_size(), 257);
  EXPECT_EQ(tokenizer->end_of_text(), 256);
  EXPECT_EQ(ids_of(*tokenizer, std::string("a\0\xff", 3)), (std::vector<int32_t>{97, 0, 255}));
  EXPECT_EQ(tokenizer->token_bytes(255), "\xff");
  EXPECT_EQ(tokenizer->token_bytes(256), "");
  const std::string text = random_text(1000, 1);
  EXPECT_EQ(tokenizer->decode(ids_of(*tokenizer, text)), text);
  EXPECT_ERROR(tokenizer->token_bytes(257), "token 257", "vocabulary of 257");

  Scratch scratch;
  scratch.write("kept", "");
  tokenizer->save(scratch.path("."));
  EXPECT_EQ(load_tokenizer(scratch.path("."))->vocab_size(), 257);
}

TEST(Tokenizer, AFolderIsWhatIsLoaded) {
  const std::string message = message_of([] { load_tokenizer("bytes"); });
  EXPECT_EQ(message,
            "the tokenizer bytes is not a folder; name a folder with tokenizer.json, or vocab.json and merges.txt, or "
            "bytes.txt if prepare made it from bytes");
}

TEST(Tokenizer, EveryPublishedCaseOfGpt2) {
  SKIP_WITHOUT_GPT2();
  std::ifstream cases(gpt2_folder() + "/cases.jsonl");
  std::string line;
  int count = 0;
  while (std::getline(cases, line)) {
    const auto json = nlohmann::json::parse(line);
    const auto text = json.at("text").get<std::string>();
    EXPECT_EQ(ids_of(gpt2(), text), json.at("ids").get<std::vector<int32_t>>()) << text;
    EXPECT_EQ(gpt2().decode(json.at("ids").get<std::vector<int32_t>>()), text);
    count++;
  }
  EXPECT_EQ(count, 38);
  EXPECT_EQ(gpt2().vocab_size(), 50257);
  EXPECT_EQ(gpt2().end_of_text(), 50256);
  EXPECT_EQ(gpt2().token_bytes(50256), "");
}

TEST(Tokenizer, Gpt2KeepsEveryByte) {
  SKIP_WITHOUT_GPT2();
  std::mt19937 random(7);
  std::string noise;
  for (int i = 0; i < 50'000; i++) noise += static_cast<char>(random());
  for (const std::string& text : {noise, random_text(50'000, 3), std::string(200'000, 'a'), std::string(100'000, '\n')})
    EXPECT_EQ(gpt2().decode(ids_of(gpt2(), text)), text);
}

TEST(Tokenizer, AnEncoderThatRemembersEqualsOneThatDoesNot) {
  SKIP_WITHOUT_GPT2();
  const auto encoder = gpt2().encoder();
  for (unsigned seed = 0; seed < 200; seed++) {
    const std::string text = random_text(200, seed);
    std::vector<int32_t> ids;
    encoder->encode(text, ids);
    ASSERT_EQ(ids, ids_of(gpt2(), text));
  }
}

TEST(Tokenizer, SaveAndLoadRoundTrip) {
  SKIP_WITHOUT_GPT2();
  Scratch scratch;
  scratch.write("copy/kept", "");
  gpt2().save(scratch.path("copy"));
  EXPECT_EQ(read_file(scratch.path("copy/merges.txt")), read_file(gpt2_folder() + "/merges.txt"));
  EXPECT_EQ(nlohmann::json::parse(read_file(scratch.path("copy/vocab.json"))),
            nlohmann::json::parse(read_file(gpt2_folder() + "/vocab.json")));
  EXPECT_ERROR(gpt2().save(scratch.path("copy")), "merges.txt", "exists");
}

// The plain twin: look for the earliest merge anywhere, do it at its leftmost place, look again.
std::vector<int32_t> plain_merge(const BpeVocabulary& vocabulary, const std::string& piece) {
  std::map<std::pair<int32_t, int32_t>, std::pair<size_t, int32_t>> table;
  for (size_t rank = 0; rank < vocabulary.merges.size(); rank++) {
    const auto& merge = vocabulary.merges[rank];
    table[{merge.left, merge.right}] = {rank, merge.result};
  }
  std::vector<int32_t> ids;
  for (const char byte : piece) ids.push_back(vocabulary.byte_ids[static_cast<uint8_t>(byte)]);
  for (;;) {
    size_t best_rank = SIZE_MAX, best = 0;
    for (size_t i = 0; i + 1 < ids.size(); i++) {
      const auto found = table.find({ids[i], ids[i + 1]});
      if (found == table.end() || found->second.first >= best_rank) continue;
      best_rank = found->second.first;
      best = i;
    }
    if (best_rank == SIZE_MAX) return ids;
    ids[best] = table.at({ids[best], ids[best + 1]}).second;
    ids.erase(ids.begin() + static_cast<ptrdiff_t>(best) + 1);
  }
}

TEST(Tokenizer, MergingEqualsItsDefinitionAtAllLengths) {
  SKIP_WITHOUT_GPT2();
  const BpeVocabulary whole = small_tokenizers::gpt2_vocabulary();
  BpeVocabulary vocabulary = whole;
  vocabulary.merges.resize(3000);
  const MergeTable table(vocabulary);
  BpeMerger merger(table);
  std::mt19937 random(5);
  for (size_t length = 1; length < 130; length++) {
    for (const int letters : {1, 2, 26}) {
      std::string piece;
      while (piece.size() < length) piece += static_cast<char>('a' + static_cast<int>(random() % 26) % letters);
      std::vector<int32_t> ids;
      merger.merge(piece, ids);
      ASSERT_EQ(ids, plain_merge(vocabulary, piece)) << piece;
    }
  }
}

TEST(Tokenizer, RefusesDamagedFolders) {
  SKIP_WITHOUT_GPT2();
  Scratch scratch;
  const std::string vocab = read_file(gpt2_folder() + "/vocab.json"), merges = read_file(gpt2_folder() + "/merges.txt");
  const auto load = [&](const std::string& vocab_text, const std::string& merges_text) {
    scratch.write("t/vocab.json", vocab_text);
    scratch.write("t/merges.txt", merges_text);
    load_tokenizer(scratch.path("t"));
  };
  EXPECT_ERROR(load_tokenizer(scratch.path("nowhere")), "nowhere", "not a folder");
  scratch.write("t/merges.txt", merges);
  EXPECT_ERROR(load_tokenizer(scratch.path("t")), "vocab.json");
  std::filesystem::remove(scratch.path("t/merges.txt"));
  scratch.write("t/vocab.json", vocab);
  EXPECT_ERROR(load_tokenizer(scratch.path("t")), "merges.txt");
  EXPECT_ERROR(load(vocab.substr(0, 1000), ""), "vocab.json", "not JSON");
  EXPECT_ERROR(load("", ""), "vocab.json", "empty");
  EXPECT_ERROR(load("[1, 2]", ""), "not a JSON object");
  EXPECT_ERROR(load(R"({"a": "b"})", ""), "\"a\"", "not an integer");
  EXPECT_ERROR(load(R"({"a": 0, "b": 2})", ""), "id 2", "0 to 1");
  EXPECT_ERROR(load(R"({"a": 1, "b": 1})", ""), "same id 1");
  EXPECT_ERROR(load(R"({"a": 0})", ""), "<|endoftext|>");
  EXPECT_ERROR(load(R"({"a": 0, "<|endoftext|>": 1})", ""), "no token for the byte 0");
  EXPECT_ERROR(load(R"({"a b": 0, "<|endoftext|>": 1})", ""), "\"a b\"", "does not stand for a byte");
  EXPECT_ERROR(load(vocab, "#version: 0.2\na b c\n"), "line 2", "not two tokens");
  EXPECT_ERROR(load(vocab, "#version: 0.2\nq qqq\n"), "line 2", "not in vocab.json");
  EXPECT_ERROR(load(vocab, "h e\nh e\n"), "line 2", "already in line 1");
}

TEST(Tokenizer, EqualsTiktoken) {
  SKIP_WITHOUT_GPT2();
  const std::string python = python_with("tiktoken, numpy");
  const char* program = std::getenv("MEGALITH_BENCH_TOKENIZER");
  if (python.empty() || program == nullptr)
    GTEST_SKIP() << "MEGALITH_PYTHON names no Python with tiktoken and numpy, or MEGALITH_BENCH_TOKENIZER no "
                    "bench_tokenizer";
  const std::string script = MEGALITH_SOURCE_DIR "/tests/data/tokenizer_vs_tiktoken.py";
  EXPECT_EQ(std::system((python + " " + script + " " + program + " " + gpt2_folder()).c_str()), 0);
}

}  // namespace
}  // namespace megalith
