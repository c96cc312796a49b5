// The texts that a user names: files, folders, globs, pipes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/samples/path_pattern.h"

namespace megalith {

struct TextInput {
  std::string path;         // "-": the standard input
  bool json_lines = false;  // else plain text
  bool is_plain = true;     // else a pipe, which can be read once
  int64_t size = 0;         // on the disk; 0 for a pipe
  int64_t modified = 0;     // nanoseconds since the epoch; 0 for a pipe

  bool operator==(const TextInput&) const = default;
  std::string name() const { return path == "-" ? "the standard input" : path; }  // the name in messages
};

// The name determines what a file holds: .jsonl, .ndjson and .json files are JSON lines, others are text; .gz, .zst or
// .xz may follow. Pipes, and "-", are JSON lines if `pipes_are_json`. A folder means all .txt, .jsonl, .ndjson and
// .json files in and below it, compressed or not, sorted by the bytes of their paths, without empty and hidden ones. A
// glob that is not a file's name means its matches, in the same order. Other files of a folder, and linked folders that
// ** does not enter, are counted in `left_out` by kind.
//
// Errors: an absent name, a pattern or a folder without texts, an empty file, a text that is named twice.
std::vector<TextInput> find_texts(const std::vector<std::string>& names, bool pipes_are_json,
                                  LeftOut* left_out = nullptr);

// Error if the input has changed.
void check_unchanged(const TextInput& input);

}  // namespace megalith
