// Keys of Amazon SageMaker's model parallel library, Megatron-LM and other programs, with their names here.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace megalith {

struct ForeignKey {
  std::string_view program, key;
  std::string_view here;  // our key, in backquotes, in a clause if more must be said
};

std::span<const ForeignKey> foreign_keys();

// Returns a sentence that names our key, "`lr` of Megatron-LM is `optimizer.learning_rate` here", or "" if the name is
// unknown. `name` may have a section, dashes or underscores.
std::string foreign_key_message(std::string_view name);

}  // namespace megalith
