// The handshake of a job: before a run touches anything, every rank shows what it was started with, and a rank that
// differs is named. Ranks that differ in silence would train, to the end, a model that is nobody's.
//
// What is compared:
//   - the resolved config, key by key;
//   - the executable: every byte of /proc/self/exe. Libraries that it loads are not looked at;
//   - data.train and data.validation, each with the .idx beside it if there is one: the size, and a hash of the first
//     and the last MiB and of 64 blocks of 64 KiB evenly between them (of all bytes, if it has no more than that).
//     Token files may be hundreds of GB; this finds another file, not a single flipped byte;
//   - the tokenizer's files: every byte.
// Paths are shown but not compared: where a file lies may differ from node to node. A file that cannot be read is
// compared as that; ranks that all lack it agree, and learn of it when they open it.
#pragma once

#include <array>
#include <map>
#include <string>
#include <vector>

#include "configs/config.h"
#include "trainer/session/session.h"

namespace megalith {

// What one rank was started with.
struct Fingerprint {
  struct File {
    std::string path;     // shown
    std::string content;  // compared, and shown: size and hash, or why there is none
    bool operator==(const File&) const = default;
  };
  static constexpr std::array<const char*, 4> file_names = {"executable", "data.train", "data.validation", "tokenizer"};

  std::string host;
  std::map<std::string, std::string> config;  // "section.key" -> value, as to_toml writes it
  std::array<File, file_names.size()> files;
  bool operator==(const Fingerprint&) const = default;
};

// Reads the files; no error, whatever it finds.
Fingerprint fingerprint_of(const Config& config);

// Empty when all ranks, given in rank order, agree. Otherwise what to do and then, a line for every difference, which
// ranks on which hosts differ from the largest group that agrees. Where two groups are equally large nobody is the odd
// one: the line names the ranks of both.
std::string disagreement(const std::vector<Fingerprint>& ranks);

// As sent between ranks. Of a text that another version of this program sent, what is missing is left empty.
std::string to_text(const Fingerprint& fingerprint);
Fingerprint fingerprint_from(const std::string& text);

// Collective; writes nothing. A JobError with the disagreement on all ranks.
void shake_hands(const Config& config, const Session& session);

}  // namespace megalith
