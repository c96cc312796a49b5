#include "trainer/job/agreement.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "kernels/system/json.h"
#include "kernels/system/process_limits.h"

namespace megalith {

std::string merge_messages(const Session& session, const std::string& mine) {
  const std::vector<std::string> all = session.all_gather_text(mine);
  std::vector<std::string> distinct;
  for (const std::string& message : all)
    if (!message.empty() && std::ranges::find(distinct, message) == distinct.end()) distinct.push_back(message);

  constexpr size_t shown = 8;
  const std::string more = distinct.size() > shown ? fmt::format("\nand {} more", distinct.size() - shown) : "";
  distinct.resize(std::min(distinct.size(), shown));
  std::string text;
  for (const std::string& message : distinct) {
    std::string ranks;
    for (size_t r = 0; r < all.size(); r++)
      if (all[r] == message) ranks += fmt::format("{}{}", ranks.empty() ? "" : ", ", r);
    const bool all_have_it = std::ranges::count(all, message) == std::ssize(all);
    text += (text.empty() ? "" : "\n") + (all_have_it ? message : fmt::format("rank {}: {}", ranks, message));
  }
  return text + more;
}

std::vector<nlohmann::json> json_of_all_ranks(const Session& session, const nlohmann::json& mine) {
  std::vector<nlohmann::json> all;
  for (const std::string& theirs : session.all_gather_text(to_cbor(mine))) all.push_back(from_cbor(theirs));
  return all;
}

void together(const Session& session, const std::function<void()>& work) {
  std::string mine;
  try {
    work();
  } catch (const std::exception& e) {
    mine = message_in_words(e);
    if (mine.empty()) mine = "an error without a message";
  }
  if (const std::string text = merge_messages(session, mine); !text.empty()) throw JobError(__FILE__, __LINE__, text);
}

}  // namespace megalith
