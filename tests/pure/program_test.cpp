// The laws of program.h. A machine without tensors runs the lists of all ranks of a layout against each other: what a
// residual, a slot or a message holds is a word ("h.3 of 2"), and every instruction checks the words that it reads.
// That the machine sees faults is shown by leaving out every single instruction in turn.
#include "trainer/parallel/program.h"

#include <deque>
#include <map>
#include <optional>
#include <set>

#include "tests/pure/small_run.h"
#include "tests/pure/testing.h"

namespace megalith {
namespace {

using Op = Instruction::Op;
using Programs = std::vector<Program>;  // by rank

// What has gone wrong, in words; none: nothing.
using Fault = std::optional<std::string>;

class Machine {
 public:
  enum class Mode { train, evaluate, layers };

  Machine(const std::vector<Plan>& plans, const Programs& programs, Mode mode, int64_t microbatches)
      : plans_(plans), programs_(programs), mode_(mode), microbatches_(microbatches), ranks_(plans.size()) {}

  // Runs every list as far as messages allow, until all have ended.
  Fault run() {
    try {
      for (bool moved = true; moved;) {
        moved = false;
        for (size_t r = 0; r < ranks_.size(); r++)
          while (ranks_[r].at < programs_[r].size() && step(r)) moved = true;
      }
      for (size_t r = 0; r < ranks_.size(); r++) check_end(r);
      for (size_t r = 1; r < ranks_.size(); r++)
        for (Channel channel : {Channel::shard, Channel::data, Channel::tensor})
          if (together(0, r, channel)) expect(ranks_[r].calls[channel] == ranks_[0].calls[channel], "unlike calls");
    } catch (const std::string& fault) {
      return fault;
    }
    return std::nullopt;
  }

 private:
  struct Residual {
    std::string word;
    bool on_its_way = false;
    int readers = 0;  // backward passes that will still read it
  };
  struct Slot {
    int32_t unit = Instruction::none;
    bool on_its_way = false;
    std::set<int64_t> microbatches{};  // of gradients: those that are in it
  };
  struct Rank {
    size_t at = 0;
    std::map<int32_t, Residual> residuals;
    std::map<int32_t, std::string> saved;  // word of the layer and microbatch
    std::deque<std::string> recomputed;    // the same; the first is used next
    std::map<int32_t, int64_t> batches;    // microbatch
    std::map<int32_t, bool> has_losses;
    std::map<int32_t, Slot> weights, gradients;
    std::map<int32_t, std::set<int64_t>> own;       // by unit: microbatches in its finished gradient
    std::set<int32_t> summed, tensor_summed;        // units
    std::set<int64_t> counted;                      // microbatches whose losses are
    std::map<Channel, std::vector<int32_t>> calls;  // units, in order
    bool summing = false, tied = false;
    std::map<std::pair<size_t, Channel>, std::deque<std::string>> mail;  // what has been sent to it
  };

  static void expect(bool good, const std::string& fault) {
    if (!good) throw fault;
  }
  static std::string word(const std::string& what, int64_t microbatch) {
    return fmt::format("{} of {}", what, microbatch);
  }
  static std::string output(int64_t layer) { return layer < 0 ? "embedding" : fmt::format("h.{}", layer); }

  bool together(size_t a, size_t b, Channel channel) const {
    const MeshShape& mesh = plans_[a].mesh;
    return mesh.place(static_cast<int>(a), channel).group == mesh.place(static_cast<int>(b), channel).group;
  }
  size_t neighbour(size_t r, int steps) const {
    const MeshShape& mesh = plans_[r].mesh;
    const int p = mesh.pipeline, wanted = (mesh.coordinate(static_cast<int>(r), Axis::pipeline) + steps + p) % p;
    for (int other = 0; other < mesh.size(); other++) {
      bool same = mesh.coordinate(other, Axis::pipeline) == wanted;
      for (Axis axis : {Axis::tensor, Axis::shard, Axis::data})
        same = same && mesh.coordinate(other, axis) == mesh.coordinate(static_cast<int>(r), axis);
      if (same) return static_cast<size_t>(other);
    }
    throw std::string("no neighbour");
  }

  void write(Rank& rank, int32_t y, std::string value) {
    Residual& r = rank.residuals[y];
    expect(!r.on_its_way && r.readers == 0, fmt::format("residual {} is written while {} is needed", y, r.word));
    r.word = std::move(value);
  }
  void read(Rank& rank, int32_t x, const std::string& wanted) {
    const Residual& r = rank.residuals[x];
    expect(!r.on_its_way && r.word == wanted, fmt::format("residual {} has {}, wanted {}", x, r.word, wanted));
  }
  void expect_batch(const Rank& rank, const Instruction& i) {
    const auto batch = rank.batches.find(i.batch);
    expect(batch != rank.batches.end() && batch->second == i.microbatch, "tokens of another microbatch");
  }
  void use_weights(size_t r, size_t unit) {
    if (plans_[r].mesh.shard == 1) return;
    for (const auto& [at, slot] : ranks_[r].weights)
      if (slot.unit == static_cast<int32_t>(unit)) return expect(!slot.on_its_way, "weights are still on their way");
    throw plans_[r].units[unit].name + " is not gathered";
  }
  void add_gradient(size_t r, size_t unit, int64_t microbatch) {
    Rank& rank = ranks_[r];
    const auto u = static_cast<int32_t>(unit);
    if (plans_[r].mesh.shard == 1) {
      expect(rank.own.contains(u), "gradients were not zeroed");
      expect(rank.own[u].insert(microbatch).second || !plans_[r].is_layer(unit), "a gradient twice");
      return;
    }
    for (auto& [at, slot] : rank.gradients)
      if (slot.unit == u && !slot.on_its_way) {
        slot.microbatches.insert(microbatch);
        return;
      }
    throw plans_[r].units[unit].name + " has no gradient to add to";
  }

  // False: waits for a message.
  bool step(size_t r) {
    Rank& rank = ranks_[r];
    const Plan& plan = plans_[r];
    const Instruction& i = programs_[r][rank.at];
    const int64_t k = i.microbatch, l = i.layer, L = plan.model.layers;
    const auto unit = static_cast<size_t>(i.unit);
    switch (i.op) {
      case Op::gather: {
        Slot& slot = rank.weights[i.slot];
        expect(!slot.on_its_way, "a slot is gathered into twice");
        slot = {.unit = i.unit, .on_its_way = true};
        rank.calls[Channel::shard].push_back(i.unit);
        int64_t layers = 0;
        for (const auto& [at, s] : rank.weights)
          layers += s.unit != Instruction::none && !plan.units[static_cast<size_t>(s.unit)].keep_gathered;
        expect(layers <= plan.live_units, "more layers are gathered than have memory");
        break;
      }
      case Op::await_gather:
        expect(rank.weights[i.slot].on_its_way && rank.weights[i.slot].unit == i.unit, "nothing to await");
        rank.weights[i.slot].on_its_way = false;
        break;
      case Op::zero:
        if (i.slot == Instruction::none) {
          rank.own[i.unit] = {};
        } else {
          expect(rank.gradients[i.slot].unit == Instruction::none, "a gradient is zeroed that is needed");
          rank.gradients[i.slot] = {.unit = i.unit};
        }
        break;
      case Op::scatter: {
        Slot& slot = rank.gradients[i.slot];
        expect(slot.unit == i.unit && !slot.on_its_way, "what is scattered is not there");
        expect(i.add == rank.own.contains(i.unit), "added to nothing, or written over");
        slot.on_its_way = true;
        rank.calls[Channel::shard].push_back(-2 - i.unit);
        if (!i.add) rank.own[i.unit] = {};
        break;
      }
      case Op::collect: {
        Slot& slot = rank.gradients[i.slot];
        expect(slot.unit == i.unit && slot.on_its_way, "what is collected was not scattered");
        for (int64_t m : slot.microbatches) expect(rank.own[i.unit].insert(m).second, "a microbatch counts twice");
        slot = {};
        break;
      }
      case Op::sum_copies:
        for (const auto& [at, slot] : rank.gradients) expect(slot.unit != i.unit, "summed before it is complete");
        expect(rank.summed.insert(i.unit).second, "summed twice");
        rank.calls[Channel::data].push_back(i.unit);
        rank.summing = true;
        break;
      case Op::sum_tensor:
        expect(plan.mesh.data == 1 || (rank.summed.contains(i.unit) && !rank.summing), "summed too early");
        expect(rank.tensor_summed.insert(i.unit).second, "summed twice");
        rank.calls[Channel::tensor].push_back(i.unit);
        rank.summing = true;
        break;
      case Op::await_sums:
        expect(rank.summing, "no sums to await");
        rank.summing = false;
        break;
      case Op::sum_tied:
        expect(!rank.summing && !rank.tied, "the tied table is summed too early or twice");
        rank.tied = true;
        break;
      case Op::receive: {
        Residual& y = rank.residuals[i.y];
        expect(!y.on_its_way && y.readers == 0, "received over what is needed");
        y = {.word = fmt::format("message {}", static_cast<int>(i.channel)), .on_its_way = true};
        break;
      }
      case Op::send: {
        Residual& y = rank.residuals[i.y];
        expect(!y.on_its_way, "sent twice");
        const size_t to = neighbour(r, i.channel == Channel::forward ? 1 : -1);
        ranks_[to].mail[{r, i.channel}].push_back(y.word);
        y.on_its_way = true;
        break;
      }
      case Op::await_message: {
        Residual& y = rank.residuals[i.y];
        expect(y.on_its_way, "no message to await");
        if (y.word.starts_with("message ")) {
          const auto channel = static_cast<Channel>(std::stoi(y.word.substr(8)));
          auto& mail = rank.mail[{neighbour(r, channel == Channel::forward ? -1 : 1), channel}];
          if (mail.empty()) return false;
          y.word = mail.front();
          mail.pop_front();
        }
        y.on_its_way = false;
        break;
      }
      case Op::load: rank.batches[i.batch] = k; break;
      case Op::embed:
        expect_batch(rank, i);
        use_weights(r, plan.tokens);
        use_weights(r, plan.positions);
        write(rank, i.y, word(output(-1), k));
        break;
      case Op::forward:
        use_weights(r, unit);
        read(rank, i.x, word(output(l - 1), k));
        write(rank, i.y, word(output(l), k));
        if (mode_ == Mode::train) rank.residuals[i.x].readers++;
        if (i.saved != Instruction::none)
          expect(rank.saved.emplace(i.saved, word(output(l), k)).second, "saved over what is needed");
        break;
      case Op::recompute:
        use_weights(r, unit);
        read(rank, i.x, word(output(l - 1), k));
        rank.recomputed.push_front(word(output(l), k));
        break;
      case Op::head:
      case Op::head_loss:
        expect_batch(rank, i);
        use_weights(r, plan.norm);
        use_weights(r, plan.tokens);
        read(rank, i.x, word(output(L - 1), k));
        rank.has_losses[i.batch] = true;
        if (i.op == Op::head_loss) break;
        add_gradient(r, plan.norm, k);
        add_gradient(r, plan.tokens, k);
        write(rank, i.y, word("d " + output(L - 1), k));
        break;
      case Op::count_loss:
        expect(rank.has_losses[i.batch] && rank.batches.at(i.batch) == k && rank.counted.insert(k).second, "no losses");
        rank.has_losses[i.batch] = false;
        break;
      case Op::backward: {
        use_weights(r, unit);
        read(rank, i.x, word(output(l - 1), k));
        read(rank, i.y, word("d " + output(l), k));
        if (i.saved != Instruction::none) {
          expect(rank.saved[i.saved] == word(output(l), k), "another layer was saved");
          rank.saved.erase(i.saved);
        } else {
          expect(!rank.recomputed.empty() && rank.recomputed.front() == word(output(l), k), "another was recomputed");
          rank.recomputed.pop_front();
        }
        add_gradient(r, unit, k);
        rank.residuals[i.x].readers--;
        write(rank, i.y, word("d " + output(l - 1), k));
        break;
      }
      case Op::embed_backward:
        expect_batch(rank, i);
        read(rank, i.y, word("d " + output(-1), k));
        add_gradient(r, plan.tokens, k);
        add_gradient(r, plan.positions, k);
        write(rank, i.y, "used up");
        break;
    }
    rank.at++;
    return true;
  }

  void check_end(size_t r) {
    const Rank& rank = ranks_[r];
    const Plan& plan = plans_[r];
    expect(rank.at == programs_[r].size(), fmt::format("rank {} waits for ever", r));
    for (const auto& [from, mail] : rank.mail) expect(mail.empty(), "mail is left");
    for (const auto& [number, residual] : rank.residuals)
      expect(!residual.on_its_way && residual.readers == 0, "a residual was not used, or is still on its way");
    expect(rank.saved.empty() && rank.recomputed.empty() && !rank.summing, "something was saved for nothing");
    for (const auto& [at, slot] : rank.weights) expect(!slot.on_its_way, "weights are still on their way");
    if (plan.chunks.back().last && mode_ != Mode::layers)
      expect(static_cast<int64_t>(rank.counted.size()) == microbatches_, "losses are missing");
    if (mode_ == Mode::layers) expect(programs_[r].back().op == Op::forward, "the last layer comes last");
    if (mode_ != Mode::train) return;
    for (size_t u = 0; u < plan.units.size(); u++) {
      const auto unit = static_cast<int32_t>(u);
      const auto own = rank.own.find(unit);
      expect(own != rank.own.end() && static_cast<int64_t>(own->second.size()) == microbatches_,
             plan.units[u].name + " lacks microbatches");
      expect(rank.summed.contains(unit) == (plan.mesh.data > 1), plan.units[u].name + " is not summed over copies");
      const bool shared = plan.units[u].sum_unsplit &&
                          intersect({plan.units[u].split, plan.units[u].numel}, plan.units[u].shard).size() > 0;
      expect(rank.tensor_summed.contains(unit) == shared, plan.units[u].name + " is not summed over tensor ranks");
    }
    for (const auto& [at, slot] : rank.gradients) expect(slot.unit == Instruction::none, "a gradient is left");
    expect(rank.tied == plan.ties_stages(), "the tied table is not summed");
  }

  const std::vector<Plan>& plans_;
  const Programs& programs_;
  const Mode mode_;
  const int64_t microbatches_;
  std::vector<Rank> ranks_;
};

struct Layout {
  std::string name;
  int ranks;
  std::function<void(Config&)> change;
};
void PrintTo(const Layout& layout, std::ostream* out) { *out << layout.name; }

const std::vector<Layout>& layouts() {
  const auto pipeline = [](int64_t stages, int64_t virtual_stages, PipelineSchedule kind, int64_t active) {
    return [=](Config& c) {
      c.parallel.pipeline_parallel_degree = stages;
      c.parallel.virtual_stages = virtual_stages;
      c.parallel.pipeline_schedule = kind;
      c.parallel.active_microbatches = active;
    };
  };
  const auto sharded = [](ShardingStrategy strategy, int64_t degree) {
    return [=](Config& c) {
      c.parallel.sharding_strategy = strategy;
      c.parallel.sharded_data_parallel_degree = degree;
    };
  };
  constexpr auto one_f_one_b = PipelineSchedule::one_f_one_b, gpipe = PipelineSchedule::gpipe;
  static const std::vector<Layout> all = {
      {"alone", 1, [](Config&) {}},
      {"recompute", 1, [](Config& c) { c.memory.activation_checkpointing.kind = ActivationCheckpointing::Kind::each; }},
      {"full_shard", 2, sharded(ShardingStrategy::full_shard, 0)},
      {"full_shard_of_4_live_3", 4,
       [](Config& c) {
         c.parallel.sharded_data_parallel_degree = 2;
         c.parallel.max_live_parameters = 3 * 1308;
       }},
      {"shard_grad_op", 2, sharded(ShardingStrategy::shard_grad_op, 0)},
      {"shard_optimizer_in_copies", 4, sharded(ShardingStrategy::shard_optimizer, 2)},
      {"replicate_below", 2, [](Config& c) { c.parallel.replicate_below = 200; }},
      {"no_shard", 3, sharded(ShardingStrategy::no_shard, 0)},
      {"sequence", 4,
       [](Config& c) {
         c.parallel.tensor_parallel_degree = 2;
         c.parallel.sequence_parallel = true;
       }},
      {"pipeline", 2, pipeline(2, 1, one_f_one_b, 0)},
      {"pipeline_of_3_interleaved", 3, pipeline(3, 2, one_f_one_b, 0)},
      {"interleaved_with_few_active", 4, pipeline(2, 3, one_f_one_b, 2)},
      {"gpipe_in_waves", 4, pipeline(4, 1, gpipe, 3)},
      {"gpipe_interleaved_sharded", 4, pipeline(2, 2, gpipe, 0)},
      {"everything", 8,
       [=](Config& c) {
         pipeline(2, 3, one_f_one_b, 0)(c);
         c.parallel.tensor_parallel_degree = 2;
         c.parallel.sequence_parallel = true;
         c.memory.activation_checkpointing.kind = ActivationCheckpointing::Kind::each;
       }},
  };
  return all;
}

Config config_of(const Layout& layout) {
  Config config = small_config();
  config.model = {.layers = 6, .hidden = 12, .heads = 6, .vocab = 31, .context = 12, .dropout = 0};
  config.batch = {.sequence_length = 12, .global_batch_size = 10, .microbatch_size = 1};
  layout.change(config);
  return config;
}

class ProgramLaws : public testing::TestWithParam<Layout> {
 protected:
  ProgramLaws() {
    for (int r = 0; r < GetParam().ranks; r++) plans_.push_back(make_plan(config_of(GetParam()), GetParam().ranks, r));
  }
  Programs make(const std::function<Program(const Plan&)>& list) const {
    Programs all;
    for (const Plan& plan : plans_) all.push_back(list(plan));
    return all;
  }
  Fault fault_of(const Programs& programs, Machine::Mode mode, int64_t microbatches) const {
    return Machine(plans_, programs, mode, microbatches).run();
  }
  std::vector<Plan> plans_;
};
INSTANTIATE_TEST_SUITE_P(Layouts, ProgramLaws, testing::ValuesIn(layouts()),
                         [](const auto& p) { return p.param.name; });

TEST_P(ProgramLaws, HoldInTraining) {
  EXPECT_EQ(fault_of(make(training_program), Machine::Mode::train, plans_[0].pipeline.microbatches), std::nullopt);
}

TEST_P(ProgramLaws, HoldInEvaluation) {
  for (int64_t microbatches : {0, 1, 2, 5, 9})
    EXPECT_EQ(fault_of(make([=](const Plan& p) { return evaluation_program(p, microbatches); }),
                       Machine::Mode::evaluate, microbatches),
              std::nullopt)
        << microbatches;
}

TEST_P(ProgramLaws, HoldInLayersAlone) {
  if (plans_[0].mesh.pipeline > 1) {
    EXPECT_THROW(layers_program(plans_[0]), Error);
    return;
  }
  EXPECT_EQ(fault_of(make(layers_program), Machine::Mode::layers, 1), std::nullopt);
}

TEST_P(ProgramLaws, NoInstructionCanBeLeftOut) {
  const Programs whole = make(training_program);
  for (size_t r : {size_t{0}, whole.size() - 1})
    for (size_t at = 0; at < whole[r].size(); at++) {
      Programs programs = whole;
      programs[r].erase(programs[r].begin() + static_cast<int64_t>(at));
      EXPECT_NE(fault_of(programs, Machine::Mode::train, plans_[0].pipeline.microbatches), std::nullopt)
          << "rank " << r << " without instruction " << at << ", of kind " << static_cast<int>(whole[r][at].op);
    }
}

// What bounds memory is read off the list.
TEST_P(ProgramLaws, TwoMicrobatchesOfAnEvaluationUseAllItsMemory) {
  for (const Plan& plan : plans_) {
    const Program training = training_program(plan), two = evaluation_program(plan, 2),
                  many = evaluation_program(plan, 11);
    const Needs of_two = needs_of(plan, {&two}), of_many = needs_of(plan, {&many}),
                of_all = needs_of(plan, {&training});
    EXPECT_EQ(of_two.residuals, of_many.residuals);
    EXPECT_EQ(of_two.weights.size(), of_many.weights.size());
    EXPECT_EQ(of_many.saved, 0);
    int64_t live = 0;
    for (const Chunk& chunk : plan.chunks) live += chunk.live * chunk.num_layers;
    EXPECT_EQ(of_all.saved, plan.recompute ? 0 : live) << "a layer keeps one for each microbatch alive";
  }
}

}  // namespace
}  // namespace megalith
