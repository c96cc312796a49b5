// Turns an error of one rank into an error of the job. together() runs local work on every rank and then exchanges the
// outcome: either all continue, or all throw the same JobError, so that no rank waits for one that has given up.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "kernels/system/check.h"
#include "trainer/session/session.h"

namespace megalith {

// An error on all ranks: rank 0 prints it, and every rank ends with a non-zero status.
class JobError : public Error {
 public:
  using Error::Error;
};

// Collective. Joins the ranks' distinct messages, at most eight, each with its ranks unless all have it. Returns "" if
// no rank has a message.
std::string merge_messages(const Session& session, const std::string& mine);

// Collective. Returns every rank's value, in rank order: anything that converts to JSON and back, infinity and NaN
// included. Callers include <nlohmann/json.hpp>, which is too slow to parse for this header.
std::vector<nlohmann::json> json_of_all_ranks(const Session& session, const nlohmann::json& mine);
template <class T>
std::vector<T> of_all_ranks(const Session& session, const T& mine) {
  std::vector<T> all;
  for (const auto& theirs : json_of_all_ranks(session, mine)) all.push_back(theirs.template get<T>());
  return all;
}

// Collective. `work` must not communicate. The JobError has the text of merge_messages().
void together(const Session& session, const std::function<void()>& work);

}  // namespace megalith
