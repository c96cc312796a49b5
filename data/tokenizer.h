// A Tokenizer maps bytes to token ids and back. It accepts any bytes, and decode(encode(text)) == text always. Special
// tokens in a text are encoded as plain text; special_text.h encodes them as ids.
//
// There are two kinds: bytes (ids 0..255 are the bytes, 256 ends a text) and byte-level BPE in GPT-2's formats
// (tokenizer.json, or vocab.json and merges.txt, with Hugging Face's names and notation; "<|endoftext|>" ends a text).
//
// A Tokenizer is immutable: any number of threads may call it at once. An Encoder is the fast way to encode much text:
// it caches pre-tokens, belongs to one thread, and refers to its Tokenizer, which must outlive it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/bpe_vocabulary.h"

namespace megalith {

class Encoder {
 public:
  virtual ~Encoder() = default;
  // Appends the ids of text to out.
  virtual void encode(std::string_view text, std::vector<int32_t>& out) = 0;
};

struct SpecialToken {
  std::string text;
  int32_t id;
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Ids are 0 .. vocab_size() - 1; end_of_text() is one of them, which encode never makes.
  virtual int32_t vocab_size() const = 0;
  virtual int32_t end_of_text() const = 0;
  virtual std::unique_ptr<Encoder> encoder() const = 0;

  // Returns an id's bytes, valid as long as the tokenizer; empty for the end of a text. Error for other ids.
  virtual std::string_view token_bytes(int32_t id) const = 0;

  // Returns where a text larger than memory may be cut: a c <= text.size() such that encode(text + more) ==
  // encode(text[0..c)) + encode(text[c..) + more) for every `more`. It is late, but not always the last; 0 if none is
  // found, which a longer text may change.
  virtual size_t last_cut(std::string_view text) const = 0;

  // Writes the files that load_tokenizer reads into an existing folder, each synced to the disk; overwrites none.
  virtual void save(const std::string& folder) const = 0;

  // Serializes all that decides a text's ids: equal for equal tokenizers, whatever files they were read from.
  virtual std::string content() const = 0;

  // Returns the tokens that have a text of their own, and the end of a text if it has one.
  virtual std::vector<SpecialToken> special_tokens() const { return {}; }

  // Returns a byte-level BPE that makes the same ids.
  virtual BpeVocabulary as_bpe() const = 0;

  // Appends the ids of text to out. For much text use an Encoder.
  void encode(std::string_view text, std::vector<int32_t>& out) const { encoder()->encode(text, out); }
  std::string decode(std::span<const int32_t> ids) const;
};

std::unique_ptr<Tokenizer> make_byte_tokenizer();

// A folder with this file is a byte tokenizer, whatever the file says.
constexpr const char* byte_tokenizer_file = "bytes.txt";

// Reads a folder that save() wrote, or a Hugging Face folder: its tokenizer.json (tokenizer_json.h) or, without one,
// its vocab.json and merges.txt. Errors: no such folder or files, malformed JSON, ids that are not 0..V-1, a merge of
// unknown tokens, anything that GPT-2 does differently.
std::unique_ptr<Tokenizer> load_tokenizer(const std::string& folder);

// Returns the files of a folder that load_tokenizer may read.
std::vector<std::string> tokenizer_files(const std::string& folder);

}  // namespace megalith
