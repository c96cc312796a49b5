// Directions obeys the instructions of a round (trainer/layout/matrices.h, program.h): it brings the momentum of its
// matrices to their owners, has each owned matrix orthogonalised whole, and brings what comes out, the directions, to
// where the gradients were. Momentum is f32 there, and rounded once to Plan::direction, on one rank as on many; the
// directions are of that type, so what travels loses nothing and all layouts have the bits of one rank.
//
// Its memory, of the class scratch, is taken by the first instruction of a step and given back by the last.
#pragma once

#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "trainer/communication/communicator.h"
#include "trainer/layout/matrices.h"
#include "trainer/parallel/runtime.h"
#include "trainer/parallel/unit.h"
#include "trainer/program/program.h"
#include "trainer/step/orthogonalize.h"

namespace megalith {

class Directions {
 public:
  // All must outlive it.
  Directions(const Plan& plan, Runtime& runtime, const std::vector<Unit>& units, const Needs& needs);

  // send_momentum, orthogonalize and await_directions.
  void obey(const Instruction& i);

  // Sees each direction as its owner makes it: the matrix, and (rows, columns) in Plan::direction. None by default.
  using Observer = std::function<void(const Matrix& matrix, Tensor direction)>;
  void observe(Observer observer) { observer_ = std::move(observer); }

 private:
  // Elements of the unit's memory that lie together at `at` of a buffer.
  struct Piece {
    size_t matrix;  // of the round
    Interval elements;
    int64_t at;
  };
  // A rank sends and gets these in a round; offsets and counts are of elements.
  struct Exchanges {
    std::vector<Piece> held, received;  // this shard's elements by owner; those of the owned matrices by sender
    AllToAllParts shard;                // from held to received
    std::vector<Piece> parts;           // this tensor rank's parts of the matrices owned on the shard axis, by owner
    std::vector<Piece> gathered;        // those of the matrices owned altogether: of all tensor ranks, by sender
    AllToAllParts tensor;               // from parts to gathered
    int64_t num_held = 0, num_received = 0, num_parts = 0, num_gathered = 0;
  };
  struct Slot {
    Tensor held, received;
    Pending under_way;
  };
  // The memory of a step.
  struct Workspace {
    Workspace(Arena& arena, const Directions& of);
    Arena::Scope scope;
    std::vector<Slot> slots;
    Tensor parts, gathered;
    Orthogonalizer orthogonalizer;
  };

  Exchanges exchanges_of(const Round& round) const;
  void send(const Instruction& i);
  void orthogonalize(const Instruction& i);
  void await(const Instruction& i);
  bool owns(const Matrix& matrix) const;

  // These copy between a matrix's elements on this tensor rank, wherever they lie, and memory that has them in order.
  void bring(const Exchanges& e, const Slot& slot, const Round& round, size_t matrix, Tensor to);
  void take_back(const Exchanges& e, const Slot& slot, const Round& round, size_t matrix, Tensor from);
  Tensor gradient(const Matrix& matrix, Interval elements) const;
  // These copy between a whole matrix and its parts of all tensor ranks.
  void join(const Exchanges& e, const Matrix& matrix, size_t m, Tensor whole);
  void cut(const Exchanges& e, const Matrix& matrix, size_t m, Tensor whole);

  const Plan& plan_;
  Runtime& runtime_;
  const std::vector<Unit>& units_;
  const int64_t num_slots_;
  const int shard_, tensor_;
  const std::vector<Round> rounds_;
  std::vector<Exchanges> exchanges_;  // by round
  std::optional<Workspace> memory_;   // while rounds are under way
  Observer observer_;
};

}  // namespace megalith
