// What a rank holds of the global tensors: the pieces of its units, with their memory. Checkpoints, imports and
// inference read and write weights through these, whatever the layout.
#pragma once

#include <string>
#include <vector>

#include "checkpoints/piece.h"
#include "checkpoints/tensor_source.h"
#include "checkpoints/writer.h"
#include "trainer/parallel/unit.h"

namespace megalith {

// What a strip holds of a parameter, under the name `path` + the parameter's.
Piece piece_of(const std::string& path, const ParamSpec& param, const Strip& strip);

struct HeldPiece {
  Piece piece;
  Tensor data;  // f32 or bf16, wherever the stream's tensors lie
};

// The pieces of `values`, which are those of the unit's shard within elements `within` of the unit, one after another.
// Names are `path` + the parameter's; padding belongs to none.
std::vector<HeldPiece> held_pieces(const Unit& unit, const std::string& path, Tensor values, Interval within);

// The piece with its values at the time of the write, which waits for the stream. The stream must outlive the result.
StoredPiece stored_piece(Stream& s, const HeldPiece& held);
// Of values in memory of the host, which nobody changes until it is written, by any thread.
StoredPiece stored_piece_on_host(const HeldPiece& held);

// Reads the piece into its memory, rounded to nearest if that is bf16; work launched from here on sees it.
void read_piece(Stream& s, const HeldPiece& held, TensorSource& source);

}  // namespace megalith
