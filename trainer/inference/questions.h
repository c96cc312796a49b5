// Reads questions with answers from JSON lines, and scores a model on them as EleutherAI's lm-evaluation-harness does
// (lm_eval/api/task.py, process_results; lm_eval/tasks/lambada):
//   acc         the share of questions where the right answer has the largest log-likelihood; with last words, where
//               each token is the model's most likely one
//   acc_norm    acc with the log-likelihood divided by the answer's length in characters
//   perplexity  exp of minus the mean log-likelihood of a last word
// A line has one of two forms; other keys are ignored:
//   HellaSwag   {"ctx": TEXT, "endings": [TEXT, ...], "label": INDEX}, or "context" for "ctx", or "1" for 1. An answer
//               is a blank and the ending. Zellers et al., arXiv 1905.07830.
//   LAMBADA     {"text": TEXT}: the answer is its last word with the blank before it. Paperno et al., arXiv 1606.06031.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/tokenizers/special_text.h"
#include "data/tokenizers/tokenizer.h"

namespace megalith {

struct Question {
  std::string context;
  std::vector<std::string> answers;  // texts to append to the context
  int64_t right = 0;
  bool last_word = false;  // LAMBADA's form
  std::string where = {};  // FILE:LINE, for messages
};

struct Answered {
  std::vector<double> log_likelihood;  // one per answer, in nats
  std::vector<bool> greedy;            // true if each of its tokens is the model's most likely one
};

struct Scores {
  int64_t questions = 0;  // questions with endings
  double acc = 0, acc_norm = 0;
  int64_t last_words = 0;
  double last_word_acc = 0, perplexity = 0;
};

// Throws Error with the file, the line and the expected form.
std::vector<Question> read_questions(const std::string& path);

// The tokens of a context and an answer. As in the harness, blanks at the end of the context count as the answer's, and
// both are encoded together. An end_of_text token stands for an empty context, unless the tokenizer begins every text
// with its own tokens.
struct AnswerTokens {
  std::vector<int32_t> ids;
  int64_t answer = 0;  // number of them in the answer
};
// Throws Error, with the line, if the answer has no token of its own, has more tokens than the model's context, or has
// a special token that is refused.
AnswerTokens encode_answer(const Tokenizer& tokenizer, const Question& question, const std::string& answer,
                           int64_t model_context, SpecialTexts special_texts = SpecialTexts::ids);

// Returns the first answer with the largest log-likelihood, or the largest per character.
int64_t best_answer(const Question& question, const Answered& answered, bool by_character);

Scores score(const std::vector<Question>& questions, const std::vector<Answered>& answered);

}  // namespace megalith
