#include "trainer/train/held_pieces.h"

namespace megalith {

std::vector<HeldPiece> held_pieces(const Unit& unit, const std::string& path, Tensor shard, Interval within) {
  std::vector<HeldPiece> held;
  for (const PlacedParam& param : unit.plan().params) {
    std::vector<int64_t> shape;
    for (int i = 0; i < param.spec.shape.num_dims(); i++) shape.push_back(param.spec.shape[i]);
    for (const Strip& strip : unit.strips_of(param, within))
      held.push_back({{.name = path + param.spec.name,
                       .shape = shape,
                       .col_begin = strip.columns.begin,
                       .col_end = strip.columns.begin + strip.columns.count,
                       .begin = strip.elements.begin,
                       .end = strip.elements.end},
                      shard.flat(strip.local, strip.local + strip.elements.size())});
  }
  return held;
}

}  // namespace megalith
