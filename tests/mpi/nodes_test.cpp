// What is made of the nodes that ranks were launched on. The ranks are real, their nodes are claimed.
#include "trainer/job/nodes.h"

#include <cstdlib>

#include "tests/checkpoints/helpers.h"
#include "tests/mpi/session.h"
#include "trainer/job/agreement.h"
#include "trainer/verify/verify.h"

namespace megalith {
namespace {

class Elsewhere : public Session {
 public:
  explicit Elsewhere(NodePosition place) {
    rank_ = session().rank();
    size_ = session().size();
    node_rank_ = place.rank_on_node;
    node_size_ = place.ranks_on_node;
  }
  std::vector<std::string> all_gather_text(const std::string& mine) const override {
    return session().all_gather_text(mine);
  }
  std::string broadcast_text(const std::string& text) const override { return session().broadcast_text(text); }
  [[noreturn]] void abort(int status) const override {
    session().abort(status);
    std::abort();  // for a compiler that forgets what a virtual call promises
  }
};

// Nodes of so many ranks, filled in order.
Elsewhere in_order(int ranks) { return Elsewhere({session().rank() % ranks, ranks}); }
// Each rank on the next node, round and round.
Elsewhere round_and_round(int ranks) { return Elsewhere({session().rank() / (session().size() / ranks), ranks}); }

Config hierarchical() {
  Config config;
  config.parallel.hierarchical_allgather = true;
  return config;
}

TEST(Nodes, AreWhatWasLaunched) {
  for (int ranks = 1; ranks <= session().size(); ranks++) {
    if (session().size() % ranks != 0) continue;
    const Elsewhere nodes = in_order(ranks);
    const NodeLayout on_nodes = node_layout(hierarchical(), nodes);
    EXPECT_EQ(on_nodes.config.parallel.ranks_per_node, ranks);
    EXPECT_EQ(on_nodes.warning, "");
  }
}

TEST(Nodes, AreAsTheConfigSaysIfItDoes) {
  Config config = hierarchical();
  config.parallel.ranks_per_node = 5;
  const NodeLayout on_nodes = node_layout(config, Elsewhere({0, session().rank() + 1}));
  EXPECT_EQ(on_nodes.config.parallel.ranks_per_node, 5);
  EXPECT_EQ(on_nodes.warning, "");
}

void expect_refused_or_warned_of(const Elsewhere& nodes, const std::string& why) {
  const std::string message = message_of([&] { node_layout(hierarchical(), nodes); });
  EXPECT_TRUE(message.starts_with("parallel.hierarchical_allgather = true, but " + why)) << message;
  const NodeLayout on_nodes = node_layout(Config(), nodes);
  EXPECT_EQ(on_nodes.config.parallel.ranks_per_node, 0);
  EXPECT_TRUE(on_nodes.warning.starts_with(why)) << on_nodes.warning;
}

TEST(Nodes, OutOfOrderAreRefusedOrWarnedOf) {
  if (session().size() % 2 != 0 || session().size() == 2) GTEST_SKIP() << "two nodes of two ranks or more are needed";
  expect_refused_or_warned_of(round_and_round(session().size() / 2), "rank 1 is number 0 on a node with ");
}

TEST(Nodes, UnequalAreRefusedOrWarnedOf) {
  const int last = session().size() - 1;
  if (last < 2) GTEST_SKIP() << "two ranks on one node and one on another are needed";
  expect_refused_or_warned_of(session().rank() == last ? Elsewhere({0, 1}) : Elsewhere({session().rank(), last}),
                              fmt::format("rank 0 is on a node with {} ranks and rank {} on one with 1", last, last));
}

// verify compares the layouts that train would run.
TEST(Nodes, AreTheSameToVerify) {
  const int ranks = session().size();
  if (ranks != 6) GTEST_SKIP() << "nodes of 3 ranks and groups of 2 are needed";
  const test::TemporaryFolder folder;
  VerifyOptions options;
  options.config = folder / "config.toml";
  test::spill(options.config,
              "[model]\nlayers = 1\nhidden = 8\nheads = 2\nvocab = 31\ncontext = 8\n"
              "[batch]\nsequence_length = 8\nglobal_batch_size = 6\nmicrobatch_size = 1\n"
              "[parallel]\nsharded_data_parallel_degree = 2\n");
  options.against = {"parallel.hierarchical_allgather=true"};
  options.steps = 1;
  const std::string message = message_of([&] { run_verify(options, in_order(3)); });
  EXPECT_NE(message.find("parallel.ranks_per_node = 3"), std::string::npos) << message;
  EXPECT_TRUE(run_verify(options, in_order(2)));
}

}  // namespace
}  // namespace megalith
