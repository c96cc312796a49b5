// Formats that are neither texts nor tokens, or only under other names: known by their first bytes, whatever they are
// called, and with what makes a text or token file of them.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace megalith {

struct KnownFile {
  enum class Holds {
    another,  // file, compressed or packed, which a command writes
    table,    // perhaps of texts, which Python makes JSON lines of
    text,     // in another form, which a command writes as UTF-8
    nothing   // that a command makes a text of
  };
  std::string name;    // "a Parquet file"
  std::string unpack;  // the command, or a statement of Python that makes `table`, of FILE
  Holds holds;
};

// So many bytes of a file are enough.
constexpr size_t known_head_bytes = 512;

std::optional<KnownFile> known_file(std::string_view head);

// UTF-16 that does not say so, by the zeros beside the letters of most texts. No UTF-8 text has zeros.
std::optional<KnownFile> unmarked_utf16(std::string_view head);

// The command for a file, which is not one that holds nothing. What is compressed by its name is decompressed first.
std::string unpack_command(const KnownFile& known, const std::string& path);

// Errors that name the format and the remedy. `head` is of what is in the file, decompressed.
void check_holds_text(std::string_view head, const std::string& path, bool json_lines);
void check_holds_tokens(std::string_view head, const std::string& path);

}  // namespace megalith
