// Keys of Amazon SageMaker's model parallel library, of Megatron-LM and of others, and what they are called here: who
// comes from there types what he knows.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace megalith {

struct ForeignKey {
  std::string_view program, key;
  std::string_view here;  // ours, in backquotes, within a clause where there is more to say
};

std::span<const ForeignKey> foreign_keys();

// Returns a sentence that names our key, "`lr` of Megatron-LM is `optimizer.learning_rate` here", or nothing where the
// name is no key of theirs. `name` is what was written, with or without a section, with dashes or underscores.
std::string foreign_key_message(std::string_view name);

}  // namespace megalith
