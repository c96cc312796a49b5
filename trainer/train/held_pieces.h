// What a rank holds of the global tensors: the pieces of its units, with their memory. Checkpoints, imports and
// inference read and write weights through these, whatever the layout.
#pragma once

#include <string>
#include <vector>

#include "checkpoints/piece.h"
#include "trainer/parallel/unit.h"

namespace megalith {

struct HeldPiece {
  Piece piece;
  Tensor data;  // f32
};

// The pieces of `shard`, a tensor laid out as the unit's shard, within elements `within` of the unit. Names are
// `path` + the parameter's; padding belongs to none.
std::vector<HeldPiece> held_pieces(const Unit& unit, const std::string& path, Tensor shard, Interval within);

}  // namespace megalith
