// Questions with answers to choose from, read from JSON lines, and how well a model does on them. The scores are
// defined as by EleutherAI's lm-evaluation-harness (lm_eval/api/task.py, process_results; lm_eval/tasks/lambada):
//   acc         the answer with the largest log-likelihood is the right one
//   acc_norm    the same of the log-likelihood divided by the answer's length in characters
//   last word   acc: each token of the word is the model's most likely one; perplexity: exp of minus the mean
//               log-likelihood of a word
// Two forms of a line, by their keys; other keys are left alone:
//   HellaSwag   {"ctx": TEXT, "endings": [TEXT, ...], "label": INDEX}; "context" for "ctx" will do, and "1" for 1.
//               An answer is a blank and the ending. Zellers et al., arXiv 1905.07830.
//   LAMBADA     {"text": TEXT}: the answer is its last word, and the blank before it. Paperno et al.,
//               arXiv 1606.06031.
// Texts are taken as they stand.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/special_text.h"
#include "data/tokenizer.h"

namespace megalith {

struct Question {
  std::string context;
  std::vector<std::string> answers;  // each follows the context as it is
  int64_t right = 0;
  bool last_word = false;  // LAMBADA's form
  std::string where = {};  // FILE:LINE, for messages
};

struct Answered {
  std::vector<double> log_likelihood;  // of each answer, in nats
  std::vector<bool> greedy;            // whether each of its tokens is the model's most likely one
};

struct Scores {
  int64_t questions = 0;  // with endings
  double acc = 0, acc_norm = 0;
  int64_t last_words = 0;
  double last_word_acc = 0, perplexity = 0;
};

// Errors name the file, the line and what was expected.
std::vector<Question> read_questions(const std::string& path);

// The tokens of context and answer, and how many of them are the answer's. As the harness does it: blanks at the end of
// the context count as the answer's, both are encoded together, and an empty context is the end of another text.
struct AnswerTokens {
  std::vector<int32_t> ids;
  int64_t answer = 0;
};
// Encodes one of the question's answers. Error, with the line: it has no token of its own, or more than the model's
// context, or a special token that is refused.
AnswerTokens encode_answer(const Tokenizer& tokenizer, const Question& question, const std::string& answer,
                           int64_t model_context, SpecialTexts special_texts = SpecialTexts::ids);

// Which answer has the largest log-likelihood, or the largest by character; of equals the first.
int64_t best_answer(const Question& question, const Answered& answered, bool by_character);

Scores score(const std::vector<Question>& questions, const std::vector<Answered>& answered);

}  // namespace megalith
