#include "tests/end_to_end/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <stdexcept>

#include "tests/long_tests.h"

namespace megalith::e2e {
namespace {

// "word", or "word=" for one with a value, and the overrides; commas in a value stand for blanks.
const std::map<std::string, Args>& dictionary() {
  static const std::map<std::string, Args> words = {{"tensor=", {"parallel.tensor_parallel_degree="}},
                                                    {"sequence", {"parallel.sequence_parallel=true"}},
                                                    {"pieces=", {"parallel.tensor_pieces="}},
                                                    {"unscaled", {"parallel.prescaled_batch=false"}},
                                                    {"pipeline=", {"parallel.pipeline_parallel_degree="}},
                                                    {"virtual=", {"parallel.virtual_stages="}},
                                                    {"gpipe", {"parallel.pipeline_schedule=gpipe"}},
                                                    {"schedule=", {"parallel.pipeline_schedule="}},
                                                    {"active=", {"parallel.active_microbatches="}},
                                                    {"layers=", {"parallel.layers_per_stage="}},
                                                    {"full_shard", {"parallel.sharding_strategy=full_shard"}},
                                                    {"shard_grad_op", {"parallel.sharding_strategy=shard_grad_op"}},
                                                    {"shard_optimizer", {"parallel.sharding_strategy=shard_optimizer"}},
                                                    {"no_shard", {"parallel.sharding_strategy=no_shard"}},
                                                    {"shard=", {"parallel.sharded_data_parallel_degree="}},
                                                    {"nodes=", {"parallel.ranks_per_node="}},
                                                    {"two_level", {"parallel.hierarchical_allgather=true"}},
                                                    {"live=", {"parallel.max_live_parameters="}},
                                                    {"replicate=", {"parallel.replicate_below="}},
                                                    {"order=", {"parallel.placement="}},
                                                    {"recompute", {"memory.activation_checkpointing=each"}},
                                                    {"recompute=", {"memory.activation_checkpointing="}},
                                                    {"offload", {"memory.offload_activations=true"}},
                                                    {"offload_optimizer=", {"memory.offload_optimizer="}},
                                                    {"offload_parameters", {"memory.offload_parameters=true"}},
                                                    {"microbatch=", {"batch.microbatch_size="}},
                                                    {"clip=", {"optimizer.gradient_clip="}}};
  return words;
}

const std::set<std::string> schedules = {"1f1b", "gpipe", "zb_h1", "zb_v", "v_half"};

using Keys = std::map<std::string, std::string>;

Keys keys_of(const Args& overrides) {
  Keys keys;
  for (const std::string& o : overrides) keys[o.substr(0, o.find('='))] = o.substr(o.find('=') + 1);
  return keys;
}

// The degrees of a layout, as the config's sentences define them.
struct Degrees {
  Keys keys;
  int64_t tensor, pipeline, data, shard;  // data: all data-parallel ranks, shard of which share one copy

  Degrees(int ranks, const Args& overrides) : keys(keys_of(overrides)) {
    tensor = number("parallel.tensor_parallel_degree", 1);
    pipeline = number("parallel.pipeline_parallel_degree", 1);
    data = ranks / (tensor * pipeline);
    shard = number("parallel.sharded_data_parallel_degree", 0);
    if (strategy() == "no_shard") shard = 1;
    if (shard == 0) shard = data;
  }
  std::string word(const std::string& key, const std::string& absent) const {
    const auto at = keys.find(key);
    return at == keys.end() ? absent : at->second;
  }
  int64_t number(const std::string& key, int64_t absent) const {
    const auto at = keys.find(key);
    return at == keys.end() ? absent : std::stoll(at->second);
  }
  std::string strategy() const { return word("parallel.sharding_strategy", "full_shard"); }

  // The axes that have several ranks, innermost first.
  std::vector<std::string> order(const std::string& placement) const {
    const std::map<std::string, int64_t> size = {
        {"tensor", tensor}, {"shard", shard}, {"data", data / shard}, {"pipeline", pipeline}};
    std::istringstream axes(placement);
    std::vector<std::string> several;
    for (std::string axis; axes >> axis;)
      if (size.at(axis) > 1) several.push_back(axis);
    return several;
  }
  std::vector<std::string> order() const { return order(word("parallel.placement", "tensor shard data pipeline")); }
  bool placed() const { return order() != order("tensor shard data pipeline"); }

  // Whether a shard group has several ranks on a node and spans several nodes.
  bool two_levels() const {
    if (word("parallel.hierarchical_allgather", "false") != "true") return false;
    int64_t distance = 1;
    for (const std::string& axis : order()) {
      if (axis == "shard") break;
      distance *= axis == "tensor" ? tensor : axis == "pipeline" ? pipeline : data / shard;
    }
    const int64_t node = number("parallel.ranks_per_node", 0);
    return distance < node && distance * shard > node;
  }
};

}  // namespace

Args overrides_of(const std::string& words) {
  Args overrides;
  std::istringstream stream(words);
  for (std::string word; stream >> word;) {
    const size_t equals = word.find('=');
    const std::string name = equals == std::string::npos ? word : word.substr(0, equals + 1);
    std::string value = equals == std::string::npos ? "" : word.substr(equals + 1);
    std::replace(value.begin(), value.end(), ',', ' ');
    const auto found = dictionary().find(name);
    if (found == dictionary().end()) throw std::runtime_error("no layout knows the word " + word);
    for (const std::string& o : found->second) overrides.push_back(o.ends_with('=') ? o + value : o);
  }
  return overrides;
}

std::set<std::string> mechanisms_of(int ranks, const Args& overrides) {
  const Degrees d(ranks, overrides);
  std::set<std::string> used;
  const auto use = [&](bool condition, const std::string& mechanism) {
    if (condition) used.insert(mechanism);
  };
  const bool tensor = d.tensor > 1, pipeline = d.pipeline > 1, shard = d.shard > 1;
  use(tensor, "tensor");
  use(tensor && d.word("parallel.sequence_parallel", "false") == "true", "sequence");
  use(tensor && d.word("parallel.prescaled_batch", "true") == "false", "prescaled_batch off");
  use(tensor && d.number("parallel.tensor_pieces", 0) > 0, "tensor_pieces");
  use(pipeline, d.word("parallel.pipeline_schedule", "1f1b"));
  use(pipeline && d.number("parallel.virtual_stages", 1) > 1, "interleaved");
  use(pipeline && d.number("parallel.active_microbatches", 0) > 0, "active_microbatches");
  use(pipeline && d.word("parallel.layers_per_stage", "") != "", "layers_per_stage");
  use(d.data > 1 && (shard || d.strategy() == "no_shard"), d.strategy());
  use(shard && d.shard < d.data, "sharded_data_parallel_degree");
  use(d.two_levels(), "hierarchical_allgather");
  use(shard && d.number("parallel.max_live_parameters", 0) > 0, "max_live_parameters");
  use(shard && d.number("parallel.replicate_below", 0) > 0, "replicate_below");
  use(d.placed(), "placement");
  use(d.word("memory.activation_checkpointing", "none") != "none", "recompute");
  return used;
}

const std::set<std::string>& all_mechanisms() {
  static const std::set<std::string> others = {"tensor",
                                               "sequence",
                                               "prescaled_batch off",
                                               "tensor_pieces",
                                               "interleaved",
                                               "active_microbatches",
                                               "layers_per_stage",
                                               "full_shard",
                                               "shard_grad_op",
                                               "shard_optimizer",
                                               "no_shard",
                                               "placement",
                                               "recompute",
                                               "sharded_data_parallel_degree",
                                               "hierarchical_allgather",
                                               "replicate_below",
                                               "max_live_parameters"};
  static const std::set<std::string> all = [] {
    std::set<std::string> both = others;
    both.insert(schedules.begin(), schedules.end());
    return both;
  }();
  return all;
}

bool exclude_each_other(const std::string& a, const std::string& b) {
  static const std::set<std::string> strategies = {"full_shard", "shard_grad_op", "shard_optimizer", "no_shard"};
  static const std::set<std::string> gathers = {"sharded_data_parallel_degree", "hierarchical_allgather",
                                                "replicate_below", "max_live_parameters"};
  // Only full_shard gives gathered layers back before the update.
  static const std::set<std::string> keep = {"shard_grad_op", "shard_optimizer"};
  const auto either = [&](const auto& law) { return law(a, b) || law(b, a); };
  const auto two_of = [&](const std::set<std::string>& one) { return a != b && one.contains(a) && one.contains(b); };
  return two_of(strategies) || two_of(schedules) || either([&](const auto& x, const auto& y) {
           return (x == "no_shard" && gathers.contains(y)) || (x == "max_live_parameters" && keep.contains(y)) ||
                  (x == "active_microbatches" && y == "v_half");
         });
}

void write_odd(const Scratch& scratch) {
  std::string tokens;
  uint64_t state = 1;
  for (int i = 0; i < 4 * 12 * 24 + 1; i++) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const uint64_t token = (state >> 33) % 101;
    tokens += {static_cast<char>(token & 255), static_cast<char>(token >> 8)};
  }
  write_file(scratch / "tokens.bin", tokens);
  write_file(scratch / "config.toml",
             "[model]\nlayers = 8\nhidden = 48\nheads = 6\nvocab = 101\ncontext = 26\ndropout = 0.1\n"
             "[data]\ntrain = \"tokens.bin\"\n"
             "[batch]\nsequence_length = 24\nglobal_batch_size = 12\nmicrobatch_size = 2\n"
             "[optimizer]\nlearning_rate = 3e-3\nwarmup_steps = 2\ndecay_steps = 6\n"
             "[train]\nsteps = 6\n[run]\noutput = \"run\"\n");
}

Course prepare_model(const Scratch& scratch, const std::string& model) {
  if (model != "odd") {
    write_reference_config(scratch / "config.toml", reference(model), reference(model));
    return reference_course(reference(model));
  }
  write_odd(scratch);
  train(scratch.folder(), 1, {"run.output=alone"});
  return {read_steps(scratch / "alone"), exported_weights(scratch.folder(), scratch / "alone")};
}

Args shorten(Course& course) {
  const auto steps = static_cast<size_t>(taken("Course.steps"));
  if (course.steps.size() <= steps) return {};
  course.steps.resize(steps);
  course.weights.clear();
  return {fmt::format("train.steps={}", steps)};
}

Result train_several(const Scratch& scratch, int ranks, const std::vector<Training>& trainings) {
  Args args{"config.toml"};
  for (const Training& t : trainings) {
    if (args.size() > 1) args.push_back("--");
    args.push_back("run.output=" + t.name);
    for (const Args& more : {overrides_of(t.words), t.overrides}) args.insert(args.end(), more.begin(), more.end());
  }
  const std::string program = place("MEGALITH_TRAIN_SEVERAL", MEGALITH_TRAIN_SEVERAL);
  const Result result = run(mpirun(ranks, program, args), scratch.folder(), 300);
  EXPECT_EQ(result.status, 0) << result.text();
  return result;
}

void expect_courses(const Scratch& scratch, const std::vector<Training>& trainings, const Course& expected) {
  for (const Training& t : trainings) {
    SCOPED_TRACE(t.words);
    fmt::print("  {}: {}\n", t.words, expect_same_course(course_of(scratch / t.name), expected));
  }
}

}  // namespace megalith::e2e
