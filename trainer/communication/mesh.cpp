#include "trainer/communication/mesh.h"

#include "kernels/system/counted.h"

namespace megalith {

Mesh::Mesh(const MeshShape& shape, Communicator& world)
    : Mesh(shape, world.rank(), [&](Channel channel, const MeshShape::Position& here) {
        return world.split(name_of(channel), static_cast<int>(channel), here.group, here.index);
      }) {
  CHECK(shape.size() == world.size(), "a mesh of {} on a world of {}", counted(shape.size(), "rank"), world.size());
}

Mesh Mesh::dry(const MeshShape& shape, int rank) {
  return {shape, rank, [](Channel channel, const MeshShape::Position& here) {
            return dry_communicator(name_of(channel), static_cast<int>(channel), here.index, here.size);
          }};
}

}  // namespace megalith
