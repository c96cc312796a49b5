// From texts of every form to tokens: documents, bad ones, shards.
#include "data/corpus/corpus.h"

#include <sys/stat.h>

#include <thread>

#include "data/corpus/documents.h"
#include "data/corpus/prepare.h"
#include "data/samples/token_stream.h"
#include "data/tokenizers/bpe_vocabulary.h"
#include "data/tokenizers/tokenizer.h"
#include "data/tokenizers/tokenizer_json.h"
#include "tests/data/compressed.h"
#include "tests/data/corpora.h"
#include "tests/data/scratch.h"

namespace megalith {
namespace {

namespace fs = std::filesystem;
using test::as_text;
using test::documents_in;
using test::gzipped;
using test::json_line;
using test::numbered;
using test::options_for;
using test::Scratch;
using test::Texts;
using test::xz_compressed;
using test::zstd_compressed;

TEST(Corpus, DocumentsOfEveryForm) {
  Scratch scratch;
  const std::string json = "\xef\xbb\xbf" + json_line("one\\nline \\u00e9\\ud83d\\ude00") + "\r\n  \n" +
                           "{\"text\": \"last counts: no\", \"text\": \"yes\"}\r\n" + json_line("") +
                           "{\"text\":\"no end\"}";
  const Texts of_json = {"one\nline \xc3\xa9\xf0\x9f\x98\x80", "yes", "no end"};
  const std::string text =
      "\xef\xbb\xbf<|endoftext|>first<|endoftext|><|endoftext|>\nsecond<|endoftex\n<|endoftext|>third";
  const Texts of_text = {"first", "\nsecond<|endoftex\n", "third"};
  for (const auto& [name, bytes, want] : {std::tuple{"a.jsonl", json, of_json},
                                          {"a.json", json, of_json},
                                          {"b.jsonl.gz", gzipped(json), of_json},
                                          {"c.json.zst", zstd_compressed(json), of_json},
                                          {"d.jsonl.xz", xz_compressed(json), of_json},
                                          {"a.txt", text, of_text},
                                          {"b.txt.gz", gzipped(text), of_text},
                                          {"c.txt.xz", xz_compressed(text), of_text},
                                          {"d.log", text, of_text}})
    for (const int64_t window : {1, 7, 20, 1000}) {
      PrepareOptions options = options_for({scratch.write(name, bytes)}, scratch.path("out"), 0);
      options.window_bytes = window;
      const PrepareReport report = prepare(options);
      EXPECT_EQ(documents_in(scratch.path("out/train.bin")), want) << name << " in windows of " << window;
      EXPECT_EQ(report.train.documents, 3);
      fs::remove_all(scratch.path("out"));
    }
  PrepareOptions options = options_for({scratch.path("a.txt")}, scratch.path("none"), 0);
  options.corpus.separator = "";
  options.special_texts = SpecialTexts::text;
  prepare(options);
  EXPECT_EQ(documents_in(scratch.path("none/train.bin")), Texts{text.substr(3)}) << "without the byte order mark";
  options = options_for({scratch.write("e.jsonl", "{\"body\": \"b\", \"text\": 1}\n")}, scratch.path("field"), 0);
  options.corpus.field = "body";
  prepare(options);
  EXPECT_EQ(documents_in(scratch.path("field/train.bin")), Texts{"b"});
}

TEST(Corpus, PipesOfBothKinds) {
  Scratch scratch;
  const std::string pipe = scratch.path("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  for (const bool json : {false, true})
    for (const double fraction : {0.0, 0.4}) {
      const std::string lines = (json ? "" : "\n") + json_line("abcdefghi\\n") + json_line("k");
      std::jthread writer([&] { std::ofstream(pipe, std::ios::binary) << lines; });
      PrepareOptions options = options_for({pipe}, scratch.path("out"), fraction);
      options.corpus.pipes_are_json = json;
      const PrepareReport report = prepare(options);
      EXPECT_EQ(report.train.documents, json ? 2 : 1);
      EXPECT_EQ(report.train.bytes + report.validation.bytes, json ? 11 : static_cast<int64_t>(lines.size()));
      EXPECT_EQ(report.validation.documents, fraction == 0 ? 0 : 1);
      fs::remove_all(scratch.path("out"));
    }
  PrepareOptions options = options_for({pipe}, scratch.path("out"), 0);
  options.tokenizer = "train:300";
  EXPECT_ERROR(prepare(options), "pipe is a pipe", "read only once", "write it into a file");
}

// Under a name that says nothing, and on a pipe whose field is not named.
TEST(Corpus, JsonLinesAreNotTakenForText) {
  Scratch scratch;
  const auto run = [&](const std::string& name, const std::string& bytes) {
    fs::remove_all(scratch.path("out"));
    prepare(options_for({scratch.write(name, bytes)}, scratch.path("out"), 0));
    return documents_in(scratch.path("out/train.bin"));
  };
  const std::string lines = json_line("a") + json_line("b"), longer = json_line(std::string(1000, 'a'));
  for (const std::string& bytes :
       {lines, "\xef\xbb\xbf" + lines, longer, gzipped(lines), std::string("{ \"t\\\"\" :1}\r\n")})
    EXPECT_ERROR(run("a.txt", bytes), "a.txt begins with a JSON object", ".jsonl", "--field text");
  EXPECT_EQ(run("a.ndjson", lines), (Texts{"a", "b"}));
  for (const std::string& text : {"\n" + lines, std::string("{\"a\": 1,\n\"b\": 2}\n"), std::string("{a: 1}\n"),
                                  std::string("{\"a\"}"), std::string("{{x}}")})
    EXPECT_EQ(run("a.txt", text), Texts{text});
  const std::string pipe = scratch.path("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::jthread writer([&] { std::ofstream(pipe, std::ios::binary) << lines; });
  EXPECT_ERROR(prepare(options_for({pipe}, scratch.path("of_pipe"), 0)), "pipe begins with a JSON object",
               "--field text");
}

// They become ids or text, or are refused, also where a window ends inside of one.
TEST(Corpus, SpecialTokensInTextsAreWhatTheOptionSays) {
  Scratch scratch;
  scratch.write("t/added_tokens.json", R"({"<|user|>": 257, "<|user|>>": 258})");
  make_bpe_tokenizer(bpe_of_bytes())->save(scratch.path("t"));
  const std::string text = "ab <|user|>hello, w<|user|>>x <|use <|endoftext|>|> <|user|><|user|>";
  const auto run = [&](const std::string& name, const std::string& bytes, SpecialTexts special, int64_t window) {
    fs::remove_all(scratch.path("out"));
    PrepareOptions options = options_for({scratch.write(name, bytes)}, scratch.path("out"), 0);
    options.tokenizer = scratch.path("t");
    options.corpus.separator = "";
    options.special_texts = special;
    options.window_bytes = window;
    return prepare(options);
  };
  const auto tokens = [&] {
    const TokenStream stream = TokenStream::open(scratch.path("out/train.bin"));
    std::vector<int32_t> all(static_cast<size_t>(stream.size()));
    stream.read(0, all);
    return all;
  };
  std::vector<int32_t> want;
  const auto add = [&](std::string_view part, int32_t id) {
    for (const char c : part) want.push_back(static_cast<uint8_t>(c));
    want.push_back(id);
  };
  add("ab ", 257);
  add("hello, w", 258);
  add("x <|use ", 256);
  add("|> ", 257);
  add("", 257);
  add("", 256);
  const std::string json = R"({"text": ")" + text + "\"}\n";
  for (const int64_t window : {1, 5, 8, 13, 1000})
    for (const auto& [name, bytes] : {std::pair{"a.txt", text}, {"a.jsonl", json}}) {
      const PrepareReport report = run(name, bytes, SpecialTexts::ids, window);
      EXPECT_EQ(tokens(), want) << name << " in windows of " << window;
      EXPECT_EQ(report.special_texts,
                (std::map<std::string, int64_t>{{"<|endoftext|>", 1}, {"<|user|>", 3}, {"<|user|>>", 1}}));
    }
  EXPECT_EQ(run("a.jsonl", json, SpecialTexts::text, 1000).special_texts.size(), 0u);
  EXPECT_EQ(tokens().size(), text.size() + 1);
  EXPECT_ERROR(run("a.jsonl", json, SpecialTexts::refuse, 1000),
               "a.jsonl has, in a document, the special token <|user|>", "`ab `",
               "--special-tokens ids encodes it as token 257", "--skip-bad");
  EXPECT_EQ(run("a.jsonl", json_line("good"), SpecialTexts::refuse, 1000).train.documents, 1);
  // A text alone, such as a prompt, likewise.
  const auto tokenizer = load_tokenizer(scratch.path("t"));
  const auto alone = [&](std::string_view prompt, SpecialTexts how) {
    std::vector<int32_t> ids;
    encode_with_specials(*tokenizer, prompt, ids, how, "prompt 3");
    return ids;
  };
  EXPECT_EQ(alone("a<|user|>", SpecialTexts::ids), (std::vector<int32_t>{'a', 257}));
  EXPECT_EQ(alone("a<|user|>", SpecialTexts::text).size(), 9u);
  EXPECT_EQ(alone("a<|use", SpecialTexts::refuse).size(), 6u);
  EXPECT_ERROR(alone("a<|user|>", SpecialTexts::refuse), "prompt 3 has the special token <|user|> written in the text",
               "after byte 1 and `a`", "--special-tokens ids encodes it as token 257");
}

TEST(Corpus, AFieldMayLieInOthers) {
  Scratch scratch;
  PrepareOptions options = options_for({scratch.write("a.jsonl",
                                                      "{\"data\": {\"text\": \"a\"}, \"data.text\": \"b\"}\n"
                                                      "{\"data\": {\"text\": \"no\", \"text\": \"c\"}}\n"
                                                      "{\"data\": {\"text\": \"no\"}, \"data\": {\"text\": \"d\"}}\n")},
                                       scratch.path("out"), 0);
  options.corpus.field = "data.text";
  prepare(options);
  EXPECT_EQ(documents_in(scratch.path("out/train.bin")), (Texts{"b", "c", "d"}));
  for (const char* line : {"{\"data\": \"text\"}\n", "{\"data\": {}}\n", "{\"text\": \"x\"}\n"}) {
    options.corpus.texts = {scratch.write("b.jsonl", line)};
    options.out = scratch.path("none");
    EXPECT_ERROR(prepare(options), "an object without \"data.text\"");
  }
  options.corpus.field = "data.text";
  options.corpus.texts = {scratch.write("b.jsonl", "{\"data\": {\"text\": 3}}\n")};
  EXPECT_ERROR(prepare(options), "\"data.text\" is not a string but a number");
}

TEST(Corpus, BadDocumentsAreNamedAndCanBeLeftOut) {
  Scratch scratch;
  const std::string good = as_text({"good", "better"});
  const auto run = [&](const std::string& name, const std::string& bytes, int64_t skip, int64_t window = 1 << 20) {
    fs::remove_all(scratch.path("out"));
    PrepareOptions options = options_for({scratch.write(name, bytes)}, scratch.path("out"), 0);
    options.skip_bad = skip;
    options.window_bytes = window;
    return prepare(options);
  };
  const std::string nul(1, '\0');
  EXPECT_ERROR(run("a.txt", good + "a\xe4\xb8", 0), "a.txt is not UTF-8 at byte 37 (0xe4)", "iconv", "--skip-bad");
  EXPECT_ERROR(run("a.txt", good + "\xff" + good, 0), "at byte 36 (0xff)");
  EXPECT_ERROR(run("a.txt", good + "123" + nul, 0), "NUL byte at byte 39");
  // Beyond the first batch, in a text cut into documents and into parts.
  for (const int64_t window : {40, 1 << 20}) {
    EXPECT_ERROR(run("a.txt", good + good + good + "1\xff", 0, window), "a.txt is not UTF-8 at byte 109 (0xff)");
    EXPECT_ERROR(run("a.txt", std::string(500, 'y') + "\xff", 0, window), "a.txt is not UTF-8 at byte 500 (0xff)");
    EXPECT_ERROR(run("a.txt", std::string(500, 'y') + nul, 0, window), "NUL byte at byte 500");
    EXPECT_ERROR(run("a.jsonl", json_line("x") + json_line("x") + "{}\n", 0, window), "line 3 (at byte 58)");
  }
  EXPECT_ERROR(run("a.jsonl", json_line("x") + "{\"text\": \"x\"\n", 0), "a.jsonl, line 2 (at byte 29) is not JSON",
               "--skip-bad N");
  EXPECT_ERROR(run("a.jsonl", json_line("x") + "\n{\"txt\": \"x\"}\n", 0), "line 3", "without \"text\"", "--field");
  EXPECT_ERROR(run("a.jsonl", "{\"text\": null}\n", 0), "line 1 ", "\"text\" is not a string");
  EXPECT_ERROR(run("a.jsonl", "{}\n[]\n", 1), "line 2 ", "an array of 0 instead of an object", "jq -c '.[]'");
  EXPECT_ERROR(run("a.json", "[{\"text\": \"a\"}, 7]\n", 0), "line 2 ", "a number instead of an object");
  EXPECT_ERROR(run("a.json", "[{\"text\": \"a\"}, {\"text\":", 0), "begins an array but does not end it");
  EXPECT_ERROR(run("a.jsonl", "\"a\"\n", 0), "a string instead of an object");
  EXPECT_ERROR(run("a.jsonl", "{\"text\": [\"a\", \"b\"]}\n", 0), "\"text\" is not a string but an array of 2");
  EXPECT_ERROR(run("a.jsonl", "{\"text\": {\"en\": \"b\"}}\n", 0), "\"text\" is not a string but an object");
  // Half of a pair alone, where another escape may stand before it.
  for (const char* half : {"\\ud83d", "\\uDE00", "\\\\\\ud83d\\u0041", "\\ud83d\\ud83d\\ude00"})
    EXPECT_ERROR(run("a.jsonl", json_line("x") + json_line(half), 0), "line 2 ", "half a character",
                 "the surrogate \\u");
  EXPECT_ERROR(run("a.jsonl", json_line("\\ud83d") + "{", 0), "surrogate \\ud83d", "\\ufffd");
  EXPECT_ERROR(run("a.jsonl", "{\"text\": \"\\ud83d\"\n", 0), "is not JSON");
  EXPECT_ERROR(run("a.jsonl", "{\n  \"text\": \"over two lines\"\n}\n", 0), "line 1 ", "one whole object");
  EXPECT_ERROR(run("a.jsonl", json_line("x\xff"), 0), "line 1 ", "not UTF-8: its byte 26 is 0xff");
  EXPECT_ERROR(run("a.jsonl", json_line("x\\u0000"), 0), "line 1 ", "NUL");
  EXPECT_FALSE(fs::exists(scratch.path("out")));

  const std::string three_bad = json_line("a") + "{\n" + json_line("b") + "{}\n[1]\n" + json_line("c");
  for (const int64_t window : {10, 1 << 20}) {
    const PrepareReport report = run("a.jsonl", three_bad, 3, window);
    EXPECT_EQ(documents_in(scratch.path("out/train.bin")), (Texts{"a", "b", "c"}));
    EXPECT_EQ(report.bad_documents, 3);
    EXPECT_NE(report.first_bad.find("line 2"), std::string::npos) << report.first_bad;
  }
  EXPECT_ERROR(run("a.jsonl", three_bad, 2), "line 5", "bad document 3", "--skip-bad 2");

  // A document of many windows that turns out to be bad in its last, then in its first.
  const std::string many(3000, 'y');
  for (const std::string& bad : {many + "\xff", "\xff" + many, many + "\xff" + many})
    for (const int64_t window : {100, 1000}) {
      EXPECT_EQ(run("a.txt", as_text({"a", bad, "b", many}), 1, window).bad_documents, 1);
      EXPECT_EQ(documents_in(scratch.path("out/train.bin")), (Texts{"a", "b", many}));
    }
  EXPECT_ERROR(run("a.jsonl", "{}\n", 1), "no document to train on", "line 1");
}

TEST(Corpus, ShardsEndWithDocuments) {
  Scratch scratch;
  const std::string text = scratch.write("a.txt", as_text(numbered(500, 0)));
  PrepareOptions options = options_for({text}, scratch.path("whole"), 0.1);
  prepare(options);
  options.out = scratch.path("shards");
  options.shard_tokens = 3000;
  const PrepareReport report = prepare(options);
  for (const std::string part : {"train", "validation"}) {
    const Texts whole = documents_in(scratch.path("whole/" + part + ".bin"));
    Texts joined;
    int shard = 0;
    for (std::string path; fs::exists(path = scratch.path(fmt::format("shards/{}-{:05}.bin", part, shard))); shard++) {
      const Texts here = documents_in(path);
      joined.insert(joined.end(), here.begin(), here.end());
      const auto tokens = static_cast<int64_t>(TokenStream::open(path).size());
      EXPECT_LT(tokens - static_cast<int64_t>(here.back().size()) - 1, 3000) << path;
      if (joined.size() < whole.size()) {
        EXPECT_GE(tokens, 3000) << path;
      }
    }
    EXPECT_GT(shard, part == "train" ? 4 : 0);
    EXPECT_EQ(joined, whole);
  }
  EXPECT_EQ(report.train.documents, static_cast<int64_t>(documents_in(scratch.path("whole/train.bin")).size()));
  EXPECT_FALSE(fs::exists(scratch.path("shards/train.bin")));
  EXPECT_FALSE(fs::exists(scratch.path("shards/train-00000.lengths")));
  EXPECT_TRUE(prepare(options).was_made);
}

// Its beginning was written into a shard of its own when its end turned out to be bad.
TEST(Corpus, AShardWhoseOnlyDocumentIsLeftOutIsNone) {
  Scratch scratch;
  const std::string good(120, 'a'), bad = std::string(3000, 'y') + "\xff";
  PrepareOptions options = options_for({scratch.write("a.txt", as_text({good, bad}))}, scratch.path("out"), 0);
  options.window_bytes = 100;
  options.shard_tokens = 100;
  options.skip_bad = 1;
  EXPECT_EQ(prepare(options).train.documents, 1);
  EXPECT_EQ(documents_in(scratch.path("out/train-00000.bin")), Texts{good});
  EXPECT_FALSE(fs::exists(scratch.path("out/train-00001.bin"))) << "a file without tokens, which training refuses";
}

TEST(Corpus, TheMostCommonTokensAreTold) {
  Scratch scratch;
  const PrepareReport report =
      prepare(options_for({scratch.write("a.txt", as_text({"aaaaa", "aab"}))}, scratch.path("out"), 0));
  ASSERT_EQ(report.most_common.size(), 3u);
  EXPECT_EQ(report.most_common[0].text, "a");
  EXPECT_DOUBLE_EQ(report.most_common[0].share, 0.7);
  EXPECT_EQ(report.most_common[1].text, "<|endoftext|>");
  EXPECT_EQ(report.most_common[2].text, "b");
}

TEST(Corpus, TokensAbove65535Survive) {
  Scratch scratch;
  BpeVocabulary vocabulary;
  for (int byte = 0; byte < 256; byte++) {
    vocabulary.byte_ids[static_cast<size_t>(byte)] = byte;
    vocabulary.tokens.emplace_back(1, static_cast<char>(byte));
  }
  for (int i = 0; i < 70'000; i++) vocabulary.tokens.push_back(fmt::format("filler {}", i));
  vocabulary.merges.push_back({'a', 'b', static_cast<int32_t>(vocabulary.tokens.size())});
  vocabulary.tokens.emplace_back("ab");
  vocabulary.end_of_text = static_cast<int32_t>(vocabulary.tokens.size());
  vocabulary.tokens.emplace_back();
  fs::create_directories(scratch.path("bpe"));
  make_bpe_tokenizer(vocabulary)->save(scratch.path("bpe"));
  PrepareOptions options =
      options_for({scratch.write("a.jsonl", json_line("abba") + json_line("ab"))}, scratch.path("out"), 0);
  options.tokenizer = scratch.path("bpe");
  EXPECT_EQ(prepare(options).bytes_per_token, 4);
  std::vector<int32_t> ids(6);
  TokenStream::open(scratch.path("out/train.bin")).read(0, ids);
  EXPECT_EQ(ids, (std::vector<int32_t>{70256, 'b', 'a', 70257, 70256, 70257}));
}

}  // namespace
}  // namespace megalith
