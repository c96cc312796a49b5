#include "data/tokenizers/bpe_tokenizer.h"

#include "data/tokenizers/bpe_merger.h"
#include "data/tokenizers/pretoken_cache.h"
#include "data/tokenizers/pretokenizer.h"
#include "data/tokenizers/run_cut.h"
#include "data/tokenizers/tokenizer_json.h"
#include "kernels/system/check.h"

namespace megalith {

namespace {

constexpr size_t longest_at_once = 256 << 10;

class BpeEncoder final : public Encoder {
 public:
  BpeEncoder(const Pretokenizer& pretokenizer, const MergeTable& table, const RunCut& run_cut,
             const std::vector<std::string>& tokens)
      : pretokenizer_(pretokenizer), run_cut_(run_cut), tokens_(tokens), merger_(table) {}

  void encode(std::string_view text, std::vector<int32_t>& out) override {
    while (!text.empty()) {
      const size_t length = pretokenizer_.first_pretoken(text);
      encode_pretoken(text.substr(0, length), out);
      text.remove_prefix(length);
    }
  }

  void encode_places(std::string_view text, std::vector<int32_t>& out, std::vector<TextRange>& places) override {
    size_t first = out.size(), at = 0;
    encode(text, out);
    for (; first < out.size(); first++) {
      const size_t end = at + tokens_[static_cast<size_t>(out[first])].size();
      places.push_back({at, end});
      at = end;
    }
  }

 private:
  void encode_pretoken(std::string_view pretoken, std::vector<int32_t>& out) {
    if (pretoken.size() > longest_at_once) return encode_run(pretoken, out);
    if (pretoken.size() > PretokenCache::longest_pretoken) return merger_.merge(pretoken, out);
    const PretokenCache::Key key = PretokenCache::key_of(pretoken);
    const auto known = cache_.find(key);
    if (!known.empty()) {
      out.insert(out.end(), known.begin(), known.end());
      return;
    }
    const size_t before = out.size();
    merger_.merge(pretoken, out);
    cache_.keep(key, std::span<const int32_t>(out).subspan(before));
  }

  // Encodes a pre-token of any length in little memory, cut where it can be.
  void encode_run(std::string_view pretoken, std::vector<int32_t>& out) {
    std::vector<int32_t> ids;
    for (size_t window = longest_at_once; pretoken.size() > window;) {
      const size_t cut = run_cut_.find(pretoken.substr(0, window), ids);
      if (cut == 0) {
        window *= 2;
        continue;
      }
      out.insert(out.end(), ids.begin(), ids.end());
      pretoken.remove_prefix(cut);
      window = longest_at_once;
    }
    merger_.merge(pretoken, out);
  }

  const Pretokenizer& pretokenizer_;
  const RunCut& run_cut_;
  const std::vector<std::string>& tokens_;
  BpeMerger merger_;
  PretokenCache cache_;
};

class BpeTokenizer final : public Tokenizer {
 public:
  explicit BpeTokenizer(BpeVocabulary vocabulary)
      : vocabulary_(std::move(vocabulary)), table_(vocabulary_), run_cut_(vocabulary_, table_) {}

  int32_t vocab_size() const override { return static_cast<int32_t>(vocabulary_.tokens.size()); }
  int32_t end_of_text() const override { return vocabulary_.end_of_text; }
  std::unique_ptr<Encoder> encoder() const override {
    return std::make_unique<BpeEncoder>(pretokenizer_, table_, run_cut_, vocabulary_.tokens);
  }

  size_t last_cut(std::string_view text) const override {
    if (const size_t cut = pretokenizer_.last_cut(text)) return cut;
    // A long pre-token, perhaps after a few short ones, whose ends do not depend on what follows.
    size_t cut = 0, begin = 0, before = 0;  // of the long pre-token and of the one before it
    for (std::string_view rest = text; !rest.empty(); rest = text.substr(begin)) {
      const size_t length = pretokenizer_.first_pretoken(rest);
      if (length + RunCut::end_known_late >= rest.size()) break;
      // Trailing blanks are one pre-token, which may become two when text follows.
      const size_t end = begin + length;
      if (begin == 0 || pretokenizer_.first_pretoken(text.substr(before, end - before)) == begin - before) cut = end;
      before = begin;
      begin = end;
    }
    if (cut > 0) return cut;
    std::vector<int32_t> ids;
    const size_t in_run = run_cut_.find(text.substr(begin), ids);
    return in_run > 0 ? begin + in_run : 0;
  }
  void save(const std::string& folder) const override { write_tokenizer(vocabulary_, folder); }
  std::string content() const override {
    static const std::string of_bytes = content_of(bpe_of_bytes());
    const std::string content = content_of(vocabulary_);
    return content == of_bytes ? make_byte_tokenizer()->content() : content;
  }
  void save_for_transformers(const std::string& folder, int64_t context, const std::string& jinja) const override {
    write_for_transformers(vocabulary_, context, jinja, folder);
  }
  const TokenUse& use() const override { return vocabulary_.use; }

  std::vector<SpecialToken> special_tokens() const override {
    std::vector<SpecialToken> all{{vocabulary_.end_name, vocabulary_.end_of_text}};
    for (const int32_t id : vocabulary_.specials) all.push_back({vocabulary_.tokens[static_cast<size_t>(id)], id});
    return all;
  }

  std::string_view token_bytes(int32_t id) const override {
    CHECK(id >= 0 && id < vocab_size(), "token {} of a vocabulary of {}", id, vocab_size());
    return vocabulary_.tokens[static_cast<size_t>(id)];
  }

 private:
  BpeVocabulary vocabulary_;
  MergeTable table_;
  RunCut run_cut_;
  Pretokenizer pretokenizer_;
};

}  // namespace

std::unique_ptr<Tokenizer> make_bpe_tokenizer(BpeVocabulary vocabulary) {
  return std::make_unique<BpeTokenizer>(std::move(vocabulary));
}

}  // namespace megalith
