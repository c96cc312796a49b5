#include <cublasLt.h>

#include <algorithm>
#include <compare>
#include <exception>
#include <map>
#include <utility>

#include "kernels/linear/gemm_cuda.h"
#include "kernels/stream/device.h"
#include "kernels/system/check.h"
#include "kernels/system/counted.h"

namespace megalith::cuda {

namespace {

void check(cublasStatus_t status, const char* call) {
  CHECK(status == CUBLAS_STATUS_SUCCESS, "{} failed: {}; does libcublasLt fit the driver?", call,
        cublasLtGetStatusName(status));
}
#define CUBLAS_CHECK(call) check(call, #call)

cudaDataType datatype(DType type) {
  switch (type) {
    case DType::bf16: return CUDA_R_16BF;
    case DType::f16: return CUDA_R_16F;
    case DType::e4m3: return CUDA_R_8F_E4M3;
    case DType::e5m2: return CUDA_R_8F_E5M2;
    default: return CUDA_R_32F;
  }
}

// The library distinguishes alignments up to 256 bytes.
uint32_t alignment(const void* p) { return static_cast<uint32_t>(alignment_of(p, 256)); }

struct Descriptors {
  cublasLtMatmulDesc_t matmul = nullptr;
  cublasLtMatrixLayout_t left = nullptr, right = nullptr, result = nullptr;
  cublasLtMatmulAlgo_t algorithm{};
  cublasStatus_t found = CUBLAS_STATUS_NOT_SUPPORTED;  // not SUCCESS: the library has no kernel
  const GemmChoice* tuned = nullptr;                   // the table entry used, or null
  std::string refused;                                 // why a table entry is not used

  Descriptors() = default;
  Descriptors(const Descriptors&) = delete;
  Descriptors& operator=(const Descriptors&) = delete;
  ~Descriptors() {
    for (cublasLtMatrixLayout_t layout : {left, right, result})
      if (layout) cublasLtMatrixLayoutDestroy(layout);
    if (matmul) cublasLtMatmulDescDestroy(matmul);
  }

  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    CUBLAS_CHECK(cublasLtMatmulDescSetAttribute(matmul, attribute, &value, sizeof(value)));
  }
};

struct Preference {
  cublasLtMatmulPreference_t handle = nullptr;
  Preference() { CUBLAS_CHECK(cublasLtMatmulPreferenceCreate(&handle)); }
  ~Preference() { cublasLtMatmulPreferenceDestroy(handle); }
  Preference(const Preference&) = delete;
  Preference& operator=(const Preference&) = delete;

  template <class T>
  void set(cublasLtMatmulPreferenceAttributes_t attribute, const T& value) {
    CUBLAS_CHECK(cublasLtMatmulPreferenceSetAttribute(handle, attribute, &value, sizeof(value)));
  }
};

cublasLtMatmulAlgo_t algorithm_of(const GemmChoice& choice) {
  cublasLtMatmulAlgo_t algorithm{};
  static_assert(sizeof(algorithm.data) == sizeof(choice.algorithm));
  std::copy(choice.algorithm.begin(), choice.algorithm.end(), algorithm.data);
  return algorithm;
}

// Returns an attribute of the algorithm, or -1 if the library does not report it.
int64_t config(const cublasLtMatmulAlgo_t& algorithm, cublasLtMatmulAlgoConfigAttributes_t attribute) {
  int32_t value = 0;
  size_t written = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoConfigGetAttribute(&algorithm, attribute, &value, sizeof(value), &written);
  return status == CUBLAS_STATUS_SUCCESS ? value : -1;
}
std::string describe(const cublasLtMatmulAlgo_t& algorithm) {
  return fmt::format(
      "algorithm {}, tile {}, stages {}, K in {}, reduction {}", config(algorithm, CUBLASLT_ALGO_CONFIG_ID),
      config(algorithm, CUBLASLT_ALGO_CONFIG_TILE_ID), config(algorithm, CUBLASLT_ALGO_CONFIG_STAGES_ID),
      config(algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM), config(algorithm, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME));
}

std::string words(const GemmShape& s) {
  std::string text = fmt::format("{} x {} x {} from {} to {}", s.M, s.N, s.K, name_of(s.input), name_of(s.output));
  for (const auto& [is, what] : {std::pair{s.bias, "a bias"}, {s.gelu, "a GELU"}, {s.bias_gradient, "a bias gradient"}})
    if (is) text += fmt::format(" with {}", what);
  return text;
}

}  // namespace

// The library stores by columns, so it computes C^T = B^T A^T: its left matrix is our b, its rows are our N.
struct Gemm::Library {
  // The alignments of addresses that the library may assume, in bytes. The library takes no alignment of an epilogue's
  // vectors; its kernels access them as widely as the result, so D's alignment covers them.
  struct Alignments {
    uint32_t a, b, c, d;
    auto operator<=>(const Alignments&) const = default;
  };
  static Alignments alignments_of(const GemmCall& g) {
    uint32_t d = alignment(g.c);
    for (const void* p : {g.bias, g.gelu_input, static_cast<const void*>(g.bias_gradient)})
      d = std::min(d, alignment(p));
    return {alignment(g.a), alignment(g.b), alignment(g.c), d};
  }

  // A shape's alignment is the smallest of all; the library gets each.
  using Key = std::pair<GemmShape, Alignments>;

  cublasLtHandle_t handle = nullptr;
  device::Properties gpu = device::properties();
  std::vector<GemmTable> other_versions;  // tables of this GPU for other versions of the library
  std::map<GemmShape, GemmChoice> choices;
  std::map<Key, Descriptors> cache;

  ~Library() {
    cache.clear();
    if (handle && std::uncaught_exceptions() == 0) cublasLtDestroy(handle);  // device.h, on exceptions
  }

  void take(const std::vector<GemmTable>& tables) {
    for (const GemmTable& table : tables) {
      if (table.gpu != gpu.name) continue;
      if (table.library != static_cast<int64_t>(cublasLtGetVersion())) {
        other_versions.push_back(table);
        continue;
      }
      for (const GemmChoice& choice : table.choices) choices[choice.shape] = choice;
    }
  }
  const GemmChoice* choice_for(const GemmShape& shape) const {
    const auto found = choices.find(shape);
    return found == choices.end() ? nullptr : &found->second;
  }

  // The bias gradient sums A over K. Our A is the library's right matrix, so the library calls it the gradient of B's
  // bias.
  static cublasLtEpilogue_t epilogue(const GemmCall& g) {
    if (g.bias_gradient) return CUBLASLT_EPILOGUE_BGRADB;
    if (g.gelu_input) return CUBLASLT_EPILOGUE_DGELU;
    return g.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
  }
  // The heuristics look at the pointers too.
  static void set_pointers(Descriptors& d, const GemmCall& g) {
    if (g.bias) d.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, g.bias);
    if (g.bias_gradient) d.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, g.bias_gradient);
    if (g.gelu_input) d.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, g.gelu_input);
    if (g.b_unscale) d.set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, g.b_unscale);  // the library's A is our B
    if (g.a_unscale) d.set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, g.a_unscale);
  }

  void describe(Descriptors& d, const GemmCall& g) {
    CUBLAS_CHECK(cublasLtMatmulDescCreate(&d.matmul, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    d.set(CUBLASLT_MATMUL_DESC_TRANSA, g.b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    d.set(CUBLASLT_MATMUL_DESC_TRANSB, g.a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    d.set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue(g));
    if (g.bias || g.bias_gradient) d.set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, datatype(g.output));
    if (g.gelu_input) d.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, g.N);
    // Hopper adds products of 8 bits in fewer than 32 bits if it may. Gradients, which have an e5m2 factor, are added
    // in full, as Transformer Engine does.
    if (g.input == DType::e4m3) d.set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, int8_t{1});
    const auto layout = [](cublasLtMatrixLayout_t& out, DType type, int64_t rows, int64_t cols) {
      CUBLAS_CHECK(cublasLtMatrixLayoutCreate(&out, datatype(type), static_cast<uint64_t>(rows),
                                              static_cast<uint64_t>(cols), rows));
    };
    layout(d.left, second_factor(g.input), g.b_transposed ? g.K : g.N, g.b_transposed ? g.N : g.K);
    layout(d.right, g.input, g.a_transposed ? g.M : g.K, g.a_transposed ? g.K : g.M);
    layout(d.result, g.output, g.N, g.M);
    set_pointers(d, g);
  }

  // Parts of K are summed in f32. K is not split in a product with a bias: where N is odd, 13.1 then rounds the sums to
  // 16 bits before it adds the bias, and again after it (seen on an H100).
  static cublasLtReductionScheme_t reduction_of(const GemmCall& g) {
    return g.bias ? CUBLASLT_REDUCTION_SCHEME_NONE : CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  }

  // Returns the library's algorithms for the call under these alignments, its best first.
  std::pair<cublasStatus_t, std::vector<cublasLtMatmulHeuristicResult_t>> ask(const Descriptors& d, const GemmCall& g,
                                                                              int most, const Alignments& aligned) {
    Preference preference;
    preference.set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(room_for(g)));
    preference.set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, static_cast<uint32_t>(reduction_of(g)));
    preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, aligned.b);
    preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, aligned.a);
    preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, aligned.c);
    preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, aligned.d);
    std::vector<cublasLtMatmulHeuristicResult_t> found(static_cast<size_t>(most));
    int count = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(handle, d.matmul, d.left, d.right, d.result, d.result,
                                                                 preference.handle, most, found.data(), &count);
    found.resize(status == CUBLAS_STATUS_SUCCESS ? static_cast<size_t>(count) : 0);
    return {status, std::move(found)};
  }

  // Checks whether a table entry can be used. The workspace size comes from the library, not from the entry.
  void take_tuned(Descriptors& d, const GemmCall& g, const GemmChoice& choice) {
    cublasLtMatmulHeuristicResult_t checked{};
    const cublasLtMatmulAlgo_t algorithm = algorithm_of(choice);
    const cublasStatus_t status =
        cublasLtMatmulAlgoCheck(handle, d.matmul, d.left, d.right, d.result, d.result, &algorithm, &checked);
    if (status != CUBLAS_STATUS_SUCCESS) {
      d.refused = fmt::format("cuBLASLt does not take its algorithm: {}", cublasLtGetStatusName(status));
    } else if (checked.workspaceSize > static_cast<size_t>(room_for(g))) {
      d.refused = fmt::format("its algorithm needs a workspace of {} bytes, but there are {}", checked.workspaceSize,
                              room_for(g));
    } else {
      d.algorithm = algorithm;
      d.found = CUBLAS_STATUS_SUCCESS;
      d.tuned = &choice;
    }
  }

  void choose(Descriptors& d, const GemmCall& g) {
    if (const GemmChoice* choice = choice_for(shape_of(g))) take_tuned(d, g, *choice);
    if (d.tuned || g.bias_gradient) return;
    const auto [status, found] = ask(d, g, 1, alignments_of(g));
    if (status != CUBLAS_STATUS_SUCCESS) {
      d.found = status;
    } else if (!found.empty()) {
      d.algorithm = found[0].algo;
      d.found = found[0].state;  // the other members are valid on success only
    }
  }

  Descriptors& of(const GemmCall& g) {
    const auto [at, added] = cache.try_emplace(Key(shape_of(g), alignments_of(g)));
    if (!added) return at->second;
    try {
      describe(at->second, g);
      choose(at->second, g);
    } catch (...) {
      cache.erase(at);
      throw;
    }
    return at->second;
  }

  void multiply(const Queue& queue, const GemmCall& call, Descriptors& d, const cublasLtMatmulAlgo_t& algorithm) {
    set_pointers(d, call);
    const float one = 1, beta = call.accumulate ? 1 : 0;
    CUBLAS_CHECK(cublasLtMatmul(handle, d.matmul, &one, call.b, d.left, call.a, d.right, &beta, call.c, d.result,
                                call.c, d.result, &algorithm, queue.workspace, static_cast<size_t>(room_for(call)),
                                queue.stream));
  }
};

Gemm::Gemm(const std::vector<GemmTable>& tables) : library_(std::make_unique<Library>()) {
  CUBLAS_CHECK(cublasLtCreate(&library_->handle));
  library_->take(tables);
}
Gemm::~Gemm() = default;

int64_t Gemm::version() const { return static_cast<int64_t>(cublasLtGetVersion()); }

int64_t Gemm::room_for(const GemmCall& call) {
  return call.bias_gradient ? workspace_bytes - round_up(call.M * 4, 256) : workspace_bytes;
}

// cuBLASLt's GELU is the tanh form (PyTorch pull request 104061). How exact its tanh is, is not documented, so it is
// used in bf16 only: the error of the GPU's tanh instruction, 2^-11, is as large as the rounding of f16. Fused in the
// GEMM's kernel it is faster on Hopper (llm.c pull request 653, SGLang 34350) and on B200 (SGLang 28168). On other
// generations it was measured to be a slow second pass (llm.c 338, SGLang 34350), so our own GELU is used. A table
// overrides this: it has the product with the GELU or only the one without.
bool Gemm::fuses(const GemmCall& call) {
  const GemmShape shape = shape_of(call);
  const bool measured = library_->choice_for(shape) != nullptr;
  if (call.M == 0 || call.N == 0) return false;
  if (call.bias_gradient) return measured && room_for(call) > 0 && library_->of(call).tuned;
  GemmShape apart = shape;
  apart.gelu = false;
  const int generation = library_->gpu.major;
  const bool by_rule = (generation == 9 || generation == 10) && !library_->choice_for(apart);
  if (call.output != DType::bf16 || (!measured && !by_rule)) return false;
  // The library's documented rule for its second matrix, and full vectors in it.
  if (call.N % 8 != 0 || alignment(call.gelu_input) < 16) return false;
  return library_->of(call).found == CUBLAS_STATUS_SUCCESS;
}

void Gemm::run(const Queue& queue, const GemmCall& call) {
  CHECK(!call.accumulate || call.output == DType::f32, "a GEMM adds to f32 only, not to {}", name_of(call.output));
  if (call.M == 0 || call.N == 0) return;
  Descriptors& d = library_->of(call);
  CHECK(d.found == CUBLAS_STATUS_SUCCESS, "cuBLASLt has no GEMM of {} with a workspace of {} bytes: {}{}",
        words(shape_of(call)), room_for(call), cublasLtGetStatusName(d.found),
        is_8_bit(call.input) ? "; precision.products = \"fp8\" needs a GPU of compute capability 8.9 or later" : "");
  library_->multiply(queue, call, d, d.algorithm);
}

std::vector<GemmChoice> Gemm::candidates(const GemmCall& call, int most) {
  Descriptors d;
  library_->describe(d, call);
  const GemmShape shape = shape_of(call);
  // Any address with the shape's alignment can use the entry.
  const auto least = static_cast<uint32_t>(shape.alignment);
  std::vector<GemmChoice> all;
  for (const cublasLtMatmulHeuristicResult_t& found :
       library_->ask(d, call, most, {least, least, least, least}).second) {
    if (found.state != CUBLAS_STATUS_SUCCESS) continue;
    GemmChoice& choice = all.emplace_back();
    choice.shape = shape;
    std::copy(std::begin(found.algo.data), std::end(found.algo.data), choice.algorithm.begin());
    choice.workspace = static_cast<int64_t>(found.workspaceSize);
    choice.what = megalith::cuda::describe(found.algo);
  }
  return all;
}

void Gemm::run(const Queue& queue, const GemmCall& call, const GemmChoice& candidate) {
  Descriptors d;
  library_->describe(d, call);
  library_->multiply(queue, call, d, algorithm_of(candidate));
}

std::vector<std::string> Gemm::describe(const GemmCounts& products) {
  int64_t tuned = 0;
  std::vector<std::string> refusals;
  for (const auto& [wanted, count] : products) {
    GemmShape shape = wanted;
    // An unfused product of a shape that could be fused.
    if (!library_->choice_for(shape)) shape.bias_gradient = shape.gelu = false;
    if (!library_->choice_for(shape)) continue;
    tuned++;
    // A dummy address with the shape's alignment.
    const auto somewhere = reinterpret_cast<void*>(4096 + shape.alignment);
    const bool scaled = is_8_bit(shape.input);
    const GemmCall call{.a = somewhere,
                        .b = somewhere,
                        .c = somewhere,
                        .bias = shape.bias ? somewhere : nullptr,
                        .M = shape.M,
                        .N = shape.N,
                        .K = shape.K,
                        .a_transposed = shape.a_transposed,
                        .b_transposed = shape.b_transposed,
                        .accumulate = shape.accumulate,
                        .gelu_input = shape.gelu ? somewhere : nullptr,
                        .bias_gradient = shape.bias_gradient ? somewhere : nullptr,
                        .a_unscale = scaled ? somewhere : nullptr,
                        .b_unscale = scaled ? somewhere : nullptr,
                        .input = shape.input,
                        .output = shape.output};
    const Descriptors& d = library_->of(call);
    if (d.tuned) continue;
    tuned--;
    refusals.push_back(
        fmt::format("GEMM: the choice for {} is not used, and the library chooses: {}", words(shape), d.refused));
  }
  std::vector<std::string> lines{
      fmt::format("GEMM: cuBLASLt {}; {} of {} of a step have tuned kernels, the library chooses the others",
                  gemm_library_version(version()), tuned, counted(products.size(), "shape"))};
  for (const GemmTable& table : library_->other_versions)
    lines.push_back(fmt::format("GEMM: the choices for {} of {} are for cuBLASLt {}, but this is {}: not used",
                                table.gpu, table.date, gemm_library_version(table.library),
                                gemm_library_version(version())));
  lines.insert(lines.end(), refusals.begin(), refusals.end());
  return lines;
}

}  // namespace megalith::cuda
