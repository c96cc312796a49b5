#include "data/corpus/prompts.h"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <sstream>

#include "kernels/system/check.h"
#include "kernels/system/json.h"

namespace megalith {

std::vector<std::string> prompts_of(std::string_view text, const std::string& path) {
  std::istringstream lines{std::string(text)};
  std::vector<std::string> prompts;
  int64_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    number++;
    if (line.ends_with('\r')) line.pop_back();
    if (path.ends_with(".jsonl")) {
      CHECK(line.find_first_not_of(" \t") != std::string::npos,
            "{}:{}: an empty line, which is not JSON; an empty prompt is {{\"prompt\": \"\"}}", path, number);
      nlohmann::json object;
      try {
        object = parse_json(line);
      } catch (const nlohmann::json::parse_error& e) {
        FAIL("{}:{}: not JSON: {}; expected {{\"prompt\": TEXT}} on each line", path, number, e.what());
      }
      CHECK(object.is_object() && object.contains("prompt") && object["prompt"].is_string(),
            "{}:{}: expected {{\"prompt\": TEXT}}", path, number);
      line = object["prompt"].get<std::string>();
    }
    prompts.push_back(line);
  }
  CHECK(!prompts.empty(), "{} has no prompt; expected one a line", path == "-" ? "standard input" : path);
  return prompts;
}

}  // namespace megalith
