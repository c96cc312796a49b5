// What data.train names: one source of tokens, or several with weights.
//
// A source is a token file; a prefix, PREFIX for PREFIX.bin or for the shards PREFIX-00000.bin, PREFIX-00001.bin, ...;
// or a glob such as wiki/*.bin. Its files, in the order of their names, are one long stream: a sample may end in the
// next file as it may end in the next document, so that a corpus trains alike whether it was prepared in one file or in
// shards of any size. A folder that prepare wrote means its training tokens, and as data.validation those held out.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/path_pattern.h"

namespace megalith {

struct DataSource {
  std::string name;   // file, prefix, glob or folder of prepare
  int64_t share = 1;  // in the proportions of the weights
};

// `text` is one name, or lines `NAME WEIGHT`, each with its end: what a TOML list becomes. Errors, which begin with
// `key`: no weight, or one that is no positive decimal number; a name that is empty or stands twice.
std::vector<DataSource> parse_sources(const std::string& key, const std::string& text);

// The files of a source of data.train, those that are there; none where nothing matches. files_of refuses that, shards
// of which one is missing, and a prefix of both kinds.
std::vector<std::string> matches_of(const std::string& name);

// Counts what a pattern matches, or does not enter, beside its files, by kind.
LeftOut left_out_of(const std::string& name);
std::vector<std::string> files_of(const std::string& key, const std::string& name);

}  // namespace megalith
