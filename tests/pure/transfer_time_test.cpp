// How long transfers take: by hand, on meshes where it is plain who goes where.
#include "trainer/planner/transfer_time.h"

#include <gtest/gtest.h>

#include "trainer/communication/communicator.h"

namespace megalith {
namespace {

// Inside a node 1 GB/s and 1 us a step, between nodes 2 GB/s of a node and 100 us.
Hardware hardware() {
  Hardware h;
  h.host = {.memory = 1, .link = 4};
  h.node = {.link = 1, .topology = Topology::switched, .latency = 1};
  h.network = {.link = 2, .latency = 100};
  h.calibrated = {};
  h.calibrated.node_link = h.calibrated.network_link = 1;
  h.calibrated.collective_delay = 0;
  return h;
}

double microseconds(const GroupLink& link, Transfer transfer, double payload = 0) {
  return transfer_time(link, transfer, payload, hardware()) * 1e6;
}

TEST(TransferTime, AMessageTakesTheWayToItsPeer) {
  const MeshShape mesh{.pipeline = 4, .ranks_per_node = 2};
  const auto message = [&](int from, int to) {
    return microseconds(message_link(mesh, hardware(), from, to), Transfer::send, 1000);
  };
  EXPECT_DOUBLE_EQ(message(0, 1), 1 + 1);
  EXPECT_DOUBLE_EQ(message(1, 0), 1 + 1) << "whatever stage comes after it";
  EXPECT_DOUBLE_EQ(message(1, 2), 100 + 1) << "half of the node's network";
  EXPECT_DOUBLE_EQ(message(2, 1), 100 + 1);
  const MeshShape wide{.data = 4, .pipeline = 2, .ranks_per_node = 4};
  EXPECT_DOUBLE_EQ(message_link(wide, hardware(), 0, 4).bandwidth, 0.5e9) << "all four of a node send";
}

TEST(TransferTime, CoresAddUpWhatCameThroughMemory) {
  Hardware cpu = hardware();
  cpu.device.kind = DeviceKind::cpu;
  cpu.device.bandwidth = 8;  // GB/s, of which four ranks have 2 each
  cpu.calibrated.memory = 1;
  const auto added = [&](const MeshShape& mesh, Transfer transfer) {
    const auto time = [&](const Hardware& h) {
      return transfer_time(group_link(mesh, h, 0, Channel::shard), transfer, 4000, h) * 1e6;
    };
    return time(cpu) - time(hardware());
  };
  EXPECT_DOUBLE_EQ(added({.shard = 4}, Transfer::all_gather), 0);
  EXPECT_DOUBLE_EQ(added({.shard = 4}, Transfer::reduce_scatter), (4000 + 1000) / 2e3);
  EXPECT_DOUBLE_EQ(added({.shard = 4}, Transfer::reduce_scatter_to), 4000 * 5 / 2e3) << "one member adds up all";
  EXPECT_DOUBLE_EQ(added({.shard = 4}, Transfer::all_reduce), (4000 + 1000) / 2e3) << "each adds up a part";
  EXPECT_DOUBLE_EQ(added({.shard = 2, .data = 2}, Transfer::all_reduce), (8000 + 4000) / 2e3) << "both add up all";
}

TEST(TransferTime, ARingWaitsForTheNetworkOnceANode) {
  const MeshShape mesh{.shard = 16, .ranks_per_node = 4};
  const GroupLink link = group_link(mesh, hardware(), 5, Channel::shard);
  EXPECT_EQ(link.link, Link::network);
  // 15 steps, of which those that end a node are between nodes.
  EXPECT_DOUBLE_EQ(microseconds(link, Transfer::all_gather), 4 * 100 + 11 * 1);
  // Up a tree of four nodes and along a chain in each, and down again.
  EXPECT_DOUBLE_EQ(microseconds(link, Transfer::all_reduce), 2 * (2 * 100 + 3 * 1));
  // All of a node's network is one ring's, but a device sends no faster than its link.
  EXPECT_DOUBLE_EQ(link.bandwidth, 1e9);
}

// All of it passes over the links between members, and each part waits for the ring anew.
TEST(TransferTime, PartsOfAGatherTakeLongerThanTheWhole) {
  const GroupLink link = group_link({.shard = 4}, hardware(), 0, Channel::shard);
  EXPECT_DOUBLE_EQ(microseconds(link, Transfer::all_gather, 4000), 3 + 3);
  EXPECT_DOUBLE_EQ(microseconds(link, Transfer::all_gather_of, 2000), 3 + 2);
  EXPECT_DOUBLE_EQ(microseconds(link, Transfer::reduce_scatter_to, 2000), 3 + 2);
}

TEST(TransferTime, RingsOfANodeShareItsNetwork) {
  // The shard groups take every second rank: two of four ranks of a node are in each.
  const MeshShape mesh{.tensor = 2, .shard = 4, .data = 2, .ranks_per_node = 4};
  const GroupLink shard = group_link(mesh, hardware(), 0, Channel::shard);
  EXPECT_DOUBLE_EQ(shard.bandwidth, 1e9);
  EXPECT_DOUBLE_EQ(microseconds(shard, Transfer::reduce_scatter), 2 * 100 + 1);
  const GroupLink data = group_link(mesh, hardware(), 0, Channel::data);  // all four of a node cross
  EXPECT_DOUBLE_EQ(data.bandwidth, 0.5e9);
  EXPECT_DOUBLE_EQ(microseconds(data, Transfer::all_reduce, 1000), 2 * 100 + 2);
  const GroupLink tensor = group_link(mesh, hardware(), 0, Channel::tensor);
  EXPECT_EQ(tensor.link, Link::node);
  EXPECT_DOUBLE_EQ(microseconds(tensor, Transfer::all_reduce, 1000), 2 * 1 + 1);
}

// Each byte that leaves a node shares its network with those of the node's other ranks; a ring's leave it once for all.
TEST(TransferTime, AnAllToAllGoesToEachMemberDirectly) {
  const GroupLink inside = group_link({.shard = 4}, hardware(), 0, Channel::shard);
  EXPECT_DOUBLE_EQ(microseconds(inside, Transfer::all_to_all, 4000), 1 + 3) << "three quarters at 1 GB/s";
  const GroupLink across = group_link({.shard = 8, .ranks_per_node = 4}, hardware(), 5, Channel::shard);
  EXPECT_DOUBLE_EQ(microseconds(across, Transfer::all_to_all, 4000), 100 + 4) << "half at a quarter of 2 GB/s";
  const GroupLink apart = group_link({.tensor = 4, .shard = 4, .ranks_per_node = 4}, hardware(), 5, Channel::shard);
  EXPECT_DOUBLE_EQ(microseconds(apart, Transfer::all_to_all, 4000), 100 + 6) << "one of the group on each node";
  EXPECT_DOUBLE_EQ(microseconds(apart, Transfer::reduce_scatter, 8000), 3 * 100 + 12) << "the same in f32";
}

TEST(TransferTime, CalibratedNumbersCount) {
  Hardware h = hardware();
  h.calibrated.node_link = 0.5;
  h.calibrated.network_link = 0.25;
  h.calibrated.collective_delay = 7;
  const auto time = [&](const MeshShape& mesh, Transfer transfer) {
    return transfer_time(group_link(mesh, h, 0, Channel::shard), transfer, 4000, h) * 1e6;
  };
  const MeshShape inside{.shard = 4}, across{.shard = 8, .ranks_per_node = 4};
  EXPECT_DOUBLE_EQ(group_link(inside, h, 0, Channel::shard).bandwidth, 0.5e9);
  EXPECT_DOUBLE_EQ(group_link(across, h, 0, Channel::shard).bandwidth, 0.25e9);
  EXPECT_DOUBLE_EQ(time(inside, Transfer::all_to_all), 7 + 1 + 3 / 0.5);
  EXPECT_DOUBLE_EQ(time(across, Transfer::all_to_all), 7 + 100 + 4 / 0.25);
  EXPECT_DOUBLE_EQ(time(inside, Transfer::all_gather), 7 + 3 + ring_bytes(Transfer::all_gather, 4000, 4) / 0.5e3);
  EXPECT_DOUBLE_EQ(message_link({.pipeline = 4, .ranks_per_node = 2}, h, 1, 2).bandwidth, 0.25e9);
}

TEST(TransferTime, ACopyToTheHostHasItsLink) {
  EXPECT_DOUBLE_EQ(microseconds(group_link({}, hardware(), 0, Channel::host), Transfer::to_device, 4000), 1);
}

}  // namespace
}  // namespace megalith
