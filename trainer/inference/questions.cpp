#include "trainer/inference/questions.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "data/tokenizers/special_text.h"
#include "kernels/system/files.h"
#include "kernels/system/json.h"

namespace megalith {

namespace {

std::string text_of(const nlohmann::json& line, const char* key, const std::string& where) {
  CHECK(line.at(key).is_string(), "{}: \"{}\" is not a text", where, key);
  return line.at(key).get<std::string>();
}

int64_t label_of(const nlohmann::json& line, const std::string& where, size_t endings) {
  CHECK(line.contains("label"), "{}: no \"label\", the number of the right ending, from 0", where);
  const nlohmann::json& label = line.at("label");
  int64_t index = -1;
  if (label.is_number_integer()) index = label.get<int64_t>();
  if (label.is_string() && label.get<std::string>().find_first_not_of("0123456789") == std::string::npos &&
      !label.get<std::string>().empty() && label.get<std::string>().size() < 9)
    index = std::stoll(label.get<std::string>());
  CHECK(0 <= index && index < static_cast<int64_t>(endings), "{}: \"label\" is {}, expected 0 to {}", where,
        json_text(label), endings - 1);
  return index;
}

Question with_endings(const nlohmann::json& line, const std::string& where) {
  const char* key = line.contains("ctx") ? "ctx" : "context";
  CHECK(line.contains(key), "{}: \"endings\" without \"ctx\" or \"context\", the text before them", where);
  Question q{.context = text_of(line, key, where), .answers = {}};
  const nlohmann::json& endings = line.at("endings");
  CHECK(endings.is_array() && !endings.empty(), "{}: \"endings\" is not a list of texts", where);
  for (const nlohmann::json& ending : endings) {
    CHECK(ending.is_string() && !ending.get<std::string>().empty(), "{}: ending {} is {}", where, q.answers.size(),
          ending.is_string() ? "empty" : "not a text");
    q.answers.push_back(" " + ending.get<std::string>());
  }
  q.right = label_of(line, where, q.answers.size());
  return q;
}

Question with_last_word(const nlohmann::json& line, const std::string& where) {
  const std::string text = text_of(line, "text", where);
  const size_t blank = text.rfind(' ');
  CHECK(blank != std::string::npos && blank + 1 < text.size(), "{}: \"text\" does not end in a word after a blank",
        where);
  return {.context = text.substr(0, blank), .answers = {text.substr(blank)}, .last_word = true};
}

// Counts the characters of an answer without the blank before it.
double characters(const std::string& answer) {
  const auto begins = [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; };
  return static_cast<double>(std::count_if(answer.begin() + 1, answer.end(), begins));
}

}  // namespace

std::vector<Question> read_questions(const std::string& path) {
  std::istringstream rows(read_file(path));
  std::vector<Question> all;
  int64_t number = 0;
  for (std::string row; std::getline(rows, row);) {
    number++;
    if (row.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string where = fmt::format("{}:{}", path, number);
    nlohmann::json line;
    try {
      line = parse_json(row);
    } catch (const nlohmann::json::parse_error& e) {
      FAIL("{}: not JSON: {}; expected one object a line", where, e.what());
    }
    CHECK(line.is_object() && (line.contains("endings") || line.contains("text")),
          "{}: expected an object with \"ctx\", \"endings\" and \"label\", or with \"text\"", where);
    all.push_back(line.contains("endings") ? with_endings(line, where) : with_last_word(line, where));
    all.back().where = where;
  }
  CHECK(!all.empty(), "{} has no question; expected a JSON object a line", path);
  return all;
}

AnswerTokens encode_answer(const Tokenizer& tokenizer, const Question& question, const std::string& answer,
                           int64_t model_context, SpecialTexts special_texts) {
  const std::string& context = question.context;
  const size_t last = context.find_last_not_of(" \t\n\r\v\f"), end = last == std::string::npos ? 0 : last + 1;
  AnswerTokens tokens;
  std::vector<int32_t> before;
  encode_with_specials(tokenizer, context + answer, tokens.ids, special_texts, question.where);
  encode_with_specials(tokenizer, context.substr(0, end), before, special_texts, question.where);
  tokens.answer = static_cast<int64_t>(tokens.ids.size()) - static_cast<int64_t>(before.size());
  std::vector<int32_t> beginning = tokenizer.beginning();
  if (beginning.empty() && before.empty()) beginning.push_back(tokenizer.end_of_text());
  tokens.ids.insert(tokens.ids.begin(), beginning.begin(), beginning.end());
  CHECK(tokens.answer > 0, "{}: the answer `{}` has no token of its own after `{}`", question.where, answer, context);
  CHECK(tokens.answer <= model_context,
        "{}: an answer of {} tokens, but the model's context is {}; remove the line, or use a model with a longer "
        "context",
        question.where, tokens.answer, model_context);
  return tokens;
}

int64_t best_answer(const Question& question, const Answered& answered, bool by_character) {
  int64_t best = 0;
  double most = 0;
  for (size_t i = 0; i < question.answers.size(); i++) {
    const double value = answered.log_likelihood[i] / (by_character ? characters(question.answers[i]) : 1);
    if (i == 0 || value > most) {
      best = static_cast<int64_t>(i);
      most = value;
    }
  }
  return best;
}

Scores score(const std::vector<Question>& questions, const std::vector<Answered>& answered) {
  Scores s;
  double words = 0;
  for (size_t i = 0; i < questions.size(); i++) {
    const Question& q = questions[i];
    if (q.last_word) {
      s.last_words++;
      s.last_word_acc += answered[i].greedy[0];
      words += answered[i].log_likelihood[0];
    } else {
      s.questions++;
      s.acc += best_answer(q, answered[i], false) == q.right;
      s.acc_norm += best_answer(q, answered[i], true) == q.right;
    }
  }
  const auto questions_with_endings = static_cast<double>(std::max<int64_t>(s.questions, 1));
  const auto last_words = static_cast<double>(std::max<int64_t>(s.last_words, 1));
  s.acc /= questions_with_endings;
  s.acc_norm /= questions_with_endings;
  s.last_word_acc /= last_words;
  s.perplexity = std::exp(-words / last_words);
  return s;
}

}  // namespace megalith
