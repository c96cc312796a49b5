// Computes with a trained model on one rank: the plan of a layout, memory as measured by a dry run, the transport and a
// worker (a Stage or a Decoder) that holds this rank's part of the weights.
#pragma once

#include <memory>
#include <optional>

#include "kernels/elementwise/elementwise.h"
#include "trainer/checkpointing/held_shards.h"
#include "trainer/communication/transport.h"
#include "trainer/job/agreement.h"
#include "trainer/job/memory_check.h"
#include "trainer/job/nodes.h"

namespace megalith {

template <class Worker>
struct Engine {
  Plan plan;
  std::optional<Transport> transport;
  std::unique_ptr<Communicator> everybody;
  std::optional<Runtime> runtime;
  std::unique_ptr<Worker> worker;

  // Collective. `build` makes the worker in a runtime; `rehearse` does, in the dry world, the work that takes the most
  // memory. `ranks_on_gpu`: ranks that share this rank's GPU.
  template <class Build, class Rehearse>
  Engine(const Config& config, const Session& session, World where, int ranks_on_gpu, TensorSource& weights,
         Build build, Rehearse rehearse) {
    Config here = node_layout(config, session).config;
    here.run.device = where == World::cuda ? Device::cuda : Device::cpu;
    MemorySizes sizes;
    together(session, [&] {
      plan = make_plan(here, session.size(), session.rank());
      Runtime dry(World::dry, {}, Mesh::dry(plan.mesh, session.rank()));
      rehearse(*build(plan, dry), plan);
      sizes = dry.memory.peaks();
      check_memory({{where, sizes}}, session.ranks_on_this_node(), ranks_on_gpu);
    });
    if (session.size() > 1) {
      together(session, [&] { transport.emplace(where, here.communication, session); });
      everybody = transport->world();
    }
    Mesh mesh = everybody ? Mesh(plan.mesh, *everybody) : Mesh::dry(plan.mesh, 0);
    together(session, [&] {
      runtime.emplace(where, sizes, std::move(mesh));
      if (transport) transport->watch(runtime->stream);
      worker = build(plan, *runtime);
      read(weights);
    });
  }
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

 private:
  void read(TensorSource& weights) {
    Stream& s = runtime->stream;
    std::vector<HeldShard> shards;
    for (Unit& unit : worker->sharding().units()) {
      launch(s, Fill{.y = unit.master(), .value = 0});  // padding
      for (HeldShard& held : held_shards(unit, std::string(parameters_path), unit.master(), {0, unit.plan().numel}))
        shards.push_back(std::move(held));
    }
    read_shards(s, shards, weights, "the weights");
    for (Unit& unit : worker->sharding().units()) unit.round_working(s);
    worker->sharding().weights_changed();
  }
};

}  // namespace megalith
