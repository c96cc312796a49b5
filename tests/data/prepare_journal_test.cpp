// What prepare notes comes back as it was, and what has changed since is named.
#include "data/corpus/prepare_journal.h"

#include <gtest/gtest.h>

namespace megalith {
namespace {

TEST(PrepareJournal, ComesBackAsItWas) {
  const PreparePosition position{
      .text = {.input = 1,
               .offset = 20,
               .lines = 3,
               .in_document = true,
               .for_validation = true,
               .in_end = true,
               .document_begin = 4},
      .train = {.shard = 5, .written = {6, 7, 8}, .documents = 9, .tokens = 10, .bytes = 11, .open_bytes = 12},
      .validation =
          {.shard = 13, .written = {14, 15, 16}, .documents = 17, .tokens = 18, .bytes = 19, .open_bytes = 20},
      .in_bad_document = true,
      .bad_documents = 21,
      .first_bad = "not \xff"};
  EXPECT_TRUE(position_from(to_json(position)) == position);

  const PrepareBegun begun{.of = {{"texts", nlohmann::json::array()}},
                           .rule = ValidationSplit::Rule::ends,
                           .sizes = {{{0, 0}, 5}, {{1, 0}, 6}, {{1, 7}, 8}}};
  const PrepareBegun again = begun_from(to_json(begun));
  EXPECT_EQ(again.of, begun.of);
  EXPECT_EQ(again.rule, begun.rule);
  EXPECT_EQ(again.sizes, begun.sizes);

  const PrepareMade made{.names = {"train.bin", "train.idx"},
                         .report = {.train = {.documents = 1, .bytes = 2, .tokens = 3},
                                    .validation = {.documents = 4, .bytes = 5, .tokens = 6},
                                    .vocab_size = 7,
                                    .bytes_per_token = 2,
                                    .rule = ValidationSplit::Rule::documents,
                                    .most_common = {{"\xff", 0.5}, {"a", 0.25}},
                                    .bad_documents = 8,
                                    .first_bad = "bad"}};
  const PrepareMade back = made_from(to_json(made));
  EXPECT_EQ(back.names, made.names);
  EXPECT_EQ(back.report.train.tokens, 3);
  EXPECT_EQ(back.report.validation.bytes, 5);
  EXPECT_EQ(to_json(back), to_json(made));
}

TEST(PrepareJournal, NamesWhatIsAnother) {
  PrepareOptions options;
  options.tokenizer = "bytes";
  const std::vector<TextInput> inputs(1);
  const nlohmann::json before = made_of(options, inputs, nullptr);
  EXPECT_EQ(difference_of(before, before), "");
  const auto said = [&](const std::function<void(PrepareOptions&)>& change) {
    PrepareOptions other = options;
    change(other);
    return difference_of(before, made_of(other, inputs, nullptr));
  };
  EXPECT_EQ(said([](PrepareOptions& o) { o.tokenizer = "train:300"; }), "--tokenizer is another");
  EXPECT_EQ(said([](PrepareOptions& o) { o.corpus.separator = "\n"; }), "--separator is another");
  EXPECT_EQ(said([](PrepareOptions& o) { o.corpus.field = "body"; }), "--field is another");
  EXPECT_EQ(said([](PrepareOptions& o) { o.corpus.validation_fraction = 0.5; }), "--validation is another");
  EXPECT_EQ(said([](PrepareOptions& o) { o.shard_tokens = 1000; }), "--shard-tokens is another");
  EXPECT_EQ(said([](PrepareOptions& o) { o.threads = 3, o.skip_bad = 4, o.window_bytes = 5; }), "");
}

}  // namespace
}  // namespace megalith
