// The values of data.train, one source of tokens or several with weights, and of data.validation, one source or several
// with names.
//
// A source is a token file; a prefix, PREFIX for PREFIX.bin or for the shards PREFIX-00000.bin, PREFIX-00001.bin, ...;
// or a glob such as wiki/*.bin. Its files, sorted by name, are one stream: a sample may span files as it may span
// documents, so that shards of any size train like one file. A folder of prepare means its training tokens or, for
// data.validation, its validation tokens.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/samples/path_pattern.h"

namespace megalith {

struct DataSource {
  std::string name;   // file, prefix, glob or folder of prepare
  int64_t share = 1;  // proportional to the weights
};

// `text` is one name, or lines `NAME WEIGHT`, each with a newline, as made from a TOML list. Errors begin with `key`: a
// missing weight, or one that is not a positive decimal number; a name that is empty or given twice.
std::vector<DataSource> parse_sources(const std::string& key, const std::string& text);

// A validation set, evaluated separately from others.
struct ValidationSource {
  std::string name;    // empty for the only set of a run
  std::string source;  // as DataSource::name
};

// `text` is one source, or lines `NAME=SOURCE`, each with a newline, as made from a TOML list; empty: no source.
// Errors: a line without a name of letters, digits, `-`, `_` and `.`, or without a source; a name that is given twice.
std::vector<ValidationSource> parse_validation(const std::string& text);

// Returns the sources that data.train or data.validation names.
std::vector<std::string> names_of_sources(const std::string& key, const std::string& text);

// Returns the existing files of a source. files_of also refuses a source without files, a missing shard, and an
// ambiguous prefix.
std::vector<std::string> matches_of(const std::string& name, const std::string& key = "data.train");

// Counts, by kind, the other entries that a pattern matches, and the folders that it does not enter.
LeftOut left_out_of(const std::string& name);
std::vector<std::string> files_of(const std::string& key, const std::string& name);

}  // namespace megalith
