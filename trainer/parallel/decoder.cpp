#include "trainer/parallel/decoder.h"

#include <algorithm>

namespace megalith {

namespace {

Tensor first_rows(const Tensor& t, int64_t rows) { return t.rows(0, rows); }

// The plan for texts that continue token by token: rows are not divided, documents not isolated, products not cut, and
// only weights wait on the host.
Plan for_texts(Plan plan) {
  plan.sequence_parallel = plan.isolates_documents = plan.draws_from_memory = false;
  plan.horizon = plan.tensor_pieces = 0;
  plan.pass.first_row = 0;
  return plan;
}

std::unique_ptr<Sharding> weights_for_texts(const Plan& plan, Runtime& runtime) {
  const Program program = logits_program(for_texts(plan));
  return std::make_unique<Sharding>(plan, runtime, needs_of(plan, {&program}), false);
}

}  // namespace

Decoder::Decoder(const Plan& plan, Runtime& runtime, int64_t places, int64_t positions)
    : Decoder(plan, runtime, weights_for_texts(plan, runtime), nullptr, places, positions) {}

Decoder::Decoder(const Plan& plan, Runtime& runtime, Sharding& weights, int64_t places, int64_t positions)
    : Decoder(plan, runtime, nullptr, &weights, places, positions) {}

Decoder::Decoder(const Plan& plan, Runtime& runtime, std::unique_ptr<Sharding> own, Sharding* weights, int64_t places,
                 int64_t positions)
    : plan_(for_texts(plan)),
      runtime_(runtime),
      model_(plan.model),
      program_(logits_program(plan_)),
      own_(std::move(own)),
      sharding_(own_ ? *own_ : *weights),
      edge_(make_edge(plan_, runtime.mesh)),
      places_(places),
      positions_(positions) {
  CHECK(positions <= plan.model.context, "texts of {} tokens, but the model's context is {}", positions,
        plan.model.context);
  const Needs needs = needs_of(plan_, {&program_});
  CHECK(sharding_.has_slots_for(needs), "the weights have {} slots, too few or too small for texts",
        needs.weights.size());
  Arena& arena = runtime.memory[MemoryClass::saved];
  const int64_t N = std::max(places, positions);
  tokens_ = arena.tensor(DType::i32, {N});
  rows_ = arena.tensor(DType::i32, {N, 2});
  transfers_.resize(static_cast<size_t>(needs.residuals));
  for (int64_t i = 0; i < needs.residuals; i++)
    residuals_.push_back(arena.tensor(plan.residual, {N, plan.model.hidden}));
  caches_.resize(static_cast<size_t>(plan.model.layers));
  for (const Chunk& chunk : plan_.chunks)
    for (int64_t layer = chunk.first_layer; layer < chunk.first_layer + chunk.num_layers; layer++)
      caches_[static_cast<size_t>(layer)] =
          model_.block(layer).attention().allocate_cache(arena, plan.compute, plan.pass, places, positions);
  if (!has_logits()) return;
  logits_ = arena.tensor(plan.compute, {places, plan.logit_columns});
  if (plan.tensor.degree > 1) gathered_ = arena.tensor(plan.compute, {plan.tensor.degree * places, plan.logit_columns});
}

void Decoder::begin(int64_t place, std::span<const int32_t> tokens) {
  const std::vector<Embedding::PositionRange> runs{{0, static_cast<int64_t>(tokens.size())}};
  run({.tokens = tokens, .runs = runs, .places = std::span(&place, 1), .fresh = true});
}

void Decoder::extend(int64_t place, int64_t position, std::span<const int32_t> tokens) {
  const std::vector<Embedding::PositionRange> runs{{position, static_cast<int64_t>(tokens.size())}};
  run({.tokens = tokens, .runs = runs, .places = std::span(&place, 1)});
}

void Decoder::advance(std::span<const Next> next) {
  std::vector<int32_t> tokens;
  std::vector<Embedding::PositionRange> runs;
  std::vector<int64_t> places;
  for (const Next& n : next) {
    tokens.push_back(n.token);
    runs.push_back({n.position, 1});
    places.push_back(n.place);
  }
  const auto count = static_cast<int64_t>(next.size());
  run({.texts = count, .tokens = tokens, .runs = runs, .places = places, .logit_rows = count});
}

Tensor Decoder::residual(int32_t number, int64_t rows) const {
  return first_rows(residuals_[static_cast<size_t>(number)], rows);
}

void Decoder::run(const Pass& pass) {
  const auto N = static_cast<int64_t>(pass.tokens.size());
  CHECK(N > 0 && N <= tokens_.numel(), "a pass of {} tokens, but there is room for 1 to {}", N, tokens_.numel());
  longest_ = 1;
  for (const Embedding::PositionRange& r : pass.runs) longest_ = std::max(longest_, r.first + r.count);
  CHECK(longest_ <= positions_, "a text of {} tokens, but there is room for {}", longest_, positions_);
  runtime_.stream.upload("load_tokens", {tokens_.flat(0, N), first_rows(rows_, N)}, [&](std::span<const Tensor> host) {
    std::copy(pass.tokens.begin(), pass.tokens.end(), host[0].data<int32_t>());
    int32_t* row = host[1].data<int32_t>();
    for (size_t r = 0; r < pass.runs.size(); r++)
      for (int64_t i = 0; i < pass.runs[r].count; i++) {
        *row++ = static_cast<int32_t>(pass.places[r]);
        *row++ = static_cast<int32_t>(pass.runs[r].first + i);
      }
  });
  PassShape shape = plan_.pass;
  shape.B = pass.texts;
  shape.T = N / pass.texts;
  shape.rows = N;
  const Context c{
      .s = runtime_.stream, .scratch = runtime_.memory[MemoryClass::scratch], .edge = *edge_, .pass = shape};
  logit_rows_ = pass.logit_rows;
  for (const Instruction& i : program_) obey(c, i, pass);
}

void Decoder::obey(const Context& c, const Instruction& i, const Pass& pass) {
  using Op = Instruction::Op;
  const int64_t N = c.pass.rows;
  const auto neighbour = [&](int step) {
    const Communicator& line = runtime_.mesh.channel(i.channel);
    return (line.rank() + line.size() + step * direction_of(i.channel)) % line.size();
  };
  switch (i.op) {
    case Op::gather: return sharding_.gather(static_cast<size_t>(i.unit), static_cast<size_t>(i.slot), i.fp8);
    case Op::await_gather: return sharding_.await_gather(static_cast<size_t>(i.slot));
    case Op::load: return;
    case Op::receive:
      transfers_[static_cast<size_t>(i.y)] =
          runtime_.mesh.channel(i.channel).recv(c.s, residual(i.y, N), neighbour(-1));
      return;
    case Op::send:
      transfers_[static_cast<size_t>(i.y)] = runtime_.mesh.channel(i.channel).send(c.s, residual(i.y, N), neighbour(1));
      return;
    case Op::await_transfer: return transfers_[static_cast<size_t>(i.y)].wait();
    case Op::embed:
      return model_.embedding().forward(c, sharding_.weights(plan_.embedding), tokens_.flat(0, N), pass.runs,
                                        residual(i.y, N));
    case Op::forward: return forward(c, i, pass.fresh);
    case Op::head_logits:
      return model_.head().logits(c, sharding_.weights(plan_.head), residual(i.x, N).rows(N - logit_rows_, N),
                                  first_rows(logits_, logit_rows_));
    default: FAIL("a program of logits has an instruction {}", static_cast<int>(i.op));
  }
}

void Decoder::forward(const Context& c, const Instruction& i, bool fresh) {
  const auto scope = c.scratch.scope();
  const int64_t N = c.pass.rows;
  const Block& block = model_.block(i.layer);
  BlockSaved saved;
  saved.x = residual(i.x, N);
  block.allocate(c.scratch, plan_.types(), c.pass, Kept::all, saved);
  const KeyValueCache cache{.memory = caches_[static_cast<size_t>(i.layer)],
                            .rows = first_rows(rows_, N),
                            .longest = longest_,
                            .fresh = fresh};
  block.forward(c, sharding_.weights(static_cast<size_t>(i.unit)), saved, residual(i.y, N), &cache);
}

int Decoder::first_with_logits() const {
  const MeshShape& mesh = plan_.mesh;
  int rank = 0;
  while (!mesh.v_shaped && mesh.coordinate(rank, Axis::pipeline) + 1 < mesh.pipeline) rank++;
  return rank;
}

int64_t Decoder::cache_bytes() const {
  int64_t bytes = 0;
  for (const Tensor& cache : caches_)
    if (!cache.empty()) bytes += cache.bytes();
  return bytes;
}

void Decoder::rehearse() {
  std::vector<float> logits;
  begin(0, std::vector<int32_t>(static_cast<size_t>(positions_)));
  read_logits(logits);
  std::vector<Next> next;
  for (int64_t place = 0; place < places_; place++) next.push_back({place, positions_ - 1, 0});
  advance(next);
  read_logits(logits);
}

void Decoder::share(std::vector<int32_t>& tokens, int from) {
  Stream& s = runtime_.stream;
  const Tensor all = tokens_.flat(0, static_cast<int64_t>(tokens.size()));
  s.upload("share_tokens", {all},
           [&](std::span<const Tensor> host) { std::copy(tokens.begin(), tokens.end(), host[0].data<int32_t>()); });
  runtime_.mesh.channel(Channel::world).broadcast(s, all, from).wait();
  s.download("share_tokens", all,
             [&](Tensor host) { std::copy_n(host.data<int32_t>(), tokens.size(), tokens.begin()); });
  s.synchronize();
}

void Decoder::read_logits(std::vector<float>& logits) {
  logits.clear();
  if (!has_logits()) return;
  Stream& s = runtime_.stream;
  const int64_t parts = plan_.tensor.degree, columns = plan_.logit_columns, rows = logit_rows_;
  Tensor whole = first_rows(logits_, rows);
  if (parts > 1) {
    runtime_.mesh.channel(Channel::tensor).all_gather(s, first_rows(gathered_, parts * rows), whole).wait();
    whole = first_rows(gathered_, parts * rows);
  }
  const ParamSpec& table = model_.token_embedding();
  const int64_t V = plan_.model.vocab;
  s.download("read_logits", whole, [&](Tensor host) {
    logits.resize(static_cast<size_t>(rows * V));
    with_compute_type(host.dtype(), [&](auto tag) {
      using E = decltype(tag);
      for (int64_t part = 0; part < parts; part++) {
        const VocabularyPart here = vocabulary_part(table, {parts, part});
        for (int64_t r = 0; r < rows; r++) {
          const E* from = host.data<E>() + (part * rows + r) * columns;
          std::transform(from, from + here.count, logits.begin() + r * V + here.first,
                         [](E v) { return static_cast<float>(v); });
        }
      }
    });
  });
  s.synchronize();
}

}  // namespace megalith
