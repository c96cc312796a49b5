// This header finds runs that are trained on what they are evaluated on.
#pragma once

#include "trainer/step/text_data.h"

namespace megalith {

// Returns whether data.train has a file of data.validation: the same one, by whatever name or link, or one of the same
// bytes. Error unless data.allow_overlap says that it may be so, since losses of what is learnt say nothing of other
// text. Files are read only where others have as many bytes, and up to the first difference.
bool trains_on_held_out(const Config& config, const Loader& train, const HeldOut& held);

}  // namespace megalith
