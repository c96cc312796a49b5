// Every op as a case with its plain twin. Read a twin first when two implementations disagree.
#pragma once

#include "case.h"
#include "kernels/activation/gelu.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/cached_attention.h"
#include "kernels/attention/rotary.h"
#include "kernels/elementwise/dropout.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/linear/low_rank.h"
#include "kernels/norm/layernorm.h"
#include "kernels/tensor/vocabulary.h"
#include "kernels/update/adamw.h"
#include "kernels/update/decide_update.h"

namespace megalith::test {

constexpr DType f32 = DType::f32, bf16 = DType::bf16, f16 = DType::f16, f64 = DType::f64;
using Tensors = std::vector<Tensor>;
inline size_t at(int64_t i) { return static_cast<size_t>(i); }

// A cache, and so many rows of a pass.
struct CacheSizes {
  int64_t places, H, T, D, rows;
  int64_t K = 0;  // key-value heads; 0: H
  int64_t kv() const { return K > 0 ? K : H; }
};

Case gelu_forward_case(int64_t N, int64_t C, DType t, GeluForm form = GeluForm::tanh);
Case gelu_backward_case(int64_t N, int64_t C, DType t, GeluForm form = GeluForm::tanh);
Case swiglu_forward_case(int64_t N, int64_t F, DType t);
Case swiglu_backward_case(int64_t N, int64_t F, DType t);
// A norm's rule, and whether it, and in a residual the branch, has a bias.
struct NormForm {
  NormRule rule{};
  bool bias = true;
};
constexpr NormForm rms_form{{.centered = false, .epsilon = 1e-2f}, false};
std::string name_of(const NormForm& form);
// What the types of a case are: of the branches, and of the residual stream, which may be f32 beside 16 bits.
struct Types {
  Types(DType both) : branch(both), residual(both) {}
  Types(DType of_branch, DType of_residual) : branch(of_branch), residual(of_residual) {}
  DType branch, residual;
};
inline std::string name_of(const Types& t) { return t.branch == t.residual ? "" : " f32 residual"; }
Case layernorm_forward_case(int64_t N, int64_t C, Types t, const NormForm& form = {});
Case layernorm_backward_case(int64_t N, int64_t C, Types t, const NormForm& form = {});
Case linear_forward_case(int64_t N, int64_t I, int64_t O, bool bias, DType t);
Case linear_backward_input_case(int64_t N, int64_t I, int64_t O, DType t);
Case linear_backward_weight_case(int64_t N, int64_t I, int64_t O, bool bias, DType t, bool add = true);
// The documents that share a sequence and are kept apart: none, or a list of lengths that the sequences take their
// documents from in turn, from the first again after the last; the end of a sequence cuts one off.
using Documents = std::vector<int64_t>;
Arg starts_of(const Documents& documents, int64_t B, int64_t T);
std::string name_of(const Documents& documents);

Case embedding_forward_case(int64_t B, int64_t T, int64_t C, VocabularyPart part, int64_t padding, Types t,
                            const Documents& documents = {}, bool positions = true);
Case embedding_backward_case(int64_t B, int64_t T, int64_t C, VocabularyPart part, int64_t padding, DType t,
                             const Documents& documents = {}, bool positions = true);
Case dropout_case(int64_t N, int64_t C, double p, DType t, int64_t first_column = 0);
Case spread_adapter_case(const AdaptedRows& rows, int64_t O, int64_t r, DType t);
Case collect_adapter_case(const AdaptedRows& rows, int64_t O, int64_t r, bool add);
Case residual_forward_case(int64_t N, int64_t C, double p, Types t, bool bias = true);
Case residual_backward_case(int64_t N, int64_t C, double p, Types t, bool bias = true);
Case residual_layernorm_forward_case(int64_t N, int64_t C, double p, Types t, const NormForm& form = {});
Case residual_layernorm_backward_case(int64_t N, int64_t C, double p, Types t, const NormForm& form = {});
Case linear_gelu_forward_case(int64_t N, int64_t I, int64_t O, DType t);
Case linear_backward_input_gelu_case(int64_t N, int64_t I, int64_t O, DType t);
Case head_norm_forward_case(const AttentionDims& dims, DType t);
Case head_norm_backward_case(const AttentionDims& dims, DType t);
// Rows of a pass at documents' positions, or where `kept` at those of a cache.
Case rotate_case(const AttentionDims& dims, int64_t pairs, DType t, bool forward, const Documents& documents = {},
                 bool kept = false);
Case attention_forward_case(const AttentionDims& dims, double p, DType t, const Documents& documents = {});
Case keep_keys_values_case(const CacheSizes& sizes, DType t);
Case cached_attention_case(const CacheSizes& sizes, DType t);
// The backward pass's scratch memory, enough for every GPU.
Arg attention_scratch(const AttentionDims& dims, DType t);
Case attention_backward_case(const AttentionDims& dims, double p, DType t, const Documents& documents = {});
Case cross_entropy_forward_case(int64_t N, int64_t V, int64_t padding, DType t);
Case cross_entropy_forward_backward_case(int64_t N, int64_t V, int64_t padding, DType t);
Case softmax_part_case(int64_t N, VocabularyPart part, int64_t padding, DType t);
Case merge_softmax_case(int64_t N);
Case cross_entropy_loss_case(int64_t N);
Case cross_entropy_gradient_case(int64_t N, VocabularyPart part, int64_t padding, DType t);
struct StateTypes {
  DType master = DType::f32, moments = DType::f32;
  Rounding rounding{};
};
// t: of the working copy.
Case adamw_case(int64_t n, int64_t update, bool has_working, DType t, Decision decision = Decision::update,
                const StateTypes& state = {});
// After updates with these norms and so many skipped steps; the last of the sums is the loss.
Case decide_update_case(const std::string& what, const Values& sums, const UpdateRules& rules, const Values& norms,
                        int64_t skipped = 0, const UpdateState& start = {});
Case fill_case(int64_t n, DType t);
Case copy_case(int64_t n, DType to, DType from);
Case add_case(int64_t n, DType t);
Case sum_rows_case(int64_t rows, int64_t n, bool add, DType t);
Case accumulate_sum_case(int64_t n);
Case accumulate_square_sum_case(int64_t n);
Case normal_fill_case(int64_t begin, int64_t n, Columns columns);

// Muon's (kernels/update/muon.h, kernels/elementwise/transpose.h).
std::vector<Case> muon_momentum_cases();
std::vector<Case> scale_to_unit_norm_cases();
std::vector<Case> newton_schulz_polynomial_cases();
std::vector<Case> columns_cases(bool put);
std::vector<Case> muon_update_cases();
std::vector<Case> transpose_cases();
std::vector<Case> join_panels_cases();

// Products in 8 bits (kernels/linear/fp8.h).
std::vector<Case> largest_magnitude_cases();
std::vector<Case> cast_to_fp8_cases();
std::vector<Case> transpose_fp8_cases();
std::vector<Case> fp8_product_cases();

// The mask of every case with that probability.
Dropout mask_of(double p);
// The case with what its mask is drawn by in memory, as its last argument, and other numbers in the call.
Case drawn_from_memory(Case c);
// The case, in which the op also finds the largest magnitude of its tensor `of`, but for the last row; its `run` passes
// largest_found() on.
Case with_largest(Case c, const std::string& of);
Largest largest_found();
// The mask's factor of one element, as dropout.h states it.
double keep_factor(const Dropout& d, uint64_t row, uint64_t group, uint64_t column);

// All that are checked of the update and of whole tensors.
std::vector<Case> adamw_cases();
std::vector<Case> decide_update_cases();
std::vector<Case> fill_cases();
std::vector<Case> copy_cases();
std::vector<Case> add_cases();

struct Op {
  std::string name;
  std::function<std::vector<Case>()> cases;
};
inline void PrintTo(const Op& op, std::ostream* to) { *to << op.name; }

// Every op with the sizes it is checked at.
std::vector<Op> all_ops();

// Every op with dropout, so that attention goes through each of its kernels: 16 bits of a head size that tiles have, on
// aligned memory, and f32.
std::vector<Case> dropout_cases();

}  // namespace megalith::test
