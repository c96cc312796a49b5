// Executes the instructions of a round (trainer/layout/matrices.h, program.h): it sends the momentum of the matrices to
// their owners, each owner orthogonalises its matrices as a whole, and the results, the directions, replace the
// gradients. Momentum is f32, and rounded once to Plan::direction, on one rank as on many; directions have that type,
// so transfers lose nothing and all layouts have the bits of a single rank.
//
// Its memory, of the class scratch, is allocated by the first instruction of a step and freed by the last.
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

  // Executes send_momentum, orthogonalize and await_directions.
  void obey(const Instruction& i);

  // Sees each direction when its owner has computed it: the matrix, and (rows, columns) in Plan::direction. Unset by
  // default.
  using Observer = std::function<void(const Matrix& matrix, Tensor direction)>;
  void observe(Observer observer) { observer_ = std::move(observer); }

 private:
  // Contiguous elements of the unit's memory, at `at` of a buffer.
  struct Piece {
    size_t matrix;  // index in the round
    Interval elements;
    int64_t at;
  };
  // What a rank sends and receives in a round; offsets and counts are of elements.
  struct Exchanges {
    // held: this shard's elements, by owner; received: those of the owned matrices, by sender.
    std::vector<Piece> held, received;
    AllToAllParts shard;  // exchange of held for received
    // This tensor rank's parts of the matrices that this rank of the shard axis owns, by owner.
    std::vector<Piece> parts;
    std::vector<Piece> gathered;  // those of the matrices that this rank owns: of all tensor ranks, by sender
    AllToAllParts tensor;         // exchange of parts for gathered
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

  // Copy between a matrix's elements on this tensor rank, wherever they are, and memory that has them in order.
  void bring(const Exchanges& e, const Slot& slot, const Round& round, size_t matrix, Tensor to);
  void take_back(const Exchanges& e, const Slot& slot, const Round& round, size_t matrix, Tensor from);
  Tensor gradient(const Matrix& matrix, Interval elements) const;
  // Copy between a whole matrix and its parts of all tensor ranks.
  void join(const Exchanges& e, const Matrix& matrix, size_t m, Tensor whole);
  void cut(const Exchanges& e, const Matrix& matrix, size_t m, Tensor whole);

  const Plan& plan_;
  Runtime& runtime_;
  const std::vector<Unit>& units_;
  const int64_t num_slots_;
  const int shard_, tensor_;
  const std::vector<Round> rounds_;
  std::vector<Exchanges> exchanges_;  // by round
  std::optional<Workspace> memory_;   // set while rounds are in progress
  Observer observer_;
};

}  // namespace megalith
