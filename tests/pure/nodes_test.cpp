// Ranks that fill nodes in order, and all the ways not to.
#include "trainer/job/nodes.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace megalith {
namespace {

// Each rank's node, as a letter.
std::vector<NodePosition> on(const std::string& nodes) {
  std::vector<NodePosition> places;
  for (size_t r = 0; r < nodes.size(); r++)
    places.push_back(
        {.rank_on_node = static_cast<int>(std::count(nodes.begin(), nodes.begin() + static_cast<long>(r), nodes[r])),
         .ranks_on_node = static_cast<int>(std::count(nodes.begin(), nodes.end(), nodes[r]))});
  return places;
}

// Every way to put six ranks on nodes: only four are in order.
TEST(NodeOrder, IsFoundForAllOfSixRanks) {
  std::vector<std::string> in_order;
  std::string nodes(6, 'a');
  for (int n = 0; n < 6 * 6 * 6 * 6 * 6; n++) {  // rank 0 is on a
    for (int r = 1, rest = n; r < 6; r++, rest /= 6) nodes[static_cast<size_t>(r)] = static_cast<char>('a' + rest % 6);
    if (why_out_of_order(on(nodes)).empty()) in_order.push_back(nodes);
  }
  for (const std::string& found : in_order) {
    const size_t each = static_cast<size_t>(std::count(found.begin(), found.end(), 'a'));
    for (size_t r = 0; r < 6; r++) EXPECT_EQ(found[r], found[r / each * each]) << found;
  }
  // One node; two of three, the second of five names; three of two; six of one.
  EXPECT_EQ(in_order.size(), 1u + 5 + 5 * 4 + 5 * 4 * 3 * 2);
}

TEST(NodeOrder, SaysWhere) {
  EXPECT_EQ(why_out_of_order(on("abab")),
            "rank 1 is number 0 on a node with 2 ranks, where it would be number 1 in order");
  EXPECT_EQ(why_out_of_order(on("aab")), "rank 0 is on a node with 2 ranks and rank 2 on one with 1");
}

}  // namespace
}  // namespace megalith
