// Estimates the time of a transfer by its group and the links that its ring (traffic.h) crosses. All functions are
// pure.
//
// All groups of a channel do the same at the same time, so the rings that leave a node share its network. Small sums
// use a tree of nodes and a chain inside each, as in NCCL (latencies: its src/graph/tuning.cc). An all-to-all goes to
// each member directly, and all ranks of a node share its network. CPUs exchange parts and add them up through memory
// (trainer/communication/mpi.cpp).
#pragma once

#include "configs/hardware.h"
#include "trainer/communication/mesh_shape.h"

namespace megalith {

enum class Link : uint8_t { node, network, host };

struct GroupLink {
  int size = 1;  // ranks
  Link link = Link::node;
  double bandwidth = 0;         // bytes/s a rank
  double ring = 0, tree = 0;    // seconds of latency: once round the ring, once up the tree
  double direct = 0, step = 0;  // all-to-all: seconds a byte of payload, seconds of latency
  double added = 0;             // seconds a byte that the host reads or writes to add up
};

// Returns the link of a rank's group, or of its copies on Channel::host.
GroupLink group_link(const MeshShape& mesh, const Hardware& hardware, int rank, Channel channel);
GroupLink message_link(const MeshShape& mesh, const Hardware& hardware, int rank, int peer);

// Returns seconds for a transfer that does not share its link. In a gather or a scatter of some members, `members` have
// a part: all of it passes over some step of the ring, and only they add up.
double transfer_time(const GroupLink& group, Transfer transfer, double payload, const Hardware& hardware,
                     int members = 1);

}  // namespace megalith
