#include "trainer/step/directions.h"

#include <algorithm>

#include "kernels/elementwise/elementwise.h"
#include "kernels/update/muon.h"

namespace megalith {

namespace {

using Op = Instruction::Op;

template <class Count>
int64_t most(const std::vector<Round>& rounds, Count count) {
  int64_t most = 0;
  for (const Round& round : rounds)
    for (const Matrix& matrix : round.matrices) most = std::max<int64_t>(most, count(matrix));
  return most;
}

Tensor piece_of(const Tensor& buffer, int64_t at, int64_t numel) { return buffer.flat(at, at + numel); }

}  // namespace

Directions::Directions(const Plan& plan, Runtime& runtime, const std::vector<Unit>& units, const Needs& needs)
    : plan_(plan),
      runtime_(runtime),
      units_(units),
      num_slots_(needs.rounds_at_once),
      shard_(plan.mesh.coordinate(plan.rank, Axis::shard)),
      tensor_(plan.mesh.coordinate(plan.rank, Axis::tensor)),
      rounds_(rounds_of(plan)) {
  for (const Round& round : rounds_) exchanges_.push_back(exchanges_of(round));
}

bool Directions::owns(const Matrix& matrix) const { return matrix.owner == shard_ && matrix.tensor_owner == tensor_; }

Directions::Exchanges Directions::exchanges_of(const Round& round) const {
  const int S = plan_.mesh.shard, T = plan_.mesh.tensor;
  const std::vector<Matrix>& all = round.matrices;
  Exchanges e;
  // by[from][to]: the elements that rank `from` of an axis sends to rank `to`.
  const auto counts = [](int n) {
    return std::vector(static_cast<size_t>(n), std::vector<int64_t>(static_cast<size_t>(n)));
  };
  std::vector<std::vector<int64_t>> by_shard = counts(S), by_tensor = counts(T);
  for (const Matrix& m : all) {
    for (int s = 0; s < S; s++)
      by_shard[static_cast<size_t>(s)][static_cast<size_t>(m.owner)] += m.in_shard(plan_.units[m.unit], s).size();
    for (int t = 0; t < T && m.owner == shard_; t++)
      by_tensor[static_cast<size_t>(t)][static_cast<size_t>(m.tensor_owner)] += m.local.size();
  }
  e.shard = AllToAllParts::of(by_shard, shard_);
  e.tensor = AllToAllParts::of(by_tensor, tensor_);
  const auto add = [](std::vector<Piece>& pieces, int64_t& num, size_t m, Interval elements) {
    if (elements.size() > 0) pieces.push_back({m, elements, num});
    num += elements.size();
  };
  for (int other = 0; other < S; other++)
    for (size_t m = 0; m < all.size(); m++) {
      const UnitPlan& unit = plan_.units[all[m].unit];
      if (all[m].owner == other) add(e.held, e.num_held, m, all[m].in_shard(unit, shard_));
      if (all[m].owner == shard_) add(e.received, e.num_received, m, all[m].in_shard(unit, other));
    }
  for (int other = 0; other < T; other++)
    for (size_t m = 0; m < all.size(); m++) {
      if (all[m].owner != shard_) continue;
      if (all[m].tensor_owner == other) add(e.parts, e.num_parts, m, all[m].local);
      if (all[m].tensor_owner == tensor_) add(e.gathered, e.num_gathered, m, all[m].local);
    }
  return e;
}

Directions::Workspace::Workspace(Arena& arena, const Directions& of)
    : scope(arena),
      orthogonalizer(arena, of.plan_.direction,
                     most(of.rounds_, [&](const Matrix& m) { return of.owns(m) ? m.rows * m.columns : 0; }),
                     most(of.rounds_, [&](const Matrix& m) { return of.owns(m) ? std::min(m.rows, m.columns) : 0; })) {
  const auto largest = [&](int64_t Exchanges::*numel) {
    int64_t most = 0;
    for (const Exchanges& e : of.exchanges_) most = std::max(most, e.*numel);
    return arena.tensor(of.plan_.direction, {most});
  };
  slots.resize(static_cast<size_t>(of.num_slots_));
  if (of.plan_.mesh.shard > 1)
    for (Slot& slot : slots) {
      slot.held = largest(&Exchanges::num_held);
      slot.received = largest(&Exchanges::num_received);
    }
  if (of.plan_.mesh.tensor > 1) {
    parts = largest(&Exchanges::num_parts);
    gathered = largest(&Exchanges::num_gathered);
  }
}

void Directions::obey(const Instruction& i) {
  if (!memory_) memory_.emplace(runtime_.memory[MemoryClass::scratch], *this);
  const Stream::Section section(runtime_.stream, Cost::Section::directions);
  switch (i.op) {
    case Op::send_momentum: send(i); break;
    case Op::orthogonalize: orthogonalize(i); break;
    case Op::await_directions:
      await(i);
      if (i.round + 1 == std::ssize(rounds_)) memory_.reset();
      break;
    default: FAIL("directions are given an instruction {}", static_cast<int>(i.op));
  }
}

Tensor Directions::gradient(const Matrix& matrix, Interval elements) const {
  const int64_t first = plan_.units[matrix.unit].shard.begin;
  return units_[matrix.unit].gradient().flat(elements.begin - first, elements.end - first);
}

void Directions::send(const Instruction& i) {
  if (plan_.mesh.shard == 1) return;
  const auto r = static_cast<size_t>(i.round);
  const Exchanges& e = exchanges_[r];
  Slot& slot = memory_->slots[static_cast<size_t>(i.slot)];
  for (const Piece& piece : e.held)
    launch(runtime_.stream, Copy{.y = piece_of(slot.held, piece.at, piece.elements.size()),
                                 .x = gradient(rounds_[r].matrices[piece.matrix], piece.elements)});
  slot.under_way =
      runtime_.mesh.channel(Channel::shard)
          .all_to_all(runtime_.stream, slot.received.flat(0, e.num_received), slot.held.flat(0, e.num_held), e.shard);
}

void Directions::bring(const Exchanges& e, const Slot& slot, const Round& round, size_t m, Tensor to) {
  const Matrix& matrix = round.matrices[m];
  if (plan_.mesh.shard == 1) return launch(runtime_.stream, Copy{.y = to, .x = gradient(matrix, matrix.local)});
  for (const Piece& piece : e.received)
    if (piece.matrix == m)
      launch(runtime_.stream, Copy{.y = piece_of(to, piece.elements.begin - matrix.local.begin, piece.elements.size()),
                                   .x = piece_of(slot.received, piece.at, piece.elements.size())});
}

void Directions::take_back(const Exchanges& e, const Slot& slot, const Round& round, size_t m, Tensor from) {
  const Matrix& matrix = round.matrices[m];
  if (plan_.mesh.shard == 1) return launch(runtime_.stream, Copy{.y = gradient(matrix, matrix.local), .x = from});
  for (const Piece& piece : e.received)
    if (piece.matrix == m)
      launch(runtime_.stream,
             Copy{.y = piece_of(slot.received, piece.at, piece.elements.size()),
                  .x = piece_of(from, piece.elements.begin - matrix.local.begin, piece.elements.size())});
}

// Part t of the tensor axis has the t-th of equal runs of rows or of columns. If several ranks have the same rows, they
// have the same momentum for them, and get the same directions.
void Directions::join(const Exchanges& e, const Matrix& matrix, size_t m, Tensor whole) {
  const int64_t each = matrix.local.size(), width = matrix.columns / plan_.mesh.tensor;
  int64_t t = 0;
  for (const Piece& piece : e.gathered) {
    if (piece.matrix != m) continue;
    const Tensor part = piece_of(memory_->gathered, piece.at, each);
    if (matrix.split == Split::rows)
      launch(runtime_.stream, Copy{.y = piece_of(whole, t / matrix.holders * each, each), .x = part});
    else
      launch(runtime_.stream, PutColumns{.whole = whole, .part = part, .columns = {t * width, width, matrix.columns}});
    t++;
  }
}

void Directions::cut(const Exchanges& e, const Matrix& matrix, size_t m, Tensor whole) {
  const int64_t each = matrix.local.size(), width = matrix.columns / plan_.mesh.tensor;
  int64_t t = 0;
  for (const Piece& piece : e.gathered) {
    if (piece.matrix != m) continue;
    const Tensor part = piece_of(memory_->gathered, piece.at, each);
    if (matrix.split == Split::rows)
      launch(runtime_.stream, Copy{.y = part, .x = piece_of(whole, t / matrix.holders * each, each)});
    else
      launch(runtime_.stream, TakeColumns{.part = part, .whole = whole, .columns = {t * width, width, matrix.columns}});
    t++;
  }
}

void Directions::orthogonalize(const Instruction& i) {
  Stream& s = runtime_.stream;
  const auto r = static_cast<size_t>(i.round);
  const Exchanges& e = exchanges_[r];
  const Round& round = rounds_[r];
  Slot& slot = memory_->slots[static_cast<size_t>(i.slot)];
  Communicator &shards = runtime_.mesh.channel(Channel::shard), &tensors = runtime_.mesh.channel(Channel::tensor);
  const bool split = plan_.mesh.tensor > 1;
  slot.under_way.wait();
  Tensor parts, gathered;
  if (split) {
    parts = memory_->parts.flat(0, e.num_parts);
    gathered = memory_->gathered.flat(0, e.num_gathered);
    for (const Piece& p : e.parts) bring(e, slot, round, p.matrix, piece_of(parts, p.at, p.elements.size()));
    tensors.all_to_all(s, gathered, parts, e.tensor).wait();
  }
  for (size_t m = 0; m < round.matrices.size(); m++) {
    const Matrix& matrix = round.matrices[m];
    if (!owns(matrix)) continue;
    const Tensor x = memory_->orthogonalizer.input(matrix.rows, matrix.columns);
    split ? join(e, matrix, m, x) : bring(e, slot, round, m, x);
    const Tensor direction = memory_->orthogonalizer.orthogonalize(s, matrix.rows, matrix.columns);
    if (observer_) observer_(matrix, direction);
    split ? cut(e, matrix, m, direction) : take_back(e, slot, round, m, direction);
  }
  if (split) {
    tensors.all_to_all(s, parts, gathered, e.tensor.back()).wait();
    for (const Piece& p : e.parts) take_back(e, slot, round, p.matrix, piece_of(parts, p.at, p.elements.size()));
  }
  if (plan_.mesh.shard > 1)
    slot.under_way =
        shards.all_to_all(s, slot.held.flat(0, e.num_held), slot.received.flat(0, e.num_received), e.shard.back());
}

void Directions::await(const Instruction& i) {
  if (plan_.mesh.shard == 1) return;
  const auto r = static_cast<size_t>(i.round);
  Slot& slot = memory_->slots[static_cast<size_t>(i.slot)];
  slot.under_way.wait();
  for (const Piece& piece : exchanges_[r].held)
    launch(runtime_.stream, Copy{.y = gradient(rounds_[r].matrices[piece.matrix], piece.elements),
                                 .x = piece_of(slot.held, piece.at, piece.elements.size())});
}

}  // namespace megalith
