// Answers to words that name neither a command nor a key: a sentence or two, and the page that says more.
#pragma once

#include <span>
#include <string>

namespace megalith {

struct Topic {
  const char* words;   // phrases in lower case, with blanks for hyphens and dots, separated by commas
  const char* answer;  // sentences
  const char* page;    // "trainer/README.md, Stop": a page of the source tree and its heading
};
std::span<const Topic> topics();

// Returns the answers to a query of one or several words, in any case, with hyphens or without; "" if there are none. A
// topic answers if the query has one of its phrases, or one of its phrases has the query.
std::string topics_about(const std::string& query);

// Returns whether a text has a phrase that begins where a word begins. Both are in lower case.
bool has_phrase(const std::string& text, const std::string& phrase);

}  // namespace megalith
