#include "trainer/parallel/decoder.h"

#include <algorithm>

namespace megalith {

namespace {
Tensor first_rows(const Tensor& t, int64_t rows) { return t.rows(0, rows); }
}  // namespace

Decoder::Decoder(const Plan& plan, Runtime& runtime, int64_t places, int64_t positions)
    : plan_(plan),
      runtime_(runtime),
      model_(plan.model),
      program_(logits_program(plan)),
      sharding_(plan, runtime, needs_of(plan, {&program_}), false),
      edge_(make_edge(plan, runtime.mesh)) {
  CHECK(!plan.sequence_parallel, "texts are continued token by token, which sequence parallelism cannot divide");
  CHECK(positions <= plan.model.context, "texts of {} tokens, but the model's context is {}", positions,
        plan.model.context);
  Arena& arena = runtime.memory[MemoryClass::saved];
  const int64_t N = std::max(places, positions);
  tokens_ = arena.tensor(DType::i32, {N});
  rows_ = arena.tensor(DType::i32, {N, 2});
  for (int64_t i = 0; i < needs_of(plan, {&program_}).residuals; i++)
    residuals_.push_back(arena.tensor(plan.residual, {N, plan.model.hidden}));
  for (int64_t layer = 0; layer < plan.model.layers; layer++)
    caches_.push_back(
        model_.block(layer).attention().allocate_cache(arena, plan.compute, plan.pass, places, positions));
  logits_ = arena.tensor(plan.compute, {places, plan.logit_columns});
  if (plan.tensor.degree > 1) gathered_ = arena.tensor(plan.compute, {plan.tensor.degree * places, plan.logit_columns});
}

void Decoder::begin(int64_t place, std::span<const int32_t> tokens) {
  const auto n = static_cast<int64_t>(tokens.size());
  run(1, tokens, std::vector<Embedding::Run>{{0, n}}, std::vector<int64_t>{place}, true);
}

void Decoder::go_on(std::span<const Next> next) {
  std::vector<int32_t> tokens;
  std::vector<Embedding::Run> runs;
  std::vector<int64_t> places;
  for (const Next& n : next) {
    tokens.push_back(n.token);
    runs.push_back({n.position, 1});
    places.push_back(n.place);
  }
  run(static_cast<int64_t>(next.size()), tokens, runs, places, false);
}

void Decoder::run(int64_t texts, std::span<const int32_t> tokens, std::span<const Embedding::Run> runs,
                  std::span<const int64_t> places, bool fresh) {
  const auto N = static_cast<int64_t>(tokens.size());
  CHECK(N > 0 && N <= tokens_.numel(), "a pass of {} tokens, but there is room for 1 to {}", N, tokens_.numel());
  runtime_.stream.upload("load_tokens", {tokens_.flat(0, N), first_rows(rows_, N)}, [&](std::span<const Tensor> host) {
    std::copy(tokens.begin(), tokens.end(), host[0].data<int32_t>());
    int32_t* row = host[1].data<int32_t>();
    for (size_t r = 0; r < runs.size(); r++)
      for (int64_t i = 0; i < runs[r].count; i++) {
        *row++ = static_cast<int32_t>(places[r]);
        *row++ = static_cast<int32_t>(runs[r].position + i);
      }
  });
  longest_ = 1;
  for (const Embedding::Run& r : runs) longest_ = std::max(longest_, r.position + r.count);
  PassShape pass = plan_.pass;
  pass.B = texts;
  pass.T = N / texts;
  pass.rows = N;
  const Context c{.s = runtime_.stream, .scratch = runtime_.memory[MemoryClass::scratch], .edge = *edge_, .pass = pass};
  const auto residual = [&](int32_t number) { return first_rows(residuals_[static_cast<size_t>(number)], N); };
  for (const Instruction& i : program_) {
    using Op = Instruction::Op;
    switch (i.op) {
      case Op::gather: sharding_.gather(static_cast<size_t>(i.unit), static_cast<size_t>(i.slot)); break;
      case Op::await_gather: sharding_.await_gather(static_cast<size_t>(i.slot)); break;
      case Op::load: break;
      case Op::embed:
        model_.embedding().forward(c, sharding_.weights(plan_.embedding), tokens_.flat(0, N), runs, residual(i.y));
        break;
      case Op::forward: forward(c, i, fresh); break;
      case Op::head_logits: {
        const Tensor x = residual(i.x);
        logit_rows_ = fresh ? texts : N;
        model_.head().logits(c, sharding_.weights(plan_.head), x.rows(N - logit_rows_, N),
                             first_rows(logits_, logit_rows_));
        break;
      }
      default: FAIL("a program of logits has an instruction {}", static_cast<int>(i.op));
    }
  }
}

void Decoder::forward(const Context& c, const Instruction& i, bool fresh) {
  const auto scope = c.scratch.scope();
  const int64_t N = c.pass.rows;
  const Block& block = model_.block(i.layer);
  BlockSaved saved;
  saved.x = first_rows(residuals_[static_cast<size_t>(i.x)], N);
  block.allocate(c.scratch, plan_.types(), c.pass, Kept::all, saved);
  const KeyValueCache cache{.memory = caches_[static_cast<size_t>(i.layer)],
                            .rows = first_rows(rows_, N),
                            .longest = longest_,
                            .fresh = fresh};
  block.forward(c, sharding_.weights(static_cast<size_t>(i.unit)), saved,
                first_rows(residuals_[static_cast<size_t>(i.y)], N), &cache);
}

void Decoder::share(std::vector<int32_t>& tokens) {
  Stream& s = runtime_.stream;
  const Tensor all = tokens_.flat(0, static_cast<int64_t>(tokens.size()));
  s.upload("share_tokens", {all},
           [&](std::span<const Tensor> host) { std::copy(tokens.begin(), tokens.end(), host[0].data<int32_t>()); });
  runtime_.mesh.channel(Channel::world).broadcast(s, all, 0).wait();
  s.download("share_tokens", all,
             [&](Tensor host) { std::copy_n(host.data<int32_t>(), tokens.size(), tokens.begin()); });
  s.synchronize();
}

void Decoder::read_logits(std::vector<float>& logits) {
  Stream& s = runtime_.stream;
  const int64_t parts = plan_.tensor.degree, columns = plan_.logit_columns, rows = logit_rows_;
  Tensor whole = first_rows(logits_, rows);
  if (parts > 1) {
    runtime_.mesh.channel(Channel::tensor).all_gather(s, first_rows(gathered_, parts * rows), whole).wait();
    whole = first_rows(gathered_, parts * rows);
  }
  const ParamSpec& table = model_.token_table();
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
