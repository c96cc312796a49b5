#include <array>
#include <filesystem>

#include "data/tokenizers/bpe_vocabulary.h"
#include "data/tokenizers/tokenizer.h"
#include "data/tokenizers/tokenizer_json.h"
#include "kernels/system/files.h"

namespace megalith {

namespace {

class ByteEncoder final : public Encoder {
 public:
  void encode(std::string_view text, std::vector<int32_t>& out) override {
    out.reserve(out.size() + text.size());
    for (const char byte : text) out.push_back(static_cast<uint8_t>(byte));
  }
  void encode_places(std::string_view text, std::vector<int32_t>& out, std::vector<TextRange>& places) override {
    encode(text, out);
    for (size_t i = 0; i < text.size(); i++) places.push_back({i, i + 1});
  }
};

class ByteTokenizer final : public Tokenizer {
 public:
  ByteTokenizer() {
    for (size_t i = 0; i < bytes_.size(); i++) bytes_[i] = static_cast<char>(i);
  }

  int32_t vocab_size() const override { return end_of_text() + 1; }
  int32_t end_of_text() const override { return static_cast<int32_t>(bytes_.size()); }
  std::unique_ptr<Encoder> encoder() const override { return std::make_unique<ByteEncoder>(); }
  size_t last_cut(std::string_view text) const override { return text.size(); }

  // The same name as in the tokenizer.json of an export.
  std::vector<SpecialToken> special_tokens() const override { return {{std::string(end_of_text_name), end_of_text()}}; }

  std::string_view token_bytes(int32_t id) const override {
    CHECK(id >= 0 && id < vocab_size(), "token {} of a vocabulary of {}", id, vocab_size());
    if (id == end_of_text()) return {};
    return {&bytes_[static_cast<size_t>(id)], 1};
  }

  std::string content() const override { return "bytes"; }

  void save(const std::string& folder) const override {
    write_file((std::filesystem::path(folder) / byte_tokenizer_file).string(),
               "Ids 0 to 255 are the bytes of the text, 256 is its end.\n");
  }

  void save_for_transformers(const std::string& folder, int64_t context, const std::string& jinja) const override {
    make_bpe_tokenizer(bpe_of_bytes())->save_for_transformers(folder, context, jinja);
  }

 private:
  std::array<char, 256> bytes_;
};

}  // namespace

std::unique_ptr<Tokenizer> make_byte_tokenizer() { return std::make_unique<ByteTokenizer>(); }

}  // namespace megalith
