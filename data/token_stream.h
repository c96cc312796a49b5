// A TokenStream is a file of tokens, seen as one long sequence, memory-mapped and read-only. Copies share the mapping;
// any number of threads may read at once.
//
// Formats, recognised by what is found:
//   X.bin with X.idx beside it      Megatron-LM's IndexedDataset, the output of prepare: all documents in file order
//   X.bin beginning with llm.c's header (256 int32: 20240520, 1, number of tokens), then uint16 tokens
//   any other X.bin                 raw little-endian uint16 tokens (nanoGPT)
// Sizes and the document index are checked when the file is opened; the ids are not, see max_token.
// A new format is one file with a TokenSource and one line in TokenStream::open.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace megalith {

// What a format provides. begin and the length of out are within size().
class TokenSource {
 public:
  virtual ~TokenSource() = default;
  virtual int64_t size() const = 0;
  virtual void read(int64_t begin, std::span<int32_t> out) const = 0;
  // The largest id in [begin, end), which is not empty. A negative id is an error.
  virtual int32_t max_token(int64_t begin, int64_t end) const = 0;
  // The largest id the element type could hold.
  virtual int32_t max_possible_token() const = 0;
};

// The .idx that belongs to a token file, if there is one; otherwise empty.
std::string index_beside(const std::string& path);

class TokenStream {
 public:
  // Errors name the path and the sizes: missing, empty, truncated, .idx and .bin that disagree, foreign .idx, an .idx
  // in place of its .bin.
  static TokenStream open(const std::string& path);

  const std::string& path() const { return path_; }
  int64_t size() const { return source_->size(); }                              // in tokens, at least 1
  int32_t max_possible_token() const { return source_->max_possible_token(); }  // 65535 for uint16
  bool is_raw() const { return raw_; }  // nothing says that these are uint16 tokens, they were taken for it
  void read(int64_t begin, std::span<int32_t> out) const;  // tokens [begin, begin + out.size())
  int32_t max_token(int64_t begin, int64_t end) const;     // scans [begin, end) at memory speed

 private:
  TokenStream(std::string path, std::shared_ptr<const TokenSource> source, bool raw = false)
      : path_(std::move(path)), source_(std::move(source)), raw_(raw) {}

  std::string path_;
  std::shared_ptr<const TokenSource> source_;
  bool raw_;
};

}  // namespace megalith
