// Files that a run reads twice: those that are in both training and validation data, and those that data.train has
// under two names. Two files are the same if they are one, by whatever name or link, or have the same bytes. They are
// read only if others have the same size, and up to the first difference.
#pragma once

#include <string>
#include <vector>

#include "trainer/step/text_data.h"

namespace megalith {

// Returns whether data.train has a file of data.validation. Error unless data.allow_overlap permits it, since losses on
// training data tell nothing about other text.
bool trains_on_validation(const Config& config, const Loader& train, const ValidationSet& set);

// Returns a sentence for each file of data.train that it already has under another name.
std::vector<std::string> files_trained_on_twice(const Loader& train);

}  // namespace megalith
