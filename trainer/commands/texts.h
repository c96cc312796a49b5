// Reads the texts to continue, and prints their continuations.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizers/whole_characters.h"
#include "trainer/machine/dialogue.h"
#include "trainer/session/session.h"

namespace megalith {

// Reads standard input, without the newline that ends its last line.
std::string standard_input();

// Reads a file of prompts (data/corpus/prompts.h). "-" is standard input.
std::vector<std::string> read_prompts(const std::string& path);

// Collective. Returns on all ranks the next line typed at rank 0; nullopt at the end of the input.
std::optional<std::string> typed_line(const Session& session, Dialogue& dialogue, std::string_view prompt,
                                      std::string_view after_ctrl_c);

// Prints texts in the order of prompts and samples: the first unfinished one as it arrives, while later ones wait.
// Bytes that are not UTF-8 become U+FFFD. As JSON, prints a line for each finished text; otherwise each text after its
// prompt, with a line between them.
class TextPrinter {
 public:
  // `prompts` must outlive it.
  TextPrinter(const std::vector<std::string>& prompts, int64_t samples, bool as_json);
  void add(size_t prompt, int64_t sample, std::string_view piece);
  void end(size_t prompt, int64_t sample);

 private:
  struct Text {
    std::string text = {};
    WholeCharacters characters = {};
    bool ended = false;
  };
  size_t number(size_t prompt, int64_t sample) const {
    return prompt * static_cast<size_t>(samples_) + static_cast<size_t>(sample);
  }
  void show_or_keep(size_t text, const std::string& piece);
  void head() const;
  std::string json() const;

  const std::vector<std::string>& prompts_;
  int64_t samples_;
  bool as_json_;
  std::vector<Text> texts_;
  size_t now_ = 0;
};

}  // namespace megalith
