// Which texts a user names: files, folders, globs, pipes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/path_pattern.h"

namespace megalith {

struct TextInput {
  std::string path;         // "-": the standard input
  bool json_lines = false;  // else a text
  bool is_plain = true;     // else a pipe, which can be read once
  int64_t size = 0;         // bytes on the disk; 0 of a pipe
  int64_t modified = 0;     // nanoseconds since the epoch; 0 of a pipe

  bool operator==(const TextInput&) const = default;
  std::string name() const { return path == "-" ? "the standard input" : path; }  // for messages
};

// The name says what a file holds: NAME.jsonl, NAME.ndjson and NAME.json are JSON lines, any other is a text; .gz, .zst
// or .xz may follow. Pipes, and "-", are JSON lines if `pipes_are_json`.
//
// A folder stands for the .txt, .jsonl, .ndjson and .json files in it and in the folders below, compressed or not, in
// the order of their paths' bytes, without those that are empty or hidden (.NAME); a pattern (*, ?, [) that is no
// file's name for what it matches, in the same order. What a folder holds beside its texts, and linked folders that a
// pattern with ** does not enter, are counted in `left_out`, by their kind.
//
// Errors: what is not there, a pattern or a folder without texts, an empty file, a text that is named twice.
std::vector<TextInput> find_texts(const std::vector<std::string>& names, bool pipes_are_json,
                                  LeftOut* left_out = nullptr);

// The input as it is now; an Error if that is another than it was.
void check_unchanged(const TextInput& input);

// ".gz", ".zst" or ".xz" if the path ends in it; else empty.
std::string_view compression_in_name(std::string_view path);

}  // namespace megalith
