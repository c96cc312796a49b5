// A Tokenizer maps bytes to token ids and back. It accepts any bytes. Special tokens in a text are encoded as plain
// text; special_text.h encodes them as ids.
//
// There are two kinds. The byte tokenizer: ids 0..255 are the bytes, 256 is end_of_text. And the BPE of a
// tokenizer.json, or of a vocab.json with a merges.txt (pipeline_tokenizer.h): it may change a text, as by NFC, and
// decodes as Hugging Face's library does. For the byte tokenizer, and for a BPE whose parts are GPT-2's,
// decode(encode(text)) == text always.
//
// A Tokenizer is immutable: any number of threads may call it at once. An Encoder is the fast way to encode much text:
// it caches pre-tokens, is for one thread, and refers to its Tokenizer, which must outlive it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace megalith {

// Bytes [begin, end) of a text.
struct TextRange {
  size_t begin, end;
  bool operator==(const TextRange&) const = default;
};

class Encoder {
 public:
  virtual ~Encoder() = default;
  // Appends the ids of text to out.
  virtual void encode(std::string_view text, std::vector<int32_t>& out) = 0;
  // As encode(), and appends the place of each token in the text. Places ascend; where the tokenizer rewrites
  // characters, each token of the rewritten stretch has the whole stretch as its place. Error: the tokenizer changes
  // the text in a way that hides which characters a token stands for.
  virtual void encode_places(std::string_view text, std::vector<int32_t>& out, std::vector<TextRange>& places) = 0;
  // As above, for a text that is preceded by an added token.
  virtual void encode_places_inside(std::string_view text, std::vector<int32_t>& out, std::vector<TextRange>& places) {
    encode_places(text, out, places);
  }
  // As encode(), for a text that continues after a cut (Tokenizer::last_cut).
  virtual void encode_rest(std::string_view text, std::vector<int32_t>& out) { encode(text, out); }
};

struct SpecialToken {
  std::string text;
  int32_t id;
};

// Settings of the files next to a vocabulary that do not change any text's ids.
struct TokenUse {
  // Texts of special tokens by role: "bos_token", "eos_token", "pad_token" and the like.
  std::map<std::string, std::string> roles;
  std::string jinja;  // the chat template that `transformers` uses for the folder (chat_template_jinja.h); empty: none
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Ids are 0 .. vocab_size() - 1. encode never returns end_of_text(), which is one of them.
  virtual int32_t vocab_size() const = 0;
  virtual int32_t end_of_text() const = 0;
  virtual std::unique_ptr<Encoder> encoder() const = 0;

  // Returns an id's bytes inside a text, valid as long as the tokenizer; empty for end_of_text and for the tokens that
  // begin and end every text. Error for other ids.
  virtual std::string_view token_bytes(int32_t id) const = 0;
  // Returns a token's name for messages.
  virtual std::string token_name(int32_t id) const;

  // Returns the ids that the tokenizer adds before and after every text. Encoders leave them out.
  virtual std::vector<int32_t> beginning() const { return {}; }
  virtual std::vector<int32_t> ending() const { return {}; }

  // Returns where a text larger than memory may be cut: a c <= text.size() such that encode(text + more) ==
  // encode(text[0..c)) + encode_rest(text[c..) + more) for every `more`. It is late, but not always the last such
  // place. Returns 0 if no place is found; a longer text may have one. Some tokenizers have no cut, or only after an
  // added token: those whose normalizer does more than NFC or replacing characters, those that join what they cut, and
  // those with an added token that is not found inside words.
  virtual size_t last_cut(std::string_view text) const = 0;

  // Writes the files that load_tokenizer reads into an existing folder, each synced to the disk; overwrites none.
  virtual void save(const std::string& folder) const = 0;

  // Serializes everything that determines a text's ids: equal for equal tokenizers, whatever files they were read from.
  virtual std::string content() const = 0;

  // Returns the tokens that have a text of their own, and end_of_text if it has one.
  virtual std::vector<SpecialToken> special_tokens() const { return {}; }

  virtual const TokenUse& use() const;

  // Returns this tokenizer as one that encodes special tokens as ids, valid as long as this one. Null: use
  // special_text.h to find them.
  virtual const Tokenizer* with_specials() const { return nullptr; }

  // Writes the files that `transformers` reads into an existing folder; overwrites none. `context` is the model's
  // maximum number of tokens; `jinja` is the folder's chat template, or "". A BPE's original files are written
  // unchanged.
  virtual void save_for_transformers(const std::string& folder, int64_t context, const std::string& jinja) const = 0;

  // Appends the ids of text to out. For much text use an Encoder.
  void encode(std::string_view text, std::vector<int32_t>& out) const { encoder()->encode(text, out); }
  std::string decode(std::span<const int32_t> ids) const { return decode(ids, true); }
  // Leaves special tokens out, unless with_specials.
  virtual std::string decode(std::span<const int32_t> ids, bool with_specials) const;
};

std::unique_ptr<Tokenizer> make_byte_tokenizer();

// A folder with this file is a byte tokenizer, whatever the file's content.
constexpr const char* byte_tokenizer_file = "bytes.txt";

// Reads a folder that save() wrote, or a Hugging Face folder: its tokenizer.json (tokenizer_json.h) or, if absent, its
// vocab.json and merges.txt. Errors: no such folder or files, malformed JSON, ids that are not 0..V-1, a merge of
// unknown tokens, an unsupported part of tokenizer.json, by key and value.
std::unique_ptr<Tokenizer> load_tokenizer(const std::string& folder);

// Returns the files of a folder that load_tokenizer may read.
std::vector<std::string> tokenizer_files(const std::string& folder);

}  // namespace megalith
