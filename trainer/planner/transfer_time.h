// How long a transfer takes: by its group, the links that its ring crosses, and who shares them. Pure functions.
//
// A collective goes round a ring of its group's members in the order of their ranks (traffic.h). All groups of a
// channel do the same at the same time, so the rings that leave a node share its network. Small sums go up and down a
// tree of nodes and a chain inside each, as NCCL's do (its src/graph/tuning.cc has the latencies of both). An
// all-to-all goes to each member directly: what leaves a node shares its network with what all its ranks send. On CPUs
// parts are exchanged and then added up, through memory (trainer/communication/mpi.cpp).
#pragma once

#include "configs/hardware.h"
#include "trainer/communication/mesh.h"

namespace megalith {

// What transfers share when they are under way at the same time.
enum class Link : uint8_t { node, network, host };

struct GroupLink {
  int size = 1;  // of the group
  Link link = Link::node;
  double bandwidth = 0;         // bytes/s of a rank's part of the ring
  double ring = 0, tree = 0;    // seconds of latency: once round the ring, once up the tree
  double direct = 0, step = 0;  // of an all-to-all: seconds for each byte of payload, and of latency
  double added = 0;             // seconds for each byte that the host's cores read or write to add up what came
};

// Of a rank's group on a channel of collectives, or of its copies to and from the host.
GroupLink group_link(const MeshShape& mesh, const Hardware& hardware, int rank, Channel channel);
// Of messages between two ranks.
GroupLink message_link(const MeshShape& mesh, const Hardware& hardware, int rank, int peer);

// Seconds, alone on its link.
double transfer_time(const GroupLink& group, Transfer transfer, double payload, const Hardware& hardware);

}  // namespace megalith
