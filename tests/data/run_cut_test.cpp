// Runs that no pattern cuts: cut all the same, into the ids of the whole, in little memory.
#include "data/tokenizers/run_cut.h"

#include <sys/resource.h>
#include <sys/wait.h>

#include "data/corpus/prepare.h"
#include "data/samples/token_stream.h"
#include "data/tokenizers/tokenizer.h"
#include "data/tokenizers/tokenizer_json.h"
#include "tests/data/scratch.h"
#include "tests/data/small_tokenizers.h"
#include "tests/long_tests.h"

namespace megalith {
namespace {

using test::Scratch;

// A vocabulary of random merges over a few bytes, in an order that no training would give: later merges may make what
// earlier ones take, and unless `each_once` several make the same bytes.
BpeVocabulary random_vocabulary(unsigned seed, size_t merges, bool each_once = false) {
  BpeVocabulary vocabulary;
  for (int byte = 0; byte < 256; byte++) {
    vocabulary.byte_ids[static_cast<size_t>(byte)] = byte;
    vocabulary.tokens.emplace_back(1, static_cast<char>(byte));
  }
  std::mt19937 random(seed);
  std::vector<int32_t> parts = {'a', 'b', 'c', ' ', 0xc3, 0xa9};
  std::set<std::pair<int32_t, int32_t>> known;
  while (vocabulary.merges.size() < merges) {
    const int32_t left = parts[random() % parts.size()], right = parts[random() % parts.size()];
    const std::string token =
        vocabulary.tokens[static_cast<size_t>(left)] + vocabulary.tokens[static_cast<size_t>(right)];
    if (token.size() > 12 || !known.insert({left, right}).second) continue;
    if (each_once && std::ranges::find(vocabulary.tokens, token) != vocabulary.tokens.end()) continue;
    const auto result = static_cast<int32_t>(vocabulary.tokens.size());
    vocabulary.tokens.push_back(token);
    parts.push_back(result);
    vocabulary.merges.push_back({left, right, result});
  }
  std::shuffle(vocabulary.merges.begin(), vocabulary.merges.end(), random);
  vocabulary.end_of_text = static_cast<int32_t>(vocabulary.tokens.size());
  vocabulary.tokens.emplace_back();
  return vocabulary;
}

std::string random_run(std::mt19937& random, size_t bytes) {
  static const std::vector<std::string> letters = {"a", "b", "c", "\xc3\xa9"};
  const unsigned kinds = 1 + random() % 4, period = 1 + random() % 9;
  std::string run, unit;
  for (unsigned i = 0; i < period; i++) unit += letters[random() % kinds];
  while (run.size() < bytes) run += random() % 20 ? unit : letters[random() % kinds];
  return run;
}

// Whatever follows, with the plain merger as the law.
TEST(RunCut, changesNoIdWhateverFollows) {
  int found = 0, wanted = 0;
  for (unsigned seed = 0; seed < taken("RunCut.changesNoIdWhateverFollows"); seed++) {
    const BpeVocabulary vocabulary = random_vocabulary(seed, 5 + seed % 60);
    const MergeTable table(vocabulary);
    const RunCut run_cut(vocabulary, table);
    BpeMerger merger(table);
    std::mt19937 random(seed);
    const std::string run = random_run(random, 70 + random() % 400);
    std::vector<int32_t> head;
    const size_t cut = run_cut.find(run, head);
    wanted++;
    if (cut == 0) continue;
    found++;
    for (int k = 0; k < 6; k++) {
      const std::string more = k == 0 ? "" : random_run(random, random() % 200);
      std::vector<int32_t> whole, parts = head;
      merger.merge(run + more, whole);
      merger.merge((run + more).substr(cut), parts);
      ASSERT_EQ(parts, whole) << "seed " << seed << ", cut " << cut;
      whole.clear();
      merger.merge(run.substr(0, cut), whole);
      ASSERT_EQ(head, whole);
    }
  }
  EXPECT_GT(found, wanted / 2);
}

// As tokenizers cut texts: the run may end, with a blank, an apostrophe or another class.
TEST(RunCut, theTokenizersCutChangesNoId) {
  int in_runs = 0;
  for (unsigned seed = 0; seed < taken("RunCut.theTokenizersCutChangesNoId"); seed++) {
    const auto tokenizer = make_bpe_tokenizer(random_vocabulary(seed, 5 + seed % 60, true));
    std::mt19937 random(seed);
    const std::vector<std::string> begins = {"", " ", "  ", "'", "\n", "\n\n", " \n", "\xc2\x85\xc2\x85"};
    std::string text = begins[random() % begins.size()];
    const unsigned kind = random() % 3;
    const size_t bytes = 150 + random() % 300;
    if (kind == 0) text += random_run(random, bytes);
    while (text.size() < bytes) text += kind == 1 ? (random() % 3 ? " " : "\n") : (random() % 3 ? "!" : "'");
    const size_t cut = tokenizer->last_cut(text);
    if (cut == 0) continue;
    in_runs += cut > 20;
    for (const std::string more :
         {"", "a", " ", " a", "'s", "s", "\xa9", "\n", "1", "!", "aaaaaaaaaaaaaaa", "       "}) {
      std::vector<int32_t> whole, parts;
      tokenizer->encode(text + more, whole);
      tokenizer->encode(text.substr(0, cut), parts);
      tokenizer->encode((text + more).substr(cut), parts);
      ASSERT_EQ(parts, whole) << "seed " << seed << ", cut " << cut << " of '" << text << "' + '" << more << "'";
    }
  }
  EXPECT_GT(in_runs, 15);
}

// GPT-2's own file looks for the end of a text in the normalized text: a cut is never inside of it.
TEST(RunCut, aRunBehindASpecialTokenIsCutBehindIt) {
  const BpeVocabulary vocabulary = random_vocabulary(3, 20, true);
  const Scratch scratch;
  scratch.write("made/kept", "");
  make_bpe_tokenizer(vocabulary)->save_for_transformers(scratch.path("made"), 8, "");
  nlohmann::json file = nlohmann::json::parse(read_file(scratch.path("made/tokenizer.json")));
  nlohmann::json user = file["added_tokens"][0];
  user["content"] = "<s";
  user["id"] = vocabulary.tokens.size();
  file["added_tokens"].push_back(user);
  for (const bool normalized : {false, true}) {
    for (nlohmann::json& token : file["added_tokens"]) token["normalized"] = normalized;
    scratch.write("t/tokenizer.json", file.dump());
    const auto tokenizer = load_tokenizer(scratch.path("t"));
    const Tokenizer& finds = *tokenizer->with_specials();
    int found = 0;
    for (unsigned seed = 0; seed < 20; seed++) {
      std::mt19937 random(seed);
      const std::string begin = seed % 2 ? "ab <|endoftext|>" : "ab <s", text = begin + random_run(random, 400);
      const size_t cut = finds.last_cut(text);
      found += cut > begin.size();
      for (const std::string more : {"", "a", " b", "<|endoftext|>"}) {
        std::vector<int32_t> whole, parts;
        finds.encode(text + more, whole);
        finds.encode(text.substr(0, cut), parts);
        finds.encoder()->encode_rest((text + more).substr(cut), parts);
        ASSERT_EQ(parts, whole) << "seed " << seed << ", cut " << cut << ", normalized " << normalized;
      }
    }
    EXPECT_GT(found, 10) << "normalized " << normalized;
  }
}

TEST(RunCut, aLongPreTokenIsEncodedAsTheMergerWould) {
  SKIP_WITHOUT_GPT2();
  const BpeVocabulary vocabulary = small_tokenizers::gpt2_vocabulary();
  const MergeTable table(vocabulary);
  const auto tokenizer = make_bpe_tokenizer(vocabulary);
  std::mt19937 random(7);
  for (const size_t letters : {1u, 3u, 26u}) {
    std::string run;
    while (run.size() < 300'000) run += static_cast<char>('a' + random() % letters);
    std::vector<int32_t> ids, plain;
    tokenizer->encode(run, ids);
    BpeMerger(table).merge(run, plain);
    EXPECT_TRUE(ids == plain) << letters << " letters";
  }
}

PrepareOptions one_text(const std::string& text, const std::string& tokenizer, const std::string& out) {
  PrepareOptions options;
  options.corpus.texts = {text};
  options.corpus.validation_fraction = 0;
  options.tokenizer = tokenizer;
  options.out = out;
  options.threads = 1;
  return options;
}

TEST(RunCut, aTextWithoutAPlaceToCutIsPreparedInWindows) {
  SKIP_WITHOUT_GPT2();
  const auto tokenizer = load_tokenizer(test::gpt2_folder());
  for (const std::string unit : {"a", " ", "=", "\xd0\xb6", "ab7"}) {
    const Scratch scratch;
    std::string text;
    while (text.size() < 20'000) text += unit;
    PrepareOptions options = one_text(scratch.write("text.txt", text), test::gpt2_folder(), scratch.path("out"));
    options.window_bytes = 5000;
    prepare(options);
    std::vector<int32_t> want;
    tokenizer->encode(text, want);
    want.push_back(tokenizer->end_of_text());
    const TokenStream stream = TokenStream::open(scratch.path("out/train.bin"));
    std::vector<int32_t> tokens(static_cast<size_t>(stream.size()));
    stream.read(0, tokens);
    EXPECT_TRUE(tokens == want) << "of '" << unit << "'";
  }
}

// Where tokens are too long for that, it says where, and what to do.
TEST(RunCut, whatCannotBeCutIsNamed) {
  const Scratch scratch;
  BpeVocabulary vocabulary = random_vocabulary(1, 0);
  vocabulary.tokens.pop_back();
  for (int32_t left = 'a'; vocabulary.tokens.back().size() <= RunCut::longest_token;) {
    const auto result = static_cast<int32_t>(vocabulary.tokens.size());
    vocabulary.tokens.push_back(vocabulary.tokens[static_cast<size_t>(left)] +
                                vocabulary.tokens[static_cast<size_t>(left)]);
    vocabulary.merges.push_back({left, left, result});
    left = result;
  }
  vocabulary.end_of_text = static_cast<int32_t>(vocabulary.tokens.size());
  vocabulary.tokens.emplace_back();
  std::filesystem::create_directories(scratch.path("bpe"));
  make_bpe_tokenizer(vocabulary)->save(scratch.path("bpe"));
  const std::string text =
      scratch.write("text.txt", "one! " + std::string(static_cast<size_t>(longest_uncut) + 9, 'a'));
  EXPECT_ERROR(prepare(one_text(text, scratch.path("bpe"), scratch.path("out"))), "text.txt, from byte 4 on",
               "8388608 bytes", "insert spaces or line breaks");
  EXPECT_FALSE(std::filesystem::exists(scratch.path("out")));
}

// Sixty million letters, in a process of its own: what it takes at its most.
TEST(RunCut, sixtyMillionLettersTakeLittleMemory) {
  SKIP_WITHOUT_GPT2();
#if MEGALITH_SANITIZED
  GTEST_SKIP() << "the sanitizers' memory is not the program's";
#endif
  const Scratch scratch;
  const auto bytes = static_cast<size_t>(taken("RunCut.sixtyMillionLettersTakeLittleMemory"));
  const std::string text = scratch.write("text.txt", std::string(bytes, 'a'));
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    prepare(one_text(text, test::gpt2_folder(), scratch.path("out")));
    ::_exit(0);
  }
  int status = 0;
  rusage used{};
  ASSERT_EQ(::wait4(child, &status, 0, &used), child);
  ASSERT_EQ(status, 0);
  rusage mine{};
  ::getrusage(RUSAGE_SELF, &mine);
  EXPECT_LT(used.ru_maxrss - mine.ru_maxrss, 100 << 10) << "KiB";
}

}  // namespace
}  // namespace megalith
