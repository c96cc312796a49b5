// Holds the communicators of a mesh of ranks (mesh_shape.h), one for each channel.
#pragma once

#include <array>
#include <memory>

#include "trainer/communication/communicator.h"
#include "trainer/communication/mesh_shape.h"

namespace megalith {

// Holds the communicators of one rank.
class Mesh {
 public:
  // Collective. Splits `world`.
  Mesh(const MeshShape& shape, Communicator& world);
  // Makes the mesh of any rank, for a dry run.
  static Mesh dry(const MeshShape& shape, int rank);

  const MeshShape& shape() const { return shape_; }
  int rank() const { return rank_; }
  int coordinate(Axis axis) const { return shape_.coordinate(rank_, axis); }
  Communicator& channel(Channel channel) const { return *channels_[static_cast<size_t>(channel)]; }

 private:
  // Groups of one do not need a communicator from `make`(channel, position). All groups of a channel have the same
  // size, so a collective `make` is called on all ranks or on none.
  template <class Make>
  Mesh(const MeshShape& shape, int rank, Make make) : shape_(shape), rank_(rank) {
    for (const Channel channel : all_channels) {
      const MeshShape::Position position = shape.position(rank, channel);
      channels_[static_cast<size_t>(channel)] =
          position.size == 1 ? self_communicator(name_of(channel)) : make(channel, position);
    }
  }

  MeshShape shape_;
  int rank_;
  std::array<std::unique_ptr<Communicator>, num_channels> channels_;
};

}  // namespace megalith
