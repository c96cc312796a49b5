// Layouts from outside: whatever the degrees and strategies, training takes the course of the reference; what is
// impossible is refused.
#include <fmt/format.h>

#include "tests/end_to_end/layout.h"

namespace megalith::e2e {
namespace {

const std::vector<Layout> layouts = {
    {"tiny", 1, "recompute"},
    {"tiny", 2, "tensor=2"},
    {"tiny", 4, "tensor=4"},
    {"tiny", 2, "tensor=2 sequence"},
    {"tiny", 4, "tensor=4 sequence recompute=selective"},
    {"tiny", 2, "tensor=2 pieces=3"},
    {"tiny", 4, "tensor=4 sequence pieces=2 recompute"},
    {"tiny", 8, "tensor=2 sequence pieces=2 pipeline=2 shard_grad_op recompute=selective microbatch=1"},
    {"tiny", 2, "pipeline=2"},
    {"tiny", 2, "pipeline=2 gpipe microbatch=1"},
    {"tiny", 2, "pipeline=2 active=1 microbatch=1 recompute"},
    {"tiny", 4, "tensor=2 pipeline=2"},
    {"tiny", 4, "tensor=2 sequence pipeline=2 gpipe"},
    {"tiny", 8, "tensor=4 sequence pipeline=2 active=2 microbatch=1"},
    {"tiny", 2, "full_shard"},
    {"tiny", 3, "shard_grad_op microbatch=1"},
    {"tiny", 4, "shard_optimizer microbatch=1"},
    {"tiny", 8, "no_shard microbatch=1 recompute=contiguous"},
    {"tiny", 8, "full_shard shard=2 microbatch=1"},
    {"small", 8, "full_shard nodes=2 two_level live=700000 microbatch=1"},
    {"tiny", 8, "full_shard shard=4 nodes=2 two_level live=200000 recompute offload_optimizer=1 offload_parameters"},
    {"tiny", 8, "shard_grad_op shard=4 nodes=2 two_level replicate=3000"},
    {"tiny", 4, "shard_optimizer shard=2 replicate=20000 recompute microbatch=1"},
    {"tiny", 4, "tensor=2 full_shard replicate=3000"},
    {"tiny", 4, "tensor=2 sequence shard_grad_op recompute=selective microbatch=1"},
    {"tiny", 8, "tensor=2 shard_optimizer shard=2 microbatch=2"},
    {"tiny", 8, "tensor=4 sequence no_shard recompute=group_2"},
    {"tiny", 4, "tensor=2 no_shard unscaled microbatch=1"},
    {"tiny", 8, "tensor=2 sequence unscaled full_shard nodes=4 two_level live=100000 microbatch=1"},
    {"tiny", 8, "tensor=2 sequence unscaled shard_optimizer shard=2 replicate=3000 microbatch=1"},
    {"tiny", 4, "pipeline=2 shard_grad_op microbatch=1"},
    {"tiny", 8, "pipeline=2 shard_optimizer nodes=2 two_level recompute microbatch=1"},
    {"tiny", 8, "pipeline=2 gpipe no_shard microbatch=1"},
    {"tiny", 8, "pipeline=2 gpipe full_shard shard=2 microbatch=1"},
    {"tiny", 8, "tensor=2 sequence pipeline=2 full_shard live=200000"},
    {"tiny", 8, "tensor=2 full_shard shard=2 order=shard,data,tensor,pipeline"},
    {"tiny", 8, "tensor=2 sequence shard_grad_op nodes=2 two_level order=shard,tensor,data,pipeline"},
    {"tiny", 8, "tensor=2 pipeline=2 no_shard order=pipeline,data,tensor,shard microbatch=1"},
    {"small", 8, "tensor=8 sequence"},
    {"small", 3, "pipeline=3"},
    {"small", 4, "pipeline=4 microbatch=1"},
    {"small", 8, "pipeline=4 full_shard nodes=1 two_level microbatch=2 offload_optimizer=0.5"},
    {"small", 2, "pipeline=2 virtual=2 microbatch=1"},
    {"small", 2, "pipeline=2 virtual=2 gpipe active=2 microbatch=1 recompute offload"},
    {"small", 4, "pipeline=2 layers=1,3 shard_grad_op microbatch=2"},
    {"small", 8, "pipeline=2 virtual=2 shard=2 active=3 shard_grad_op replicate=20000 microbatch=1"},
    {"small", 8, "pipeline=2 virtual=2 gpipe nodes=2 two_level shard_optimizer layers=1,1,1,1 microbatch=1"},
    {"small", 8,
     "tensor=2 sequence pipeline=2 virtual=2 unscaled microbatch=1 live=400000 recompute=selective active=4"},
    {"small", 8, "tensor=2 pipeline=4 layers=1,1,1,1 gpipe unscaled order=pipeline,tensor,shard,data microbatch=1"},
    {"tiny", 4, "pipeline=2 gpipe active=2 shard_grad_op microbatch=1"},
    {"small", 4, "pipeline=2 active=1 shard_optimizer microbatch=2"},
    {"small", 8, "pipeline=2 layers=1,3 full_shard shard=2 live=400000 replicate=20000 recompute offload microbatch=2"},
    {"small", 8,
     "pipeline=2 gpipe active=3 nodes=4 two_level live=400000 replicate=20000 recompute=contiguous offload "
     "order=pipeline,shard,tensor,data microbatch=1"},
    {"small", 2, "pipeline=2 schedule=zb_h1 microbatch=1"},
    {"small", 8, "pipeline=2 virtual=2 schedule=zb_h1 shard_optimizer shard=2 microbatch=1"},
    {"small", 8,
     "pipeline=2 virtual=2 schedule=zb_h1 active=2 nodes=4 two_level live=400000 replicate=20000 recompute "
     "order=pipeline,shard,tensor,data microbatch=1"},
    {"small", 8, "tensor=2 sequence unscaled pieces=2 pipeline=2 schedule=zb_h1 layers=1,3 shard_grad_op microbatch=1"},
    {"tiny", 8, "tensor=2 pieces=2 pipeline=2 schedule=zb_h1 no_shard order=pipeline,data,tensor,shard microbatch=1"},
    {"small", 8, "tensor=2 pieces=2 full_shard nodes=4 two_level live=400000 replicate=20000 microbatch=2"},
    {"small", 8, "tensor=2 sequence pieces=3 pipeline=2 virtual=2 gpipe active=2 shard_optimizer microbatch=2"},
    {"tiny", 8, "tensor=2 pieces=2 full_shard shard=2 microbatch=1"},
    {"small", 8, "pipeline=2 virtual=2 schedule=zb_v active=3 shard_optimizer shard=2 microbatch=1"},
    {"small", 8,
     "pipeline=2 virtual=2 schedule=v_half nodes=4 two_level live=400000 replicate=20000 recompute "
     "order=pipeline,shard,tensor,data microbatch=1"},
    {"small", 8,
     "tensor=2 sequence unscaled pieces=2 pipeline=2 virtual=2 schedule=zb_v layers=1,1,1,1 shard_grad_op "
     "microbatch=1"},
    {"odd", 3, "tensor=3"},
    {"odd", 6, "tensor=6 sequence"},
    {"odd", 8, "pipeline=8 microbatch=1"},
    {"odd", 6, "tensor=3 sequence pipeline=2 virtual=3 layers=1,2,1,2,1,1"},
    {"odd", 6, "pipeline=3 virtual=2 no_shard active=2 layers=2,1,1,1,1,2"},
    {"odd", 6, "tensor=2 sequence unscaled shard_optimizer microbatch=1 order=shard,tensor,data,pipeline"},
    {"odd", 6, "tensor=3 sequence shard_grad_op unscaled microbatch=2 recompute=group_3 offload"},
    {"odd", 8, "pipeline=4 virtual=2 full_shard live=100000 replicate=2000 order=pipeline,shard,tensor,data"},
    {"odd", 8,
     "pipeline=2 virtual=2 schedule=zb_v nodes=4 two_level live=100000 replicate=2000 recompute "
     "order=pipeline,shard,tensor,data microbatch=1"},
    {"odd", 8, "pipeline=4 virtual=2 schedule=zb_v no_shard microbatch=1"},
    {"odd", 8, "pipeline=4 virtual=2 schedule=v_half no_shard microbatch=1"},
    {"odd", 8, "pipeline=2 virtual=2 schedule=v_half shard_optimizer shard=2 microbatch=1"},
    {"odd", 8,
     "tensor=2 sequence unscaled pieces=2 pipeline=2 virtual=2 schedule=v_half layers=1,3,2,2 shard_grad_op "
     "microbatch=1"},
};

class LayoutTable : public testing::TestWithParam<Size> {};

TEST_P(LayoutTable, takes_the_course_of_the_reference) {
  const auto& [model, ranks] = GetParam();
  SKIP_WITHOUT_MODEL(model);
  const Scratch scratch;
  Course expected = prepare_model(scratch, model);
  const Args shorter = shorten(expected);
  std::vector<Training> trainings;
  for (const Layout& l : layouts)
    if (l.model == model && l.ranks == ranks)
      trainings.push_back({fmt::format("run{}", trainings.size()), l.words, shorter});
  train_several(scratch, ranks, trainings);
  expect_courses(scratch, trainings, expected);
}

INSTANTIATE_TEST_SUITE_P(Layouts, LayoutTable, testing::ValuesIn(sizes_of(layouts)),
                         [](const auto& suite) { return suite.param.name(); });

TEST(Layouts, every_pair_of_mechanisms_is_in_the_table) {
  EXPECT_GE(layouts.size(), 40u);
  std::set<std::string> covered, degrees;
  for (const Layout& layout : layouts) {
    EXPECT_LE(layout.ranks, 8);
    const std::set<std::string> used = mechanisms_of(layout.ranks, overrides_of(layout.words));
    for (const std::string& a : used) {
      ASSERT_TRUE(all_mechanisms().contains(a)) << a;
      for (const std::string& b : used) {
        EXPECT_FALSE(exclude_each_other(a, b)) << a << " and " << b << " in " << layout.words;
        covered.insert(a + " and " + b);
      }
    }
    for (const std::string axis : {"tensor", "pipeline"})
      for (const int degree : {1, 2, 3, 4, 8})
        if ((" " + layout.words + " ").find(fmt::format(" {}={} ", axis, degree)) != std::string::npos)
          degrees.insert(fmt::format("{}={}", axis, degree));
  }
  for (const std::string& a : all_mechanisms())
    for (const std::string& b : all_mechanisms())
      if (a <= b && !exclude_each_other(a, b)) {
        EXPECT_TRUE(covered.contains(a + " and " + b)) << a << " and " << b;
      }
  for (const char* degree :
       {"tensor=2", "tensor=3", "tensor=4", "tensor=8", "pipeline=2", "pipeline=3", "pipeline=4", "pipeline=8"})
    EXPECT_TRUE(degrees.contains(degree)) << degree;
}

// Degree 3 against the independent reference as well, where it can be made.
TEST(Layouts, degrees_of_three_against_a_reference_of_their_own) {
  SKIP_WITHOUT_REFERENCE();
  const std::string python = python_with("torch, numpy, h5py");
  if (python.empty()) GTEST_SKIP() << "MEGALITH_PYTHON names no Python with torch, numpy and h5py";
  const Scratch scratch;
  const std::string folder = scratch / "reference";
  const Result made = run({python, MEGALITH_SOURCE_DIR "/../shared/reference/make_reference.py",
                           folder, "--layers",
                           "6",    "--hidden",
                           "48",   "--heads",
                           "6",    "--vocab",
                           "101",  "--seq",
                           "24",   "--context",
                           "26",   "--batch",
                           "2",    "--accum",
                           "6",    "--steps",
                           "6",    "--decay-steps",
                           "6",    "--seed",
                           "9"},
                          scratch.folder());
  ASSERT_EQ(made.status, 0) << made.text();
  write_reference_config(scratch / "config.toml", folder, folder);
  const Course expected = reference_course(folder);
  for (const auto& [ranks, trainings] : std::map<int, std::vector<Training>>{
           {3, {{"tensor", "tensor=3", {}}, {"full_shard", "full_shard microbatch=1", {}}}},
           {6,
            {{"sequence", "tensor=6 sequence", {}},
             {"virtual", "tensor=3 sequence pipeline=2 virtual=3", {}},
             {"gpipe", "pipeline=3 gpipe no_shard", {}}}}}) {
    train_several(scratch, ranks, trainings);
    expect_courses(scratch, trainings, expected);
  }
}

struct Refusal {
  std::string name;
  int ranks;
  Args overrides;
  Args words;  // in the message, in any order
};

void PrintTo(const Refusal& refusal, std::ostream* out) { *out << refusal.name; }

class RefusedLayout : public testing::TestWithParam<Refusal> {};

TEST_P(RefusedLayout, ends_all_ranks_at_once_with_one_message) {
  SKIP_WITHOUT_REFERENCE();
  const Scratch scratch;
  prepare_model(scratch, "tiny");
  Args args{"train", "config.toml"};
  args.insert(args.end(), GetParam().overrides.begin(), GetParam().overrides.end());
  expect_refused(mpirun(GetParam().ranks, args), scratch, GetParam().words);
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, RefusedLayout,
    testing::Values(
        Refusal{"product",
                6,
                {"parallel.tensor_parallel_degree=4"},
                {"tensor_parallel_degree 4 x pipeline_parallel_degree 1 = 4", "6 ranks", "4 or 8 ranks",
                 "tensor_parallel_degree = 1 or 2"}},
        Refusal{"heads", 6, {"parallel.tensor_parallel_degree=3"}, {"does not divide model.heads = 4", "1 2 4"}},
        Refusal{"layers", 6, {"parallel.pipeline_parallel_degree=3"}, {"model.layers = 2", "at most 2 x 1"}},
        Refusal{"list_of_layers",
                6,
                {"parallel.pipeline_parallel_degree=2", "parallel.layers_per_stage=1 2"},
                {"parallel.layers_per_stage", "model.layers = 2"}},
        Refusal{"shards",
                6,
                {"parallel.sharded_data_parallel_degree=4"},
                {"parallel.sharded_data_parallel_degree = 4", "6 data-parallel ranks", "1 or 2 or 3 or 6"}},
        Refusal{"nodes",
                6,
                {"parallel.hierarchical_allgather=true", "parallel.ranks_per_node=4"},
                {"parallel.hierarchical_allgather", "parallel.ranks_per_node = 4"}},
        Refusal{"batch",
                6,
                {"parallel.tensor_parallel_degree=2", "parallel.prescaled_batch=false", "batch.microbatch_size=8"},
                {"parallel.prescaled_batch", "batch.global_batch_size = 8"}},
        Refusal{"placement", 6, {"parallel.placement=tensor data"}, {"parallel.placement", "each of tensor, shard"}}),
    [](const auto& suite) { return suite.param.name; });

}  // namespace
}  // namespace megalith::e2e
