// Two layouts at a time: where one only moves the other's data, training is the same to the last bit; and a checkpoint
// of one goes on in the other.
#include <fmt/format.h>

#include "tests/end_to_end/layout.h"

namespace megalith::e2e {
namespace {

// Two layouts in which every number of the model comes from the same sums in the same order.
struct Twins {
  enum class Equal {
    everything,  // losses and norms as well
    weights,     // ranks own other parts: what is added up over them in f64 may differ in its last digits, and
                 // clipping, which depends on it, is off
  };
  Equal equal;
  std::string model;
  int ranks;
  std::string words, others;
  int other_ranks = 0;  // 0: the same
};

constexpr auto everything = Twins::Equal::everything, weights = Twins::Equal::weights;
const std::vector<Twins> twins = {
    // Kept or gathered again; scattered now or after the last microbatch, where it is the only one.
    {everything, "tiny", 4, "full_shard microbatch=1", "shard_grad_op microbatch=1"},
    {everything, "tiny", 8, "full_shard shard=2 microbatch=1", "shard_grad_op shard=2 microbatch=1"},
    {everything, "odd", 3, "full_shard", "shard_grad_op"},
    {everything, "tiny", 4, "shard_grad_op microbatch=2", "shard_optimizer microbatch=2"},
    {everything, "small", 4, "full_shard", "full_shard replicate=20000"},
    {everything, "small", 4, "full_shard microbatch=1", "full_shard live=1000000 microbatch=1"},
    // In one level or in two.
    {everything, "tiny", 8, "shard=4 nodes=2 microbatch=1", "shard=4 nodes=2 two_level microbatch=1"},
    {everything, "tiny", 8, "tensor=2 nodes=4", "tensor=2 nodes=4 two_level"},
    {everything, "tiny", 8, "pipeline=2 shard_optimizer nodes=2", "pipeline=2 shard_optimizer nodes=2 two_level"},
    // Computed once or twice.
    {everything, "tiny", 4, "tensor=4 sequence", "tensor=4 sequence recompute"},
    {everything, "small", 4, "pipeline=4 microbatch=1", "pipeline=4 microbatch=1 recompute"},
    // Now or later: a layer's gradients are added up in the order of the microbatches.
    {everything, "small", 4, "pipeline=4 microbatch=1", "pipeline=4 gpipe microbatch=1"},
    {everything, "small", 4, "pipeline=4 microbatch=1", "pipeline=4 active=2 microbatch=1"},
    {everything, "small", 2, "pipeline=2 virtual=2 microbatch=1", "pipeline=2 virtual=2 gpipe microbatch=1"},
    {everything, "odd", 8, "pipeline=4 virtual=2", "pipeline=4 virtual=2 gpipe active=2 recompute shard_grad_op"},
    {everything, "small", 4, "pipeline=4 microbatch=1", "pipeline=4 schedule=zb_h1 microbatch=1"},
    {everything, "small", 2, "pipeline=2 virtual=2 microbatch=1", "pipeline=2 virtual=2 schedule=zb_h1 microbatch=1"},
    // A batch by another name.
    {everything, "tiny", 4, "tensor=2 microbatch=4", "tensor=2 unscaled microbatch=2"},
    // On other ranks.
    {weights, "small", 2, "pipeline=2 microbatch=1", "pipeline=2 virtual=2 microbatch=1"},
    {weights, "small", 2, "pipeline=2 microbatch=1", "pipeline=2 layers=1,3 microbatch=1"},
    {weights, "small", 2, "pipeline=2 microbatch=1", "pipeline=2 virtual=2 schedule=zb_v microbatch=1"},
    {weights, "odd", 8, "pipeline=4 virtual=2", "pipeline=4 virtual=2 schedule=v_half"},
    {weights, "small", 4, "pipeline=4 microbatch=1", "pipeline=2 microbatch=1", 2},
    {weights, "tiny", 4, "tensor=2", "tensor=2 order=shard,tensor,data,pipeline"},
    {weights, "tiny", 8, "tensor=2 shard=2", "tensor=2 shard=2 order=data,shard,tensor,pipeline"},
    {weights, "tiny", 8, "shard=4 microbatch=1", "shard=4 nodes=2 two_level microbatch=1"},
    {weights, "odd", 6, "tensor=3 pipeline=2", "tensor=3 pipeline=2 order=pipeline,data,shard,tensor"},
    // A sum of two is the same scattered and whole.
    {weights, "tiny", 2, "shard_optimizer microbatch=1", "no_shard microbatch=1"},
};

class BitEqual : public testing::TestWithParam<std::string> {};

void expect_equal(const Course& a, const Course& b, Twins::Equal equal) {
  ASSERT_EQ(a.steps.size(), b.steps.size());
  ASSERT_FALSE(a.steps.empty());
  for (size_t i = 0; i < a.steps.size(); i++) {
    const Step &x = a.steps[i], &y = b.steps[i];
    EXPECT_NEAR(x.loss, y.loss, equal == everything ? 0 : 1e-14 * x.loss) << "step " << x.step;
    EXPECT_NEAR(x.grad_norm, y.grad_norm, equal == everything ? 0 : 1e-14 * x.grad_norm) << "step " << x.step;
  }
  ASSERT_EQ(a.weights.size(), b.weights.size());
  for (const auto& [name, weight] : a.weights)
    EXPECT_TRUE(b.weights.contains(name) && b.weights.at(name) == weight) << name << " differs";
}

TEST_P(BitEqual, layouts_that_only_move_data) {
  const std::string model = GetParam();
  SKIP_WITHOUT_MODEL(model);
  const Scratch scratch;
  prepare_model(scratch, model);
  std::map<int, std::vector<Training>> trainings;  // by ranks
  std::map<std::string, std::string> folders;      // of what is trained, once
  const auto train = [&](int ranks, const std::string& words, Twins::Equal equal) {
    Args more{"model.dropout=0.1", "data.shuffle=true", "train.steps=3"};
    if (equal == weights) more.push_back("optimizer.gradient_clip=0");
    const auto [entry, is_new] =
        folders.emplace(fmt::format("{} {} {}", ranks, words, more.size()), fmt::format("run{}", folders.size()));
    if (is_new) trainings[ranks].push_back({entry->second, words, more});
    return scratch / entry->second;
  };
  std::vector<std::pair<std::string, std::string>> runs;  // of each pair
  for (const Twins& t : twins)
    if (t.model == model)
      runs.emplace_back(train(t.ranks, t.words, t.equal),
                        train(t.other_ranks ? t.other_ranks : t.ranks, t.others, t.equal));
    else
      runs.emplace_back();
  for (const auto& [ranks, several] : trainings) train_several(scratch, ranks, several);
  for (size_t i = 0; i < twins.size(); i++) {
    const Twins& t = twins[i];
    if (t.model != model) continue;
    SCOPED_TRACE(fmt::format("{} ranks: {} | {}", t.ranks, t.words, t.others));
    expect_equal(course_of(runs[i].first), course_of(runs[i].second), t.equal);
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, BitEqual, testing::Values("tiny", "small", "odd"),
                         [](const auto& suite) { return suite.param; });

// A run that changes its layout halfway.
struct Move {
  std::string model;
  int ranks;
  std::string words;
  int then_ranks;
  std::string then;
};

const std::vector<Move> moves = {
    {"small", 4, "tensor=4", 4, "pipeline=4 microbatch=1"},
    {"small", 4, "pipeline=4 microbatch=1", 1, "no_shard"},
    {"small", 2, "pipeline=2 virtual=2 microbatch=2", 2, "full_shard"},
    {"small", 2, "pipeline=2 virtual=2 schedule=zb_h1", 4, "tensor=2 pieces=2 pipeline=2 schedule=zb_h1"},
    {"small", 2, "pipeline=2 virtual=2 schedule=v_half", 4, "tensor=2 pipeline=2 virtual=2 schedule=zb_v"},
    {"tiny", 4, "tensor=4 sequence", 4, "shard_optimizer microbatch=1"},
    {"tiny", 8, "tensor=2 pipeline=2 shard_grad_op microbatch=1", 3, "full_shard microbatch=2"},
    {"tiny", 1, "no_shard", 8, "tensor=4 sequence pipeline=2 gpipe microbatch=1"},
    {"tiny", 8, "shard=4 nodes=2 two_level replicate=3000", 8,
     "tensor=2 unscaled shard=2 microbatch=1 order=data,shard,tensor,pipeline"},
    {"odd", 3, "tensor=3 sequence", 8, "pipeline=8 microbatch=1"},
    {"odd", 8, "pipeline=4 virtual=2 shard_optimizer", 6, "tensor=6"},
    {"odd", 6, "tensor=3 unscaled", 6, "pipeline=3 virtual=2 layers=2,1,1,1,1,2"},
};

class Moves : public testing::TestWithParam<std::string> {};

TEST_P(Moves, a_checkpoint_goes_on_in_another_layout) {
  const std::string model = GetParam();
  SKIP_WITHOUT_MODEL(model);
  const Scratch scratch;
  Course expected = prepare_model(scratch, model);
  const Args shorter = shorten(expected);
  const int64_t half = static_cast<int64_t>(expected.steps.size()) / 2;
  std::map<int, std::vector<Training>> first, then;  // by ranks
  for (size_t i = 0; i < moves.size(); i++) {
    const Move& m = moves[i];
    if (m.model != model) continue;
    first[m.ranks].push_back({fmt::format("run{}", i), m.words, {fmt::format("train.steps={}", half)}});
    then[m.then_ranks].push_back({fmt::format("run{}", i), m.then, shorter});
  }
  for (const auto& [ranks, trainings] : first) train_several(scratch, ranks, trainings);
  for (const auto& [ranks, trainings] : then) {
    const Result rest = train_several(scratch, ranks, trainings);
    EXPECT_EQ(count(rest.out, fmt::format("resumed after step {}\n", half)), trainings.size()) << rest.text();
    expect_courses(scratch, trainings, expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, Moves, testing::Values("tiny", "small", "odd"),
                         [](const auto& suite) { return suite.param; });

}  // namespace
}  // namespace megalith::e2e
