// The conversation of a JSON line, in the common formats. Inside data/ only.
//
//   {"messages": [{"role": "user", "content": "..."}, ...]}                    OpenAI's
//   {"conversations": [{"from": "human", "value": "..."}, ...], "system": "..."}   ShareGPT's
//   {"instruction": "...", "input": "...", "output": "...", "system": "...", "history": [["...", "..."], ...]} Alpaca's
//   {PROMPT: "...", COMPLETION: "..."}                                          if the user names these two fields
//
// The content of an assistant's message with "weight": 0 or "train": false is not trained on. Unsupported parts that
// would change the text, or what counts, are refused by name: tool calls, reasoning, other roles, contents in parts.
#pragma once

#include <simdjson.h>

#include <string>
#include <vector>

#include "data/conversations/chat_template.h"
#include "data/corpus/text_batches.h"

namespace megalith {

// Describes the expected form of a line, for messages.
std::string form_of(const ConversationFields& fields);

// Returns the messages of a line, an object; or sets `bad` to a description of its error.
std::vector<ChatMessage> messages_in(const simdjson::dom::element& line, const ConversationFields& fields,
                                     std::string& bad);

}  // namespace megalith
