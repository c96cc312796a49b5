#include "trainer/job/rank_context.h"

#include "trainer/job/agreement.h"
#include "trainer/job/memory_check.h"

namespace megalith {

RankContext::RankContext(const Config& config, const Session& s)
    : session(s), device(choose_device(config, s)), layout(node_layout(config, s)) {
  layout.config.run.device = device.world == World::cuda ? Device::cuda : Device::cpu;
}

void RankContext::rehearse() {
  plan = make_plan(layout.config, session.size(), session.rank());
  if (device.world == World::cuda) {
    const device::Properties gpu = device::properties();
    plan.chip = DeviceQueue::chip_of(gpu);
    together(session, [&] {
      CHECK(plan.fp8_layers.size() == 0 || gpu.has_fp8(),
            "precision.products = \"fp8\" needs a GPU of compute capability 8.9 (Ada, Hopper) or later, but GPU {} "
            "({}) has "
            "{}.{}; use another GPU, or set precision.products = \"compute\"",
            gpu.index, gpu.name, gpu.major, gpu.minor);
    });
  }
  rehearsal = megalith::rehearse(layout.config, plan);
}

void RankContext::open() {
  together(session, [&] { transport.emplace(device.world, layout.config.communication, session); });
  world = transport->world();
  Mesh mesh(plan.mesh, *world);
  if (plan.reduce_dtype != DType::f32)  // narrow sums use all-to-all
    for (Channel channel : {plan.relay ? Channel::in_node : Channel::shard, Channel::between_nodes, Channel::data})
      if (channel != Channel::between_nodes || plan.relay) mesh.channel(channel).connect_all_to_all();
  if (layout.config.optimizer.algorithm == Algorithm::muon)  // momentum and directions too
    for (Channel channel : {Channel::shard, Channel::tensor}) mesh.channel(channel).connect_all_to_all();
  if (transport->wants_symmetric())
    symmetric = symmetric_memory_plan(plan.mesh, memory_of_all_ranks(session, {rehearsal.memory, rehearsal.placements}),
                                      session.rank());
  const MemorySizes& sizes = symmetric ? symmetric->sizes : rehearsal.memory;
  // Check again, now that NCCL and the GEMM library have allocated memory, and before any rank of the GPU allocates its
  // share.
  std::unique_ptr<DeviceQueue> queue;
  if (device.world == World::cuda) {
    together(session, [&] { queue = std::make_unique<DeviceQueue>(); });
    together(session, [&] { check_gpu_memory(sizes, device.ranks, true); });
  }
  together(session, [&] {
    runtime.emplace(device.world, sizes, std::move(mesh), std::move(queue), transport->of_device());
    transport->watch(runtime->stream);
  });
  if (symmetric) use_symmetric(*runtime, symmetric->channels);
  together(session, [&] { trainer.emplace(layout.config, plan, *runtime); });
}

ProcessMemory RankContext::process_memory(int threads) const {
  if (device.world == World::cuda) return {};
  return megalith::process_memory(plan.mesh, plan.rank, rehearsal.trace, rehearsal.saved, threads);
}

}  // namespace megalith
