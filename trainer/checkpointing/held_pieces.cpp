#include "trainer/checkpointing/held_pieces.h"

#include <algorithm>
#include <vector>

namespace megalith {

Piece piece_of(const std::string& path, const ParamSpec& param, const Strip& strip) {
  return {.name = path + param.name,
          .shape = param.shape.dims(),
          .col_begin = strip.columns.begin,
          .col_end = strip.columns.begin + strip.columns.count,
          .begin = strip.elements.begin,
          .end = strip.elements.end};
}

std::vector<HeldPiece> held_pieces(const Unit& unit, const std::string& path, Tensor values, Interval within) {
  std::vector<HeldPiece> held;
  const Interval shard = unit.plan().shard;
  const int64_t first = intersect(shard, within).begin - shard.begin;
  for (const PlacedParam& param : unit.plan().params)
    for (const Strip& strip : unit.strips_of(param, within))
      held.push_back({piece_of(path, param.spec, strip),
                      values.flat(strip.local - first, strip.local - first + strip.elements.size())});
  return held;
}

namespace {
void read_into(const Tensor& to, const Piece& wanted, TensorSource& source) {
  if (to.dtype() == DType::f32) return source.read(wanted, to.data<float>());
  std::vector<float> values(static_cast<size_t>(to.numel()));
  source.read(wanted, values.data());
  std::transform(values.begin(), values.end(), to.data<bfloat16>(), [](float v) { return bfloat16(v); });
}
}  // namespace

StoredPiece stored_piece(Stream& s, const HeldPiece& held) {
  return {held.piece, held.data.dtype(), [&s, data = held.data](int64_t begin, int64_t end, const auto& use) {
            s.download("save", data.flat(begin, end), [&](Tensor host) { use(host.raw()); });
            s.synchronize();
          }};
}

StoredPiece stored_piece_on_host(const HeldPiece& held) {
  return {held.piece, held.data.dtype(),
          [data = held.data](int64_t begin, int64_t end, const auto& use) { use(data.flat(begin, end).raw()); }};
}

void read_piece(Stream& s, const HeldPiece& held, TensorSource& source) {
  constexpr int64_t part = int64_t{4} << 20;  // elements: so much of the host's memory is taken
  const int64_t numel = held.piece.numel();
  for (int64_t begin = 0; begin < numel; begin += part) {
    Piece wanted = held.piece;
    wanted.begin += begin;
    wanted.end = std::min(wanted.begin + part, held.piece.end);
    s.upload("load", {held.data.flat(begin, begin + wanted.numel())},
             [&](std::span<const Tensor> host) { read_into(host[0], wanted, source); });
  }
}

}  // namespace megalith
