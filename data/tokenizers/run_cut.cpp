#include "data/tokenizers/run_cut.h"

#include <algorithm>

namespace megalith {

RunCut::RunCut(const BpeVocabulary& vocabulary, const MergeTable& table) : vocabulary_(vocabulary), table_(table) {
  for (const std::string& token : vocabulary.tokens) longest_ = std::max(longest_, token.size());
}

size_t RunCut::find(std::string_view run, std::vector<int32_t>& ids) const {
  ids.clear();
  const size_t window = longest_ + end_known_late;
  if (longest_ > longest_token || run.size() < 4 * window) return 0;
  BpeMerger merger(table_);
  merger.merge(run, ids);
  size_t cut = run.size(), distance = 2 * window;
  for (int tries = 0; tries < 3 && distance <= run.size() / 2; tries++, distance *= 4) {
    const auto may_be_cut = [&] {
      return cut + distance <= run.size() && (static_cast<uint8_t>(run[cut]) & 0xc0) != 0x80 && run[cut] != '\'';
    };
    do {
      cut -= vocabulary_.tokens[static_cast<size_t>(ids.back())].size();
      ids.pop_back();
    } while (cut > 0 && !may_be_cut());
    if (cut == 0) return 0;
    if (is_safe(run, cut, ids.back(), merger)) return cut;
  }
  return 0;
}

bool RunCut::is_safe(std::string_view run, size_t cut, int32_t before, BpeMerger& merger) const {
  std::vector<int32_t> ids, apart;  // apart: ids that may follow the previous one without merging with it
  for (size_t end = run.size() - longest_ - end_known_late; end <= run.size(); end++) {
    ids.clear();
    merger.merge(run.substr(cut, end - cut), ids);
    const int32_t after = ids.front();
    if (std::find(apart.begin(), apart.end(), after) != apart.end()) continue;
    const auto& tokens = vocabulary_.tokens;
    ids.clear();
    merger.merge(tokens[static_cast<size_t>(before)] + tokens[static_cast<size_t>(after)], ids);
    if (ids != std::vector{before, after}) return false;
    apart.push_back(after);
  }
  return true;
}

}  // namespace megalith
