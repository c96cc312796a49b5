// Corpora as text and as JSON lines, and what prepare makes of them.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "data/corpus/prepare.h"
#include "data/samples/token_stream.h"
#include "kernels/system/files.h"

namespace megalith::test {

using Texts = std::vector<std::string>;

inline PrepareOptions options_for(const Texts& texts, const std::string& out, double validation_fraction) {
  PrepareOptions options;
  options.corpus.texts = texts;
  options.corpus.validation_fraction = validation_fraction;
  options.tokenizer = "bytes";
  options.out = out;
  options.threads = 2;
  return options;
}

// The documents in a token file of the byte tokenizer.
inline Texts documents_in(const std::string& path) {
  const TokenStream stream = TokenStream::open(path);
  std::vector<int32_t> tokens(static_cast<size_t>(stream.size()));
  stream.read(0, tokens);
  Texts documents(1);
  for (const int32_t token : tokens)
    if (token == 256)
      documents.emplace_back();
    else
      documents.back() += static_cast<char>(token);
  EXPECT_EQ(documents.back(), "") << "tokens after the last end of a text";
  documents.pop_back();
  return documents;
}

// Every file below a folder.
inline std::map<std::string, std::string> files_below(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    if (entry.is_regular_file())
      files[std::filesystem::relative(entry.path(), folder).string()] = read_file(entry.path().string());
  return files;
}

inline std::string json_line(const std::string& text) { return "{\"id\": [1, {}], \"text\": \"" + text + "\"}\n"; }

inline Texts numbered(int count, int from) {
  Texts documents;
  for (int i = from; i < from + count; i++)
    documents.push_back(fmt::format("document {} {}", i, std::string(static_cast<size_t>(i % 40), 'x')));
  return documents;
}
inline std::string as_lines(const Texts& documents) {
  std::string lines;
  for (const std::string& document : documents) lines += json_line(document);
  return lines;
}
inline std::string as_text(const Texts& documents) {
  std::string text;
  for (const std::string& document : documents) text += document + "<|endoftext|>";
  return text;
}

}  // namespace megalith::test
