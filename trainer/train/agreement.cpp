#include "trainer/train/agreement.h"

#include <algorithm>
#include <vector>

namespace megalith {

void together(const Session& session, const std::function<void()>& work) {
  std::string mine;
  try {
    work();
  } catch (const std::exception& e) {
    mine = e.what();
    if (mine.empty()) mine = "an error without a message";
  }
  const std::vector<std::string> all = session.all_gather_text(mine);
  std::vector<std::string> distinct;
  for (const std::string& message : all)
    if (!message.empty() && std::find(distinct.begin(), distinct.end(), message) == distinct.end())
      distinct.push_back(message);
  if (distinct.empty()) return;

  std::string text;
  for (const std::string& message : distinct) {
    std::string ranks;
    for (size_t r = 0; r < all.size(); r++)
      if (all[r] == message) ranks += fmt::format("{}{}", ranks.empty() ? "" : ", ", r);
    const bool everybody = std::count(all.begin(), all.end(), message) == static_cast<int64_t>(all.size());
    text += (text.empty() ? "" : "\n") + (everybody ? message : fmt::format("rank {}: {}", ranks, message));
  }
  throw JobError(__FILE__, __LINE__, text);
}

}  // namespace megalith
