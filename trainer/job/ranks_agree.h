// Compares, before a run changes anything, what every rank was started with to what rank 0 was started with. Undetected
// differences would train a model that no config describes.
//
// It compares the resolved config, key by key; the executable, without the libraries that it loads; the files of
// data.train and data.validation, each with its .idx file; the tokenizer's files. content.h defines how much of a file.
// Paths are shown but not compared: they may differ from node to node. A file that cannot be read is compared by its
// error; ranks that all lack it agree, and report it when they open it.
#pragma once

#include <array>
#include <map>
#include <string>

#include "configs/config.h"
#include "trainer/session/session.h"

namespace megalith {

// Maps a name ("train.steps", "executable") to the compared value and, for files, their path.
using LaunchFingerprint = std::map<std::string, std::array<std::string, 2>>;

// Throws Error only if data.train is a malformed list.
LaunchFingerprint launch_fingerprint(const Config& config);

// Returns a line for each of the first eight differences from rank 0, or "".
std::string differences(const LaunchFingerprint& mine, const LaunchFingerprint& of_rank_0);

// Collective; writes nothing. Throws a JobError with the ranks that differ, their hosts and their differences, or if
// the launcher has started several processes that are not connected. Compares `more` as well.
void check_ranks_agree(const Config& config, const Session& session, const LaunchFingerprint& more = {});

}  // namespace megalith
