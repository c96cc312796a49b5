// A tensor whose rows become ready piece by piece, as sums and gathers over ranks deliver them: the product of one
// piece overlaps with the transfer of the next.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/tensor/interval.h"
#include "kernels/tensor/tensor.h"

namespace megalith {

class InPieces {
 public:
  // Orders the stream after the operation that makes a piece ready. It is called once.
  using Await = std::function<void()>;

  // All rows are ready.
  InPieces(Tensor ready) : InPieces(ready, Await{}) {}
  // All rows become ready together.
  InPieces(Tensor rows, Await await) : rows_(rows) { add({0, rows.rows()}, std::move(await)); }
  // Pieces must be added, in the order of the rows and up to the last row.
  static InPieces none_of(Tensor rows) {
    InPieces pieces(rows);
    pieces.pieces_.clear();
    return pieces;
  }
  void add(Interval rows, Await await) { pieces_.push_back({rows, std::move(await)}); }

  // Keeps memory that the operations need until all pieces are ready.
  void hold(std::shared_ptr<void> memory) { held_ = std::move(memory); }

  // The tensor. Its rows may be read once they are ready.
  const Tensor& rows() const { return rows_; }

  // Calls use(rows) for each piece when it is ready, in order. Afterwards all rows are ready.
  template <class Use>
  void each(Use use) {
    for (Piece& piece : pieces_) {
      if (const Await await = std::exchange(piece.await, {})) await();
      if (&piece == &pieces_.back()) held_.reset();
      use(piece.rows);
    }
  }
  // Waits for all rows and returns the tensor.
  Tensor all() {
    each([](Interval) {});
    return rows_;
  }

  // Returns `made` in pieces of the same rows: each is ready when this tensor's piece is and make(rows) has been
  // called.
  InPieces then(Tensor made, const std::function<void(Interval rows)>& make) && {
    InPieces pieces = none_of(made);
    for (Piece& piece : pieces_)
      pieces.add(piece.rows, [await = std::move(piece.await), make, rows = piece.rows] {
        if (await) await();
        make(rows);
      });
    return pieces;
  }

 private:
  struct Piece {
    Interval rows;
    Await await;  // empty: ready
  };
  Tensor rows_;
  std::vector<Piece> pieces_;
  std::shared_ptr<void> held_;
};

}  // namespace megalith
