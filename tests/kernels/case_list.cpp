#include "cases.h"

namespace megalith::test {

namespace {
// Odd sizes on purpose: a tail of every vector length, and sizes on both sides of a fork.
using Size = std::pair<int64_t, int64_t>;
// The last has more rows than one block, or one thread, adds up.
const std::vector<Size> matrices{{1, 1}, {3, 7}, {33, 48}, {70, 257}, {5, 768}, {1100, 3}};
const std::vector<AttentionDims> attentions{
    {1, 1, 1, 1},        {2, 33, 3, 7},        {1, 64, 1, 64},       {1, 5, 2, 16},  {1, 65, 2, 64},
    {1, 130, 1, 16},     {1, 34, 1, 112},      {1, 40, 2, 128},      {1, 3, 1, 200}, {1, 70, 2, 24, 4},
    {2, 35, 6, 7, 3, 2}, {1, 70, 4, 64, 0, 1}, {1, 37, 4, 112, 0, 2}};
const std::vector<double> rates{0.0, 0.1, 0.5};
// The norm of a single number has the gradient 0: a difference of equals times 316.
const std::vector<Size> norms{{1, 3}, {3, 7}, {33, 48}, {70, 257}, {5, 768}, {1100, 3}};

template <class F>
std::vector<Case> each_type(F&& add) {
  std::vector<Case> all;
  for (DType t : {f32, bf16, f16}) add(all, t);
  return all;
}
// In f16, which has bf16's code but for its conversions, the second and the third: vectors fit the latter only.
template <class S>
std::vector<S> of_type(DType t, const std::vector<S>& sizes) {
  return t == f16 ? std::vector<S>{sizes[1], sizes[2]} : sizes;
}
template <class F>
std::vector<Case> each(const auto& sizes, F&& make) {
  return each_type([&](auto& all, DType t) {
    for (const auto& size : of_type(t, sizes)) all.push_back(make(size, t));
  });
}
template <class F>
std::vector<Case> each_matrix(F&& make) {
  return each(matrices, [&](Size s, DType t) { return make(s.first, s.second, t); });
}
template <class F>
std::vector<Case> each_matrix_and_rate(F&& make, const std::vector<double>& of = rates,
                                       const std::vector<Size>& sizes = matrices) {
  return each_type([&](auto& all, DType t) {
    for (double p : of)
      for (auto [N, C] : of_type(t, sizes)) all.push_back(make(N, C, p, t));
  });
}
// Tiles that no query sees, documents that begin at the edges of tiles and beside them, documents of one token, and
// others in each sequence.
struct Packed {
  AttentionDims dims;
  Documents documents;
};
const std::vector<Packed> packed{{{2, 33, 3, 7}, {1, 1, 2}},
                                 {{1, 150, 2, 64}, {32, 15, 1, 16, 1}},
                                 {{2, 70, 1, 112}, {3, 1, 1, 43, 17, 9, 20}},
                                 {{1, 200, 1, 24}, {7}},
                                 {{1, 130, 1, 64}, {1000}},
                                 {{1, 150, 4, 64, 0, 2}, {32, 15, 1, 16, 1}},
                                 {{2, 33, 3, 7, 0, 1}, {1, 1, 2}}};
std::vector<Case> all_of(const std::vector<std::vector<Case>>& lists) {
  std::vector<Case> all;
  for (const std::vector<Case>& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}
// A residual in f32 beside branches in 16 bits.
template <class F>
std::vector<Case> each_f32_residual(F&& make) {
  std::vector<Case> all;
  for (DType t : {bf16, f16})
    for (auto [N, C] : of_type(t, norms)) all.push_back(make(N, C, Types(t, f32)));
  return all;
}
template <class F>
std::vector<Case> each_f32_residual_and_rate(F&& make) {
  std::vector<Case> all;
  for (double p : {0.0, 0.5})
    for (Case& c : each_f32_residual([&](int64_t N, int64_t C, Types t) { return make(N, C, p, t); }))
      all.push_back(std::move(c));
  return all;
}
// Forms of norms that GPT-2 has not.
template <class F>
std::vector<Case> each_other_norm(F&& make) {
  return each_type([&](auto& all, DType t) {
    for (const NormForm& form : {rms_form, NormForm{{.centered = true, .epsilon = 0.1f}, false}})
      for (auto [N, C] : of_type(t, norms)) all.push_back(make(N, C, t, form));
  });
}
template <class F>
std::vector<Case> each_attention(F&& make) {
  return each_type([&](auto& all, DType t) {
    for (double p : {0.0, 0.2}) {
      for (const AttentionDims& dims : of_type(t, attentions)) all.push_back(make(dims, p, t, Documents{}));
      for (const Packed& one : of_type(t, packed)) all.push_back(make(one.dims, p, t, one.documents));
    }
  });
}

const std::vector<CacheSizes> caches{{1, 1, 1, 1, 1},     {3, 2, 5, 7, 4},   {2, 3, 17, 16, 9},   {2, 2, 130, 64, 3},
                                     {1, 1, 300, 112, 5}, {4, 2, 9, 200, 4}, {3, 6, 17, 7, 4, 2}, {2, 4, 33, 64, 3, 1}};

const std::vector<AttentionDims> normed_heads{{1, 3, 1, 2},          {2, 33, 3, 7, 0, 1}, {1, 5, 6, 64, 0, 2},
                                              {1, 70, 12, 24, 0, 4}, {1, 3, 2, 96},       {1, 2, 2, 200},
                                              {1, 2500, 12, 8, 0, 2}};

struct Loss {
  int64_t N, V, padding;
};
const std::vector<Loss> loss_sizes{{1, 1, 0}, {7, 65, 0}, {33, 257, 7}, {5, 2, 3}, {3, 50257, 47}, {2, 4099, 0}};
template <class F>
std::vector<Case> each_loss(F&& make) {
  return each(loss_sizes, [&](Loss l, DType t) { return make(l.N, l.V, l.padding, t); });
}
// Logits of a part: the first, one in the middle, the last, and one of padding only.
struct Logits {
  int64_t N;
  VocabularyPart part;
  int64_t padding;
};
const std::vector<Logits> parts_of_logits{
    {1, {0, 1, 1}, 0}, {7, {1, 65, 70}, 3}, {33, {0, 257, 700}, 7}, {5, {0, 2, 3}, 0}, {3, {40000, 10257, 50257}, 47},
    {5, {9, 0, 9}, 4}};
template <class F>
std::vector<Case> each_logits(F&& make) {
  return each(parts_of_logits, [&](Logits l, DType t) { return make(l.N, l.part, l.padding, t); });
}

// All rows, parts that leave some out, and three.
const std::vector<std::pair<AdaptedRows, int64_t>> adapted_rows{
    {{{{{0, 7}}}, 1}, 7}, {{{{{2, 5}, {300, 11}}}, 2}, 330}, {{{{{0, 4}, {4, 2}, {6, 2}}}, 3}, 8}};

struct Linear {
  int64_t N, I, O;
};
const std::vector<Linear> linears{{1, 1, 1}, {3, 7, 5}, {33, 48, 144}, {66, 257, 65}, {130, 64, 257}, {1, 768, 50}};
template <class F>
std::vector<Case> each_linear(F&& make) {
  return each_type([&](auto& all, DType t) {
    for (bool bias : {false, true})
      for (auto [N, I, O] : of_type(t, linears)) all.push_back(make(N, I, O, bias, t));
  });
}

struct Embedding {
  int64_t B, T, C;
  VocabularyPart part;
  int64_t padding;
  Documents documents{};
};
const std::vector<Embedding> embeddings{{1, 1, 1, {0, 1, 1}, 0},      {2, 33, 7, {0, 65, 65}, 0},
                                        {3, 5, 48, {0, 257, 257}, 3}, {2, 33, 257, {0, 11, 11}, 1},
                                        {2, 33, 7, {20, 22, 65}, 2},  {2, 33, 257, {0, 5, 11}, 0},
                                        {2, 33, 257, {11, 0, 11}, 5}};
// The last: one position beyond those that one digit counts.
const std::vector<Embedding> packed_embeddings{{2, 33, 7, {0, 65, 65}, 0, {1}},
                                               {3, 50, 48, {0, 11, 11}, 3, {9, 1, 30, 2}},
                                               {2, 33, 257, {0, 5, 11}, 0, {40}},
                                               {2, 300, 16, {0, 5, 11}, 0, {280, 5}},
                                               {2, 257, 16, {0, 5, 11}, 0, {257, 140}}};
template <class F>
std::vector<Case> each_embedding(F&& make) {
  const auto made = [&](const Embedding& e, DType t) {
    return make(e.B, e.T, e.C, e.part, e.padding, t, e.documents, true);
  };
  std::vector<Case> all = each(embeddings, made), more = each(packed_embeddings, made);
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

template <class F>
std::vector<Case> without_positions(F&& make) {
  return each(embeddings, [&](const Embedding& e, DType t) {
    return make(e.B, e.T, e.C, e.part, e.padding, t, Documents{}, false);
  });
}

// Returns the cases, and again all of them in which the op also finds the largest magnitude of `of`.
std::vector<Case> and_largest(std::vector<Case> cases, const std::string& of) {
  const size_t count = cases.size();
  for (size_t i = 0; i < count; i++) cases.push_back(with_largest(cases[i], of));
  return cases;
}
}  // namespace

std::vector<Case> dropout_cases() {
  std::vector<Case> all;
  for (const DType t : {f32, bf16})
    for (const int64_t C : {200, 203})  // in vectors, and one by one
      for (Case c :
           {dropout_case(5, C, 0.3, t), residual_forward_case(5, C, 0.3, t), residual_backward_case(5, C, 0.3, t),
            residual_layernorm_forward_case(5, C, 0.3, t), residual_layernorm_backward_case(5, C, 0.3, t)})
        all.push_back(std::move(c));
  for (const auto& [t, D] : {std::pair{f32, 15}, {bf16, 64}, {bf16, 128}, {f16, 80}}) {
    all.push_back(attention_forward_case({2, 140, 2, D, 1}, 0.3, t));
    all.push_back(attention_backward_case({2, 140, 2, D, 1}, 0.3, t));
  }
  return all;
}

std::vector<Op> all_ops() {
  return {
      {"gelu_forward",
       [] {
         return and_largest(
             all_of({each_matrix([](int64_t N, int64_t C, DType t) { return gelu_forward_case(N, C, t); }),
                     each_matrix(
                         [](int64_t N, int64_t C, DType t) { return gelu_forward_case(N, C, t, GeluForm::erf); })}),
             "y");
       }},
      {"gelu_backward",
       [] {
         return and_largest(
             all_of({each_matrix([](int64_t N, int64_t C, DType t) { return gelu_backward_case(N, C, t); }),
                     each_matrix(
                         [](int64_t N, int64_t C, DType t) { return gelu_backward_case(N, C, t, GeluForm::erf); })}),
             "dx");
       }},
      {"swiglu_forward", [] { return and_largest(each_matrix(swiglu_forward_case), "y"); }},
      {"swiglu_backward", [] { return and_largest(each_matrix(swiglu_backward_case), "dx"); }},
      {"layernorm_forward",
       [] {
         return and_largest(
             all_of({each_matrix([](int64_t N, int64_t C, DType t) { return layernorm_forward_case(N, C, t); }),
                     each_other_norm(layernorm_forward_case),
                     each_f32_residual([](int64_t N, int64_t C, Types t) { return layernorm_forward_case(N, C, t); })}),
             "y");
       }},
      {"layernorm_backward",
       [] {
         return all_of(
             {each_matrix([](int64_t N, int64_t C, DType t) { return layernorm_backward_case(N, C, t); }),
              each_other_norm(layernorm_backward_case),
              each_f32_residual([](int64_t N, int64_t C, Types t) { return layernorm_backward_case(N, C, t); }),
              // Blocks of several warps a row, each with several rows.
              {layernorm_backward_case(600, 516, f32, rms_form)}});
       }},
      {"linear_forward", [] { return each_linear(linear_forward_case); }},
      {"linear_backward_input",
       [] { return each(linears, [](Linear l, DType t) { return linear_backward_input_case(l.N, l.I, l.O, t); }); }},
      {"linear_backward_weight",
       [] {
         std::vector<Case> all = each_linear([](int64_t N, int64_t I, int64_t O, bool bias, DType t) {
           return linear_backward_weight_case(N, I, O, bias, t);
         });
         for (Case& written : each(linears, [](Linear l, DType t) {
                return linear_backward_weight_case(l.N, l.I, l.O, true, t, false);
              }))
           all.push_back(std::move(written));
         return all;
       }},
      {"embedding_forward",
       [] {
         return all_of({each_embedding(embedding_forward_case), without_positions(embedding_forward_case),
                        each_f32_residual([](int64_t N, int64_t C, Types t) {
                          return embedding_forward_case(1, N, C, {1, 5, 7}, 2, t, {}, C % 2 == 0);
                        })});
       }},
      {"embedding_backward",
       [] {
         return all_of({each_embedding(embedding_backward_case), without_positions(embedding_backward_case)});
       }},
      {"dropout",
       [] {
         std::vector<Case> all =
             each_matrix_and_rate([](int64_t N, int64_t C, double p, DType t) { return dropout_case(N, C, p, t); });
         for (const DType t : {f32, bf16, f16})
           for (const int64_t first : {64, 7, 60})  // at a group of columns, and beside one
             all.push_back(dropout_case(5, 200, 0.3, t, first));
         return all;
       }},
      {"spread_adapter",
       [] {
         std::vector<Case> all;
         for (const DType t : {f32, bf16, f16})
           for (const auto& [rows, O] : adapted_rows) all.push_back(spread_adapter_case(rows, O, 3, t));
         return all;
       }},
      {"collect_adapter",
       [] {
         std::vector<Case> all;
         for (const bool add : {false, true})
           for (const auto& [rows, O] : adapted_rows) all.push_back(collect_adapter_case(rows, O, 3, add));
         return all;
       }},
      {"residual_forward",
       [] {
         const auto with = [](bool bias) {
           return [bias](int64_t N, int64_t C, double p, Types t) { return residual_forward_case(N, C, p, t, bias); };
         };
         return all_of({each_matrix_and_rate(with(true)), each_matrix_and_rate(with(false)),
                        each_f32_residual_and_rate(with(true))});
       }},
      {"residual_backward",
       [] {
         const auto with = [](bool bias) {
           return [bias](int64_t N, int64_t C, double p, Types t) { return residual_backward_case(N, C, p, t, bias); };
         };
         return all_of({each_matrix_and_rate(with(true)), each_matrix_and_rate(with(false)),
                        each_f32_residual_and_rate(with(true)), each_f32_residual_and_rate(with(false))});
       }},
      // Rates by which the sum that is rounded before the norm is exact in f32, so that the twin rounds it alike.
      {"residual_layernorm_forward",
       [] {
         const auto of = [](const NormForm& form) {
           return each_matrix_and_rate([&](int64_t N, int64_t C, double p,
                                           DType t) { return residual_layernorm_forward_case(N, C, p, t, form); },
                                       {0.0, 0.5}, norms);
         };
         return and_largest(
             all_of({of({}), of(rms_form), each_f32_residual_and_rate([](int64_t N, int64_t C, double p, Types t) {
                       return residual_layernorm_forward_case(N, C, p, t);
                     })}),
             "ln");
       }},
      {"residual_layernorm_backward",
       [] {
         const auto of = [](const NormForm& form) {
           return each_matrix_and_rate([&](int64_t N, int64_t C, double p,
                                           DType t) { return residual_layernorm_backward_case(N, C, p, t, form); },
                                       rates, norms);
         };
         return all_of({of({}), of(rms_form), each_f32_residual_and_rate([](int64_t N, int64_t C, double p, Types t) {
                          return residual_layernorm_backward_case(N, C, p, t);
                        })});
       }},
      {"linear_gelu_forward",
       [] { return each(linears, [](Linear l, DType t) { return linear_gelu_forward_case(l.N, l.I, l.O, t); }); }},
      {"linear_backward_input_gelu",
       [] {
         return each(linears, [](Linear l, DType t) { return linear_backward_input_gelu_case(l.N, l.I, l.O, t); });
       }},
      {"head_norm_forward", [] { return each(normed_heads, head_norm_forward_case); }},
      {"head_norm_backward", [] { return each(normed_heads, head_norm_backward_case); }},
      {"rotate",
       [] {
         return each_type([](auto& all, DType t) {
           for (const bool forward : {true, false}) {
             all.push_back(rotate_case({2, 33, 3, 7, 0, 1}, 3, t, forward));
             all.push_back(rotate_case({1, 5, 6, 64, 0, 2}, 32, t, forward, {2, 1}));
             all.push_back(rotate_case({2, 9, 4, 64}, 8, t, forward, {}, true));
             all.push_back(rotate_case({1, 3, 1, 24}, 12, t, forward));
           }
         });
       }},
      {"attention_forward", [] { return each_attention(attention_forward_case); }},
      {"keep_keys_values", [] { return each(caches, keep_keys_values_case); }},
      {"cached_attention", [] { return each(caches, cached_attention_case); }},
      {"attention_backward", [] { return each_attention(attention_backward_case); }},
      {"cross_entropy_forward", [] { return each_loss(cross_entropy_forward_case); }},
      {"cross_entropy_forward_backward", [] { return each_loss(cross_entropy_forward_backward_case); }},
      {"softmax_part", [] { return each_logits(softmax_part_case); }},
      {"merge_softmax",
       [] {
         return std::vector{merge_softmax_case(1), merge_softmax_case(67)};
       }},
      {"cross_entropy_loss",
       [] {
         return std::vector{cross_entropy_loss_case(1), cross_entropy_loss_case(67)};
       }},
      {"cross_entropy_gradient", [] { return each_logits(cross_entropy_gradient_case); }},
      {"adamw_update", adamw_cases},
      {"decide_update", decide_update_cases},
      {"muon_momentum", muon_momentum_cases},
      {"scale_to_unit_norm", scale_to_unit_norm_cases},
      {"newton_schulz_polynomial", newton_schulz_polynomial_cases},
      {"put_columns", [] { return columns_cases(true); }},
      {"take_columns", [] { return columns_cases(false); }},
      {"muon_update", muon_update_cases},
      {"transpose", transpose_cases},
      {"join_panels", join_panels_cases},
      {"largest_magnitude", largest_magnitude_cases},
      {"cast_to_fp8", cast_to_fp8_cases},
      {"transpose_fp8", transpose_fp8_cases},
      {"fp8_product", fp8_product_cases},
      {"fill", fill_cases},
      {"copy", copy_cases},
      {"add", add_cases},
      {"sum_rows",
       [] {
         std::vector<Case> all;
         for (DType t : {DType::f32, DType::bf16})
           for (bool add : {false, true})
             for (Size s : {Size{1, 1}, {2, 7}, {3, 48}, {8, 4104}, {5, 20011}})
               all.push_back(sum_rows_case(s.first, s.second, add, t));
         return all;
       }},
      {"accumulate_sum",
       [] {
         return std::vector{accumulate_sum_case(1), accumulate_sum_case(1025), accumulate_sum_case(100003)};
       }},
      {"accumulate_square_sum",
       [] {
         return std::vector{accumulate_square_sum_case(7), accumulate_square_sum_case(1025),
                            accumulate_square_sum_case(1000003)};
       }},
      {"normal_fill",
       [] {
         return std::vector{normal_fill_case(0, 1, {}),
                            normal_fill_case(3, 7, {}),
                            normal_fill_case(1001, 4099, {}),
                            normal_fill_case(1001, 4099, {0, 33, 33}),
                            normal_fill_case(5, 4099, {7, 33, 50}),
                            normal_fill_case(0, 23, {2, 1, 3})};
       }},
  };
}

}  // namespace megalith::test
