// Errors of one rank are errors of the job. together() runs local work on every rank and then exchanges the outcome:
// either all go on, or all throw the same JobError, so that no rank waits in a collective for one that has given up.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "kernels/system/check.h"
#include "trainer/session/session.h"

namespace megalith {

// Already agreed upon by all ranks: rank 0 prints it, everybody ends with a non-zero status.
class JobError : public Error {
 public:
  using Error::Error;
};

// Collective. The ranks' messages: every distinct one up to eight, with the ranks that have it unless all do; empty
// where no rank has one.
std::string merge_messages(const Session& session, const std::string& mine);

// Collective. Returns every rank's value, in rank order: anything that converts to JSON and back, infinity and NaN
// included. Who calls of_all_ranks includes <nlohmann/json.hpp>, which this header, included everywhere, does without.
std::vector<nlohmann::json> json_of_all_ranks(const Session& session, const nlohmann::json& mine);
template <class T>
std::vector<T> of_all_ranks(const Session& session, const T& mine) {
  std::vector<T> all;
  for (const auto& theirs : json_of_all_ranks(session, mine)) all.push_back(theirs.template get<T>());
  return all;
}

// Collective. `work` must not communicate. The JobError holds every distinct message, with the ranks that had it unless
// all did.
void together(const Session& session, const std::function<void()>& work);

}  // namespace megalith
