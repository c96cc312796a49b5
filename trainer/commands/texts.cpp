#include "trainer/commands/texts.h"

#include <fmt/format.h>

#include <cstdio>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "kernels/system/files.h"
#include "kernels/system/json.h"

namespace megalith {

namespace {
std::string all_input() { return {std::istreambuf_iterator<char>(std::cin), {}}; }

void drop_end(std::string& line, char end) {
  if (line.ends_with(end)) line.pop_back();
}
}  // namespace

std::string standard_input() {
  std::string text = all_input();
  if (!text.ends_with('\n')) return text;
  drop_end(text, '\n');
  drop_end(text, '\r');
  return text;
}

std::vector<std::string> read_prompts(const std::string& path) {
  std::istringstream lines(path == "-" ? all_input() : read_file(path));
  std::vector<std::string> prompts;
  int64_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    number++;
    drop_end(line, '\r');
    if (path.ends_with(".jsonl")) {
      CHECK(line.find_first_not_of(" \t") != std::string::npos,
            "{}:{}: an empty line, which is no JSON; an empty prompt is {{\"prompt\": \"\"}}", path, number);
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
  CHECK(!prompts.empty(), "{} holds no prompt; expected one a line", path == "-" ? "standard input" : path);
  return prompts;
}

namespace {
void show(std::string_view text) {
  fmt::print("{}", text);
  std::fflush(stdout);
}
}  // namespace

TextPrinter::TextPrinter(const std::vector<std::string>& prompts, int64_t samples, bool as_json)
    : prompts_(prompts), samples_(samples), as_json_(as_json), texts_(prompts.size() * static_cast<size_t>(samples)) {
  head();
}

void TextPrinter::add(size_t prompt, int64_t sample, std::string_view piece) {
  const size_t at = number(prompt, sample);
  if (!as_json_ && at == now_)
    show(piece);
  else
    texts_[at].text += piece;
}

void TextPrinter::end(size_t prompt, int64_t sample) {
  texts_[number(prompt, sample)].ended = true;
  while (now_ < texts_.size() && texts_[now_].ended) {
    show(as_json_ ? json() : std::string("\n"));
    now_++;
    head();
    if (now_ < texts_.size() && !as_json_) show(std::exchange(texts_[now_].text, ""));
  }
}

void TextPrinter::head() const {
  if (as_json_ || now_ == texts_.size()) return;
  if (now_ > 0) show("---------------\n");
  show(prompts_[now_ / static_cast<size_t>(samples_)]);
}

std::string TextPrinter::json() const {
  const auto samples = static_cast<size_t>(samples_);
  const nlohmann::ordered_json line{
      {"prompt", prompts_[now_ / samples]}, {"sample", now_ % samples}, {"text", texts_[now_].text}};
  return json_text_of_bytes(line) + "\n";
}

}  // namespace megalith
