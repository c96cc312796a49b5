// A TokenStream is one or several token files as one sequence, memory-mapped and read-only. Copies share the mapping;
// any number of threads may read at once.
//
// Formats, recognised by the files' names and first bytes:
//   X.bin with an X.idx             Megatron-LM's IndexedDataset, the output of prepare: all documents in file order;
//                                   an X.mask adds a byte for each token, 1 if it counts in the loss, else 0
//   X.bin beginning with llm.c's header (256 int32: 20240520, 1, number of tokens), then uint16 tokens; or, of magic
//                                   20240801 and version 7, uint32 tokens
//   a file with numpy's magic       integers of any width
//   other files                     raw little-endian uint16 tokens (nanoGPT), unless its first bytes are those of
//                                   another format, a text, or ids of another width
// Opening checks sizes and the document index; it does not check ids, see max_token. A new format takes one file with a
// TokenSource and one line in TokenStream::open.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace megalith {

// The interface of a format. begin and the length of out are within size().
class TokenSource {
 public:
  virtual ~TokenSource() = default;
  virtual int64_t size() const = 0;
  virtual void read(int64_t begin, std::span<int32_t> out) const = 0;
  // Returns the largest id in [begin, end), which must not be empty. A negative id is an error.
  virtual int32_t max_token(int64_t begin, int64_t end) const = 0;
  // Returns the largest id that the element type can hold.
  virtual int32_t max_possible_token() const = 0;
  // Returns the first token after `at` that begins a document; size() if there is none; nullopt if the format does not
  // know.
  virtual std::optional<int64_t> document_after(int64_t) const { return {}; }
  // Returns whether there is a mask. Only then may read_mask() be called, which writes 1 for each token that counts and
  // 0 for others.
  virtual bool is_masked() const { return false; }
  virtual void read_mask(int64_t begin, std::span<uint8_t> out) const;
};

constexpr int64_t unknown_documents = -1;

// Returns the .idx, or the .mask (prepare.h), of a token file, or "".
std::string index_path_of(const std::string& path);
std::string mask_path_of(const std::string& path);

class TokenStream {
 public:
  // Errors name path and sizes: missing, empty, truncated, .idx and .bin that disagree, an .idx of another format, an
  // .idx given as the .bin.
  static TokenStream open(const std::string& path);
  // Opens several files, at least one, as one sequence. Messages call them `name`.
  static TokenStream open(const std::string& name, const std::vector<std::string>& paths);
  // Returns a stream of tokens in memory, at least one. Documents begin at token 0 and at `begins`, which ascend.
  static TokenStream of(const std::string& name, std::vector<int32_t> tokens, std::vector<int64_t> begins);

  // Returns the first tokens of this stream, at least one, as a stream. A masked stream must be cut between documents.
  TokenStream first(int64_t tokens) const;

  const std::string& path() const { return path_; }
  const std::vector<std::string>& files() const { return files_; }
  const std::string& format() const { return format_; }                         // a description
  int64_t documents() const { return documents_; }                              // or unknown_documents
  int64_t size() const { return source_->size(); }                              // number of tokens, at least 1
  int32_t max_possible_token() const { return source_->max_possible_token(); }  // 65535 for uint16
  bool is_raw() const { return raw_; }                     // some of these were read as uint16 without a header
  void read(int64_t begin, std::span<int32_t> out) const;  // tokens [begin, begin + out.size())
  int32_t max_token(int64_t begin, int64_t end) const;     // scans [begin, end) at memory speed
  // Returns whether a mask marks the tokens that count; documents are then examples.
  bool is_masked() const { return source_->is_masked(); }
  // Sets out[i] to 1 if token begin + i counts in the loss, else to 0. Masked streams only. Error: a byte of the mask
  // is neither.
  void read_mask(int64_t begin, std::span<uint8_t> out) const;
  // Returns where documents begin in (begin, end), relative to `begin`; empty if the format has no documents.
  std::vector<int64_t> document_begins(int64_t begin, int64_t end) const;

 private:
  TokenStream() = default;

  std::string path_;
  std::vector<std::string> files_;
  std::string format_;
  int64_t documents_ = unknown_documents;
  std::shared_ptr<const TokenSource> source_;
  bool raw_ = false;
};

}  // namespace megalith
