// Reads prompts: texts that a model continues.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace megalith {

// Returns a prompt for each line, empty lines included; of a file whose name ends in .jsonl, the "prompt" of each
// line's object. `path` names the text in messages. Error, with file and line: no prompt, or a line of another form.
std::vector<std::string> prompts_of(std::string_view text, const std::string& path);

}  // namespace megalith
