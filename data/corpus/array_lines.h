// Reads a file that is one JSON array, as .json files of conversations often are, as JSON lines: one line for each
// element. Inside data/ only.
#pragma once

#include <memory>
#include <string>

#include "data/corpus/byte_source.h"

namespace megalith {

// Returns the elements of the array in `array`, each on a line of its own; bytes after the array are passed on
// unchanged. Only brackets and strings are parsed here: the parser of the lines reports other errors. `path` names the
// file in the Error for an array that does not end.
std::unique_ptr<ByteSource> elements_as_lines(std::unique_ptr<ByteSource> array, std::string path);

}  // namespace megalith
