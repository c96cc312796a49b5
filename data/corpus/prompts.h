// Reads prompts: texts that a model continues.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace megalith {

// Returns one prompt for each line, empty lines included; for a file whose name ends in .jsonl, the "prompt" of each
// line's object. `path` names the text in messages. Error, with file and line: the file has no prompt, or a line has
// another form.
std::vector<std::string> prompts_of(std::string_view text, const std::string& path);

}  // namespace megalith
