// Files that a run reads twice: those that it is trained and evaluated on, and those that data.train has under two
// names. Two files are the same if they are one, by whatever name or link, or have the same bytes. They are read only
// where others have as many bytes, and up to the first difference.
#pragma once

#include <string>
#include <vector>

#include "trainer/step/text_data.h"

namespace megalith {

// Returns whether data.train has a file of data.validation. Error unless data.allow_overlap says that it may be so,
// since losses on training data say nothing about other text.
bool trains_on_held_out(const Config& config, const Loader& train, const HeldOut& held);

// Returns a sentence for each file of data.train that is there under another name before.
std::vector<std::string> files_trained_on_twice(const Loader& train);

}  // namespace megalith
