// The handshake of a job: before a run touches anything, every rank compares what it was started with to what rank 0
// was started with. Ranks that differ unnoticed would train a model that no config describes.
//
// What is compared: the resolved config, key by key; the executable, without the libraries that it loads; the files of
// data.train and data.validation, each with the .idx beside it if there is one; the tokenizer's files. How much of a
// file: content.h. Where a file lies is shown but not compared: it may differ from node to node. A file that cannot be
// read is compared as that; ranks that all lack it agree, and report it when they open it.
#pragma once

#include <array>
#include <map>
#include <string>

#include "configs/config.h"
#include "trainer/session/session.h"

namespace megalith {

// What a rank was started with, by name ("train.steps", "executable"): what is compared and, of files, where they lie.
using LaunchFingerprint = std::map<std::string, std::array<std::string, 2>>;

// Reads the files; no error, whatever it finds in them. Error: data.train is a malformed list.
LaunchFingerprint launch_fingerprint(const Config& config);

// A line for each thing in which a rank differs from rank 0, of the first eight; empty when it does not.
std::string differences(const LaunchFingerprint& mine, const LaunchFingerprint& of_rank_0);

// Collective; writes nothing. A JobError with the ranks that differ, their hosts and their differences; or, where the
// launcher has started several processes that do not know of one another, with that. `more` is compared as well.
void check_ranks_agree(const Config& config, const Session& session, const LaunchFingerprint& more = {});

}  // namespace megalith
