#include "trainer/checkpointing/held_pieces.h"

#include <algorithm>

namespace megalith {

std::vector<HeldPiece> held_pieces(const Unit& unit, const std::string& path, Tensor shard, Interval within) {
  std::vector<HeldPiece> held;
  for (const PlacedParam& param : unit.plan().params)
    for (const Strip& strip : unit.strips_of(param, within))
      held.push_back({{.name = path + param.spec.name,
                       .shape = param.spec.shape.dims(),
                       .col_begin = strip.columns.begin,
                       .col_end = strip.columns.begin + strip.columns.count,
                       .begin = strip.elements.begin,
                       .end = strip.elements.end},
                      shard.flat(strip.local, strip.local + strip.elements.size())});
  return held;
}

StoredPiece stored_piece(Stream& s, const HeldPiece& held) {
  return {held.piece, [&s, data = held.data](int64_t begin, int64_t end, const auto& use) {
            s.download("save", data.flat(begin, end), [&](Tensor host) { use(host.data<float>()); });
            s.synchronize();
          }};
}

void read_piece(Stream& s, const HeldPiece& held, TensorSource& source) {
  constexpr int64_t part = int64_t{4} << 20;  // elements: so much of the host's memory is taken
  const int64_t numel = held.piece.numel();
  for (int64_t begin = 0; begin < numel; begin += part) {
    Piece wanted = held.piece;
    wanted.begin += begin;
    wanted.end = std::min(wanted.begin + part, held.piece.end);
    s.upload("load", {held.data.flat(begin, begin + wanted.numel())},
             [&](std::span<const Tensor> host) { source.read(wanted, host[0].data<float>()); });
  }
}

}  // namespace megalith
