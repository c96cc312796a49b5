#include "trainer/train/observed_run.h"

#include <algorithm>

#include "kernels/philox.h"
#include "trainer/train/agreement.h"
#include "trainer/train/checkpointer.h"
#include "trainer/train/rehearsal.h"
#include "trainer/train/text_data.h"

namespace megalith {

namespace {

Feed made_up_tokens(const Config& config, int64_t first) {
  const int64_t T = config.batch.sequence_length;
  const auto seed = static_cast<uint64_t>(config.data.seed), vocab = static_cast<uint64_t>(config.model.vocab);
  return [=](Interval sequences, Tensor tokens, Tensor targets) {
    const auto at = [=](int64_t i) {
      return static_cast<int32_t>(philox(seed, static_cast<uint64_t>(i), 0)[0] % vocab);
    };
    const int64_t begin = (first + sequences.begin) * T, n = sequences.size() * T;
    for (int64_t i = 0; i < tokens.numel(); i++) {
      tokens.data<int32_t>()[i] = i < n ? at(begin + i) : 0;
      targets.data<int32_t>()[i] = i < n ? at(begin + i + 1) : -1;
    }
  };
}

void append(std::vector<float>& values, Tensor t) {
  if (t.dtype() == DType::bf16)
    for (int64_t i = 0; i < t.numel(); i++) values.push_back(static_cast<float>(t.data<bfloat16>()[i]));
  else
    values.insert(values.end(), t.data<float>(), t.data<float>() + t.numel());
}

// Adds 1 to the middle element of the whole tensor, where it is in this piece.
void add_error(const Piece& piece, Tensor data) {
  const int64_t cols = piece.cols(), middle = piece.rows() * cols / 2, column = middle % cols - piece.col_begin;
  const int64_t width = piece.col_end - piece.col_begin, at = middle / cols * width + column - piece.begin;
  if (column < 0 || column >= width || at < 0 || at >= piece.numel()) return;
  if (data.dtype() == DType::bf16) {
    bfloat16& x = data.data<bfloat16>()[at];
    x = bfloat16(static_cast<float>(x) + 1);
  } else {
    data.data<float>()[at] += 1;
  }
}

}  // namespace

void ObservedRun::plan(const MpiSession& mpi) {
  together(mpi, [&] {
    plan_ = make_plan(config_, mpi.size(), mpi.rank());
    memory_ = rehearse(config_, plan_, TraceLevel::off).memory;
  });
}

void ObservedRun::start(const MpiSession& mpi, Communicator& world) {
  Mesh mesh(plan_.mesh, world);
  together(mpi, [&] {
    runtime_.emplace(World::cpu, memory_, std::move(mesh));
    trainer_.emplace(config_, plan_, *runtime_);
  });
  if (config_.checkpoint.init_from.empty())
    trainer_->initialize();
  else
    Checkpointer(config_, mpi, *trainer_).initialize_weights();

  const int64_t rows = config_.batch.global_batch_size * config_.batch.sequence_length;
  trainer_->stage().observe([this, rows](const std::string& name, int64_t first_row, Tensor seen) {
    const int64_t C = seen.cols();
    show(flat_piece(name, {rows, C}, first_row * C, first_row * C + seen.numel()), seen);
  });
  show_weights();
  if (fault_.step == 0) trainer_->weights_loaded();
}

void ObservedRun::step(int64_t step, const Loader* data) {
  step_ = step;
  const int64_t first = (step - 1) * config_.batch.global_batch_size;
  StepScalars scalars;
  trainer_->step(step - 1, first, data ? feed_from(*data, first, config_.model.vocab) : made_up_tokens(config_, first),
                 false, &scalars);
  show_scalar("mean loss", scalars.loss);
  show_gradients();
  show_scalar("gradient norm", scalars.grad_norm);
  show_weights();
}

void ObservedRun::show(const Piece& piece, Tensor data) {
  if (step_ == fault_.step && piece.name == fault_.name) add_error(piece, data);
  Shown& shown = shown_[piece.name];
  shown.pieces.push_back(piece);
  append(shown.values, data);
}

void ObservedRun::show_scalar(const std::string& name, double value) {
  auto rounded = static_cast<float>(value);
  show(whole_piece(name, {1}), {&rounded, DType::f32, {1}});
}

void ObservedRun::show_gradients() {
  for (const Unit& unit : trainer_->stage().sharding().units())
    for (const HeldPiece& held : held_pieces(unit, "d ", unit.gradient(), {0, unit.plan().numel}))
      show(held.piece, held.data);
}

void ObservedRun::show_weights() {
  weights_.clear();
  for (const Unit& unit : trainer_->stage().sharding().units())
    for (const HeldPiece& held : held_pieces(unit, "", unit.master(), {0, unit.plan().numel})) {
      show(held.piece, held.data);
      weights_[held.piece.name].push_back(held.data);
    }
}

Shown ObservedRun::take(const std::string& name) {
  const auto found = shown_.find(name);
  if (found == shown_.end()) return {};
  Shown shown = std::move(found->second);
  shown_.erase(found);
  return shown;
}

void ObservedRun::set_weights(const std::string& name, std::span<const float> values) {
  for (const Tensor& piece : weights_[name]) {
    const auto n = static_cast<size_t>(piece.numel());
    std::copy_n(values.data(), n, piece.data<float>());
    values = values.subspan(n);
  }
}

void ObservedRun::weights_set() {
  for (Unit& unit : trainer_->stage().sharding().units()) unit.round_working(runtime_->stream);
}

}  // namespace megalith
