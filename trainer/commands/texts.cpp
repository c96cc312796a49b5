#include "trainer/commands/texts.h"

#include <fmt/format.h>

#include <cstdio>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "data/corpus/prompts.h"
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
  return prompts_of(path == "-" ? all_input() : read_file(path), path);
}

std::optional<std::string> typed_line(const Session& session, Dialogue& dialogue, std::string_view prompt,
                                      std::string_view after_ctrl_c) {
  std::string said;
  if (session.rank() == 0)
    if (const std::optional<std::string> line = dialogue.read_line(prompt, after_ctrl_c)) said = "+" + *line;
  said = session.broadcast_text(said);
  if (said.empty()) return {};
  return said.substr(1);
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

void TextPrinter::show_or_keep(size_t text, const std::string& piece) {
  if (!as_json_ && text == now_)
    show(piece);
  else
    texts_[text].text += piece;
}

void TextPrinter::add(size_t prompt, int64_t sample, std::string_view piece) {
  const size_t at = number(prompt, sample);
  show_or_keep(at, texts_[at].characters.add(piece));
}

void TextPrinter::end(size_t prompt, int64_t sample) {
  const size_t at = number(prompt, sample);
  show_or_keep(at, texts_[at].characters.rest());
  texts_[at].ended = true;
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
