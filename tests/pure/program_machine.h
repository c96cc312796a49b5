// A machine without tensors that runs the programs of all ranks of a layout against each other: what a residual, a slot
// or a message holds is a word ("h.3 of 2"), and every instruction checks the words that it reads.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "tests/pure/update_machine.h"

namespace megalith::test {

using Programs = std::vector<Program>;  // by rank

// What has gone wrong, in words; none: nothing.
using Fault = std::optional<std::string>;

class Machine {
 public:
  enum class Mode { train, evaluate, logits };

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
    bool leaving = false;              // on its way to the host: it may be read
    int32_t host = Instruction::none;  // of the host's, the other end of that way
  };
  struct Recomputed {
    std::string word;
    int32_t saved = Instruction::none;
  };
  struct Slot {
    int32_t unit = Instruction::none;
    bool on_its_way = false, relayed = false;
    bool unwritten = false;            // of gradients: what products write
    std::set<int64_t> microbatches{};  // of gradients: those that are in it
  };
  struct Rank {
    size_t at = 0;
    std::map<int32_t, Residual> residuals;
    std::map<int32_t, std::string> saved;  // word of the layer and microbatch
    std::deque<Recomputed> recomputed;     // the first is used next
    std::map<int32_t, std::string> host;   // words
    std::map<int32_t, int64_t> batches;    // microbatch
    std::map<int32_t, bool> has_losses;
    std::map<int32_t, Slot> weights, gradients;
    std::map<int32_t, std::set<int64_t>> own;                  // by unit: microbatches in its finished gradient
    std::set<int32_t> unwritten;                               // units, of those: what products write
    std::set<int32_t> summed, shared, awaited, tensor_summed;  // units
    std::set<int64_t> kept, counted;                           // microbatches whose losses are
    std::map<Channel, std::vector<int32_t>> calls;             // units, in order
    bool summing = false, tied = false;
    UpdateMachine update;
    std::map<std::pair<size_t, Channel>, std::deque<std::string>> mail;  // what has been sent to it
  };

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
    expect(!r.on_its_way, fmt::format("residual {} is written while {} is on its way", y, r.word));
    r.word = std::move(value);
  }
  void read(Rank& rank, int32_t x, const std::string& wanted) {
    const Residual& r = rank.residuals[x];
    expect((!r.on_its_way || r.leaving) && r.word == wanted,
           fmt::format("residual {} has {}, wanted {}", x, r.word, wanted));
  }
  void expect_still(const Rank& rank, int32_t host) {
    for (const auto& [at, residual] : rank.residuals)
      expect(residual.host != host, fmt::format("{} on the host is still on its way", host));
  }
  void expect_batch(const Rank& rank, const Instruction& i) {
    const auto batch = rank.batches.find(i.batch);
    expect(batch != rank.batches.end() && batch->second == i.microbatch, "tokens of another microbatch");
  }
  void use_weights(size_t r, size_t unit) {
    if (!plans_[r].gathers()) return;
    for (const auto& [at, slot] : ranks_[r].weights)
      if (slot.unit == static_cast<int32_t>(unit)) return expect(!slot.on_its_way, "weights are still on their way");
    throw plans_[r].units[unit].name + " is not gathered";
  }
  // products: whether they add; none: there are none in the instruction.
  void add_gradient(size_t r, size_t unit, int64_t microbatch, std::optional<bool> products = {}) {
    const auto check = [&](bool unwritten) {
      expect(products || !unwritten, "added to what was not zeroed");
      expect(!products || *products == !unwritten,
             "products add to what was not written, or write over what is needed");
    };
    Rank& rank = ranks_[r];
    const auto u = static_cast<int32_t>(unit);
    if (plans_[r].mesh.shard == 1) {
      expect(rank.own.contains(u), "gradients were not zeroed");
      check(rank.unwritten.erase(u) > 0);
      expect(rank.own[u].insert(microbatch).second || !plans_[r].is_layer(unit), "a gradient twice");
      return;
    }
    for (auto& [at, slot] : rank.gradients)
      if (slot.unit == u && !slot.on_its_way) {
        check(std::exchange(slot.unwritten, false));
        slot.microbatches.insert(microbatch);
        return;
      }
    throw plans_[r].units[unit].name + " has no gradient to add to";
  }

  // True once all microbatches and all ranks are in the unit's gradient.
  bool is_finished(size_t r, size_t u) const {
    const Rank& rank = ranks_[r];
    const Plan& plan = plans_[r];
    const auto unit = static_cast<int32_t>(u);
    const auto own = rank.own.find(unit);
    return own != rank.own.end() && static_cast<int64_t>(own->second.size()) == microbatches_ && !rank.summing &&
           rank.summed.contains(unit) == (plan.mesh.data > 1) &&
           rank.tensor_summed.contains(unit) == is_shared_by_tensor_ranks(plan.units[u]) &&
           (u != plan.tied || rank.tied == plan.ties_stages());
  }
  static bool is_shared_by_tensor_ranks(const UnitPlan& unit) {
    return unit.sum_unsplit && intersect({unit.split, unit.numel}, unit.shard).size() > 0;
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
          if (!i.all) rank.unwritten.insert(i.unit);
        } else {
          expect(rank.gradients[i.slot].unit == Instruction::none, "a gradient is zeroed that is needed");
          rank.gradients[i.slot] = {.unit = i.unit, .unwritten = !i.all};
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
      case Op::relay: {
        Slot& slot = rank.gradients[i.slot];
        expect(plan.relay && slot.unit == i.unit && slot.on_its_way && !slot.relayed, "nothing to relay");
        slot.relayed = true;
        rank.calls[Channel::shard].push_back(-1000 - i.unit);
        break;
      }
      case Op::collect: {
        Slot& slot = rank.gradients[i.slot];
        expect(slot.relayed == plan.relay, "collected before it was relayed");
        expect(slot.unit == i.unit && slot.on_its_way, "what is collected was not scattered");
        std::set<int64_t>& own = rank.own[i.unit];
        expect(i.add != own.empty(), "collected over what is needed, or added to nothing");
        for (int64_t m : slot.microbatches) {
          expect(own.empty() || m >= *own.rbegin(), "a microbatch is added after a later one");
          expect(own.insert(m).second, "a microbatch counts twice");
        }
        slot = {};
        break;
      }
      case Op::sum_copies:
        for (const auto& [at, slot] : rank.gradients) expect(slot.unit != i.unit, "summed before it is complete");
        expect(rank.summed.insert(i.unit).second, "summed twice");
        rank.calls[Channel::data].push_back(i.unit);
        rank.summing = true;
        break;
      case Op::share_sums:
        expect(plan.wire != DType::f32 && rank.summed.contains(i.unit), "nothing to share");
        expect(rank.shared.insert(i.unit).second, "shared twice");
        expect(rank.shared == rank.summed, "the parts of two units are under way");
        rank.calls[Channel::data].push_back(-2 - i.unit);
        break;
      case Op::sum_tensor:
        expect(plan.mesh.data == 1 || rank.awaited.contains(i.unit), "summed too early");
        expect(rank.tensor_summed.insert(i.unit).second, "summed twice");
        rank.calls[Channel::tensor].push_back(i.unit);
        rank.summing = true;
        break;
      case Op::await_sums:
        expect(rank.summing, "no sums to await");
        expect(plan.wire == DType::f32 || rank.shared == rank.summed, "sums that were not shared");
        rank.summing = false;
        rank.awaited = rank.summed;
        break;
      case Op::sum_tied:
        expect(!rank.summing && !rank.tied, "the tied table is summed too early or twice");
        rank.tied = true;
        break;
      case Op::receive: {
        Residual& y = rank.residuals[i.y];
        expect(!y.on_its_way, "received over what is on its way");
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
      case Op::offload: {
        Residual& y = rank.residuals[i.y];
        expect(!y.on_its_way, "copied to the host while it is on its way");
        expect_still(rank, i.host);
        y.on_its_way = y.leaving = true;
        y.host = i.host;
        rank.host[i.host] = y.word;
        break;
      }
      case Op::fetch: {
        Residual& y = rank.residuals[i.y];
        expect(!y.on_its_way, "fetched over what is on its way");
        expect_still(rank, i.host);
        y = {.word = rank.host[i.host], .on_its_way = true, .host = i.host};
        break;
      }
      case Op::await_transfer: {
        Residual& y = rank.residuals[i.y];
        expect(y.on_its_way, "no transfer to await");
        y.leaving = false;
        y.host = Instruction::none;
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
      case Op::load:
        rank.batches[i.batch] = k;
        rank.has_losses[i.batch] = false;
        break;
      case Op::embed:
        expect_batch(rank, i);
        for (const size_t u : plan.embedding) use_weights(r, u);
        write(rank, i.y, word(output(-1), k));
        break;
      case Op::forward:
        if (plan.layers_need_batch()) expect_batch(rank, i);
        use_weights(r, unit);
        read(rank, i.x, word(output(l - 1), k));
        write(rank, i.y, word(output(l), k));
        if (i.saved != Instruction::none)
          expect(rank.saved.emplace(i.saved, word(output(l), k)).second, "saved over what is needed");
        break;
      case Op::recompute:
        if (plan.layers_need_batch()) expect_batch(rank, i);
        use_weights(r, unit);
        read(rank, i.x, word(output(l - 1), k));
        if (i.y != Instruction::none) write(rank, i.y, word(output(l), k));
        if (i.saved != Instruction::none) expect(rank.saved[i.saved] == word(output(l), k), "another layer was saved");
        rank.recomputed.push_front({word(output(l), k), i.saved});
        expect(static_cast<int64_t>(rank.recomputed.size()) <= plan.group,
               "more layers are recomputed than a group has");
        break;
      case Op::head:
      case Op::head_loss:
        expect_batch(rank, i);
        for (const size_t u : plan.head) use_weights(r, u);
        read(rank, i.x, word(output(L - 1), k));
        rank.has_losses[i.batch] = true;
        if (i.op == Op::head_loss) break;
        for (const size_t u : plan.head)
          add_gradient(r, u, k, plan.units[u].multiplies ? std::optional(i.add) : std::nullopt);
        write(rank, i.y, word("d " + output(L - 1), k));
        break;
      case Op::head_logits:
        for (const size_t u : plan.head) use_weights(r, u);
        read(rank, i.x, word(output(L - 1), k));
        break;
      case Op::keep_loss:
        expect(mode_ == Mode::train && rank.has_losses[i.batch] && rank.batches.at(i.batch) == k, "no losses to keep");
        expect(rank.kept.insert(k).second, "kept before");
        break;
      case Op::count_loss:
        expect(rank.has_losses[i.batch] && rank.batches.at(i.batch) == k && rank.counted.insert(k).second, "no losses");
        break;
      case Op::backward: {
        if (plan.layers_need_batch()) expect_batch(rank, i);
        use_weights(r, unit);
        read(rank, i.x, word(output(l - 1), k));
        read(rank, i.y, word("d " + output(l), k));
        if (i.saved != Instruction::none) {
          expect(rank.saved[i.saved] == word(output(l), k), "another layer was saved");
          rank.saved.erase(i.saved);
        } else {
          expect(!rank.recomputed.empty() && rank.recomputed.front().word == word(output(l), k),
                 "another was recomputed");
          rank.saved.erase(rank.recomputed.front().saved);
          rank.recomputed.pop_front();
        }
        add_gradient(r, unit, k, i.add);
        write(rank, i.y, word("d " + output(l - 1), k));
        break;
      }
      case Op::embed_backward:
        expect_batch(rank, i);
        read(rank, i.y, word("d " + output(-1), k));
        for (const size_t u : plan.embedding) add_gradient(r, u, k);
        write(rank, i.y, "used up");
        break;
      default:
        if (i.op == Op::norm) expect(is_finished(r, unit), "the norm of a gradient that is not finished");
        rank.update.step(plan, i);
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
      expect(!residual.on_its_way, "a residual is still on its way");
    expect(rank.saved.empty() && rank.recomputed.empty() && !rank.summing, "something was saved for nothing");
    for (const auto& [at, slot] : rank.weights) expect(!slot.on_its_way, "weights are still on their way");
    if (plan.chunks.back().last && mode_ != Mode::logits)
      expect(static_cast<int64_t>(rank.counted.size()) == microbatches_, "losses are missing");
    if (plan.chunks.back().last && mode_ == Mode::train) expect(rank.kept == rank.counted, "losses were not kept");
    if (mode_ == Mode::logits) expect(programs_[r].back().op == Op::head_logits, "logits come last");
    if (mode_ != Mode::train) return;
    for (size_t u = 0; u < plan.units.size(); u++) {
      expect(is_finished(r, u), plan.units[u].name + " has no finished gradient");
    }
    rank.update.check_end(plan);
    for (const auto& [at, slot] : rank.gradients) expect(slot.unit == Instruction::none, "a gradient is left");
    expect(rank.tied == plan.ties_stages(), "the tied table is not summed");
  }

  const std::vector<Plan>& plans_;
  const Programs& programs_;
  const Mode mode_;
  const int64_t microbatches_;
  std::vector<Rank> ranks_;
};

}  // namespace megalith::test
