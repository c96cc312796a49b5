// Formats that are neither texts nor tokens, or are read only under other names. They are recognized by their first
// bytes, whatever the name, each with a command that converts it.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace megalith {

struct KnownFile {
  enum class Holds {
    another,  // an archive or compressed file that a command unpacks
    table,    // may hold texts; Python converts it to JSON lines
    text,     // in another encoding; a command converts it to UTF-8
    nothing   // no command can convert it
  };
  std::string name;    // "a Parquet file"
  std::string unpack;  // the command, or for `table` the Python statement, applied to FILE
  Holds holds;
};

// This many bytes of a file suffice.
constexpr size_t known_head_bytes = 512;

std::optional<KnownFile> known_file(std::string_view head);

// Recognizes UTF-16 without a byte order mark by the zero bytes next to the letters of most texts. UTF-8 text has no
// zeros.
std::optional<KnownFile> unmarked_utf16(std::string_view head);

// Returns the command for a file of a convertible format. A compressed file is decompressed first.
std::string unpack_command(const KnownFile& known, const std::string& path);

// Returns ".gz", ".zst" or ".xz" if the path ends in it; else "".
std::string_view compression_in_name(std::string_view path);

// Errors name the format and the remedy. `head` is the beginning of the decompressed contents.
void check_holds_text(std::string_view head, const std::string& path, bool json_lines);
void check_holds_tokens(std::string_view head, const std::string& path);

}  // namespace megalith
