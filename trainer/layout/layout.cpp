#include "trainer/layout/layout.h"

#include <algorithm>

#include "configs/degrees.h"

namespace megalith {

MeshShape mesh_shape(const Config& config, int num_ranks) {
  const Degrees d = degrees(config, num_ranks);
  MeshShape shape{.tensor = static_cast<int>(d.tensor),
                  .shard = static_cast<int>(d.shard),
                  .data = static_cast<int>(d.data),
                  .pipeline = static_cast<int>(d.pipeline),
                  .placement = all_axes,
                  .ranks_per_node = static_cast<int>(config.parallel.ranks_per_node)};
  shape.v_shaped = is_v_shaped(config.parallel.pipeline_schedule);
  if (const int64_t heads = config.model.kv_heads(); 1 < heads && heads < d.tensor)
    shape.head_holders = static_cast<int>(d.tensor / heads);
  const std::string& words = config.parallel.placement;
  std::sort(shape.placement.begin(), shape.placement.end(),
            [&](Axis a, Axis b) { return words.find(name_of(a)) < words.find(name_of(b)); });
  return shape;
}

}  // namespace megalith
