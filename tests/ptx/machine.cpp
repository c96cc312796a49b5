// How warps go on and wait (PTX ISA, "Parallel synchronization and communication instructions").
#include "tests/ptx/machine.h"

#include <algorithm>
#include <cstring>

namespace megalith::ptx {

namespace {
const char* describe(Warp::State s) {
  switch (s) {
    case Warp::State::at_barrier: return "waits at a barrier";
    case Warp::State::at_named_barrier: return "waits at a named barrier";
    case Warp::State::at_group: return "waits at an instruction of its warpgroup";
    case Warp::State::ended: return "has ended";
    default: return "goes on";
  }
}
std::string place(const Block& b, const Instruction& i) {
  return fmt::format("kernel {}, block ({}, {}, {}), {}:{}: {}", b.kernel.name, b.index.x, b.index.y, b.index.z,
                     b.kernel.module->name(), i.line, i.text.substr(0, 200));
}
uint32_t lanes_at(const Warp& w, uint32_t of, int pc) {
  uint32_t lanes = 0;
  for (int lane = 0; lane < warp_size; lane++)
    if (of >> lane & 1 && w.pc[static_cast<size_t>(lane)] == pc) lanes |= 1u << lane;
  return lanes;
}
}  // namespace

// Lanes that stand at the least instruction go on together till they meet the next ones.
void Warp::advance() {
  const std::vector<Instruction>& code = block->code.instructions;
  const auto set_pc = [&](uint32_t lanes_, int to) {
    each_lane(lanes_, [&](int lane) { pc[static_cast<size_t>(lane)] = to; });
  };
  const auto execute = [&](const Instruction& i, uint32_t lanes_) {
    i.operation->execute(*this, i, lanes_);
    if (touched.empty()) return;
    now++;
    for (int n = 0; n < i.num_slots; n++) touched[static_cast<size_t>(i.slots[n])] = now;
  };
  for (;;) {
    const uint32_t able = alive & ~waiting;
    if (!alive) {
      state = State::ended;
      return;
    }
    if (!able) {
      at = pc[static_cast<size_t>(std::countr_zero(waiting))];
      FAIL("warp {}: lanes {:#x} wait for others of their warp, which do not come to {}", index,
           lanes_at(*this, waiting, at), place(*block, code[static_cast<size_t>(at)]));
    }
    constexpr int none = 1 << 30;
    int meets = none;
    at = none;
    each_lane(able, [&](int lane) { at = std::min(at, pc[static_cast<size_t>(lane)]); });
    uint32_t active = lanes_at(*this, able, at);
    each_lane(able & ~active, [&](int lane) { meets = std::min(meets, pc[static_cast<size_t>(lane)]); });
    while (at < meets) {
      const Instruction& i = code[static_cast<size_t>(at)];
      uint32_t lanes_ = active;
      if (i.guard >= 0) {
        const uint32_t guard = registers[i.guard * warp_size];
        lanes_ &= i.negated ? ~guard : guard;
        if (!lanes_) {
          at++;
          continue;
        }
      }
      const Kind kind = i.operation->kind;
      if (kind == Kind::plain) {
        execute(i, lanes_);
        at++;
        continue;
      }
      if (lanes_ != active) {  // those without the guard go on behind it
        set_pc(active & ~lanes_, at + 1);
        set_pc(lanes_, at);
        if (kind == Kind::branch) set_pc(lanes_, i.target);
        if (kind == Kind::end) alive &= ~lanes_;
        active = 0;
        break;
      }
      if (kind == Kind::branch) {
        at = i.target;
        continue;
      }
      if (kind == Kind::end) {
        alive &= ~lanes_;
        active = 0;
        break;
      }
      // Warp-wide: with those who wait here already.
      lanes_ |= lanes_at(*this, waiting, at);
      uint32_t need = all_lanes;
      if (kind == Kind::masked) {
        const int last = i.num_slots - 1;
        need = get<uint32_t>(i, last, std::countr_zero(active));
        each_lane(lanes_, [&](int lane) {
          const auto mask = get<uint32_t>(i, last, lane);
          CHECK(mask >> lane & 1, "lane {} comes with mask {:#x}, without itself", lane, mask);
          CHECK(mask == need || !(mask & need), "lanes come with masks {:#x} and {:#x}", mask, need);
        });
      }
      set_pc(active, at);
      if ((lanes_ & need) != need) {
        waiting |= active & need;
        active = 0;
        break;
      }
      waiting &= ~need;
      if (kind == Kind::named) {
        set_pc(all_lanes, at);
        execute(i, all_lanes);
        if (state == State::at_named_barrier) return;
        set_pc(all_lanes, ++at);
        continue;
      }
      if (kind == Kind::group || kind == Kind::barrier) {
        CHECK(kind == Kind::group || i.numbers[0] == 0, "barrier {}; known is 0", i.numbers[0]);
        state = kind == Kind::group ? State::at_group : State::at_barrier;
        return;
      }
      execute(i, need);
      if (need != active) {  // lanes that waited go on with these, or some of these come again with a mask of their own
        set_pc(need, at + 1);
        active = 0;
        break;
      }
      at++;
    }
    set_pc(active, at);
  }
}

Block::Block(const Kernel& k, const simt::Grid& g) : kernel(k), code(*k.code), grid(g), parameters(g.parameters) {
  const auto threads = static_cast<int>(g.threads.x * g.threads.y * g.threads.z);
  CHECK(!code.max_threads || threads <= code.max_threads, "{}: {} threads a block, and it is compiled for {}", k.name,
        threads, code.max_threads);
  CHECK(static_cast<int64_t>(parameters.size()) == code.parameter_bytes, "{}: parameters of {} bytes, expected {}",
        k.name, parameters.size(), code.parameter_bytes);
  shared_end = code.shared_begin + g.shared_bytes;
  const int64_t shared_memory = shared_end - static_cast<int64_t>(shared_start), most = simt::chip().shared_memory;
  CHECK(shared_memory <= most, "{}: {} bytes of shared memory, its own included; a block of the simulated {} has {}",
        k.name, shared_memory, simt::chip().name, most);
  shared.resize(static_cast<size_t>(shared_end));
  const auto num_warps = static_cast<size_t>(threads / warp_size);
  const size_t bytes = static_cast<size_t>(code.units) * warp_size * sizeof(uint32_t);
  registers.reset(static_cast<uint32_t*>(std::aligned_alloc(128, std::max<size_t>(bytes * num_warps, 128))));
  std::memset(static_cast<void*>(registers.get()), 0xff, bytes * num_warps);  // NaN
  warps.resize(num_warps);
  for (size_t n = 0; n < num_warps; n++) {
    warps[n].block = this;
    warps[n].index = static_cast<int>(n);
    warps[n].registers = registers.get() + n * bytes / sizeof(uint32_t);
    warps[n].local.resize(static_cast<size_t>(code.local_bytes) * warp_size);
  }
  fences.resize(num_warps * warp_size);
  CHECK(num_warps <= simt::WarpClocks::max_warps, "{}: {} threads a block", k.name, threads);
}

void Block::run(dim3 block_index) {
  index = block_index;
  barriers = 1;
  std::fill(shared.begin(), shared.end(), '\xff');
  cells.assign(shared.size() / cell_bytes + 1, {});
  clocks.begin(static_cast<int>(warps.size()));
  for (std::vector<uint32_t>& times : fences) times.clear();
  acquired.clear();
  warpgroups.assign((warps.size() + group_warps - 1) / group_warps, {});
  for (Warp& w : warps) {
    w.state = Warp::State::ready;
    w.alive = all_lanes;
    w.waiting = w.now = w.fenced = 0;
    w.pc.fill(0);
    w.copies.clear();
    w.copy_groups.fill(0);
    if (code.has_products) w.touched.assign(static_cast<size_t>(code.units), 0);
    for (const Constant& c : code.constants)
      for (int lane = 0; lane < warp_size; lane++) {
        const auto thread = static_cast<unsigned>(w.thread(lane));
        const dim3 t = grid.threads;
        const auto pick = [&](const dim3& d) { return c.axis == 0 ? d.x : c.axis == 1 ? d.y : d.z; };
        uint64_t value = c.value;
        switch (c.special) {
          case Special::none: break;
          case Special::tid: value = pick({thread % t.x, thread / t.x % t.y, thread / t.x / t.y}); break;
          case Special::ntid: value = pick(t); break;
          case Special::ctaid: value = pick(index); break;
          case Special::nctaid: value = pick(grid.blocks); break;
          case Special::laneid: value = static_cast<uint64_t>(lane); break;
        }
        if (c.wide) {
          w.lanes<uint64_t>(c.slot)[lane] = value;
        } else {
          w.lanes<uint32_t>(c.slot)[lane] = static_cast<uint32_t>(value);
        }
      }
  }
  const bool backwards = (index.x + index.y + index.z) % 2 == 1;
  for (;;) {
    bool went_on = false;
    for (size_t n = 0; n < warps.size(); n++) {
      Warp& w = warps[backwards ? warps.size() - 1 - n : n];
      if (w.state != Warp::State::ready) continue;
      went_on = true;
      try {
        w.advance();
      } catch (const Error& e) {
        FAIL("{}: warp {}: {}", place(*this, code.instructions[static_cast<size_t>(w.at)]), w.index, e.what());
      }
    }
    for (size_t first = 0; first + group_warps <= warps.size(); first += group_warps) {
      Warp* four = &warps[first];
      const auto together = [&](const Warp& w) { return w.state == Warp::State::at_group && w.pc[0] == four[0].pc[0]; };
      if (!std::all_of(four, four + group_warps, together)) continue;
      went_on = true;
      const Instruction& i = code.instructions[static_cast<size_t>(four[0].pc[0])];
      try {
        i.operation->execute(four[0], i, all_lanes);
      } catch (const Error& e) {
        FAIL("{}: warpgroup {}: {}", place(*this, i), first / group_warps, e.what());
      }
      for (Warp* w = four; w != four + group_warps; w++) {
        w->state = Warp::State::ready;
        for (int& pc : w->pc) pc++;
      }
    }
    const auto all_are = [&](Warp::State s) {
      return std::all_of(warps.begin(), warps.end(), [&](const Warp& w) { return w.state == s; });
    };
    if (all_are(Warp::State::ended)) {
      const std::string left = clocks.unfinished();
      CHECK(left.empty(), "kernel {}, block ({}, {}, {}): {}", kernel.name, index.x, index.y, index.z, left);
      return;
    }
    if (went_on) continue;
    if (!all_are(Warp::State::at_barrier)) {
      std::string states;
      for (const Warp& w : warps)
        states += fmt::format("\n  warp {} {}{}", w.index, describe(w.state),
                              w.state == Warp::State::ended
                                  ? ""
                                  : ", line " + std::to_string(code.instructions[static_cast<size_t>(w.pc[0])].line));
      FAIL("kernel {}, block ({}, {}, {}): threads wait for others that do not come:{}", kernel.name, index.x, index.y,
           index.z, states);
    }
    barriers++;
    clocks.sync_all();
    for (Warp& w : warps) {
      w.state = Warp::State::ready;
      for (int& pc : w.pc) pc++;
    }
  }
}

void Block::come_to_barrier(Warp& w, const Instruction& i, bool waits) {
  const auto id = w.get<int32_t>(i, 0, 0), threads = w.get<int32_t>(i, 1, 0);
  for (int lane = 1; lane < warp_size; lane++)
    CHECK(w.get<int32_t>(i, 0, lane) == id && w.get<int32_t>(i, 1, lane) == threads,
          "lanes of a warp come to different barriers");
  if (waits) w.state = Warp::State::at_named_barrier;
  for (uint32_t on = clocks.come(id, threads, w.index, waits); on; on &= on - 1) {
    Warp& waited = warps[static_cast<size_t>(std::countr_zero(on))];
    waited.state = Warp::State::ready;
    if (&waited != &w)
      for (int& pc : waited.pc) pc++;
  }
}

void run(Kernel& kernel, const simt::Grid& grid) {
  if (!kernel.code) kernel.code = decode(kernel);
  kernel.launches++;
  Block block(kernel, grid);
  simt::each_block(grid, [&](dim3 index) { block.run(index); });
}

}  // namespace megalith::ptx
