// A file that is one array of JSON, as .json files of conversations often are, read as JSON lines: a line for each
// element. Inside data/ only.
#pragma once

#include <memory>
#include <string>

#include "data/corpus/byte_source.h"

namespace megalith {

// Returns the elements of the array that `array` gives, each on a line of its own; bytes after the array come as they
// are. Nothing but brackets and strings is looked at: the parser of the lines reports their errors. `path`
// names the file in the Error of an array that does not end.
std::unique_ptr<ByteSource> elements_as_lines(std::unique_ptr<ByteSource> array, std::string path);

}  // namespace megalith
