// Our side of cuBLASLt (kernels/linear/gemm_present.cpp) against the simulated library: whose algorithm multiplies,
// what is refused, and that the same choice gives the same bits.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "kernels/linear/gemm_cuda.h"
#include "kernels/linear/linear.h"
#include "kernels/system/check.h"
#include "tests/message_of.h"
#include "tests/simt/simt.h"
#include "tests/simulated_cublaslt/control.h"
#include "tests/simulated_cublaslt/cublasLt.h"

namespace megalith {
namespace {

constexpr DType f32 = DType::f32, bf16 = DType::bf16;
const std::vector<GemmTable> no_tables;

class CublasLt : public testing::Test {
 protected:
  CublasLt() {
    simt::clear_memory();
    void* const library = dlopen("libcublasLt.so.99", RTLD_NOW);
    CHECK(library, "{}", dlerror());
    const auto find =
        reinterpret_cast<decltype(&simulated_cublaslt_control)>(dlsym(library, "simulated_cublaslt_control"));
    CHECK(find, "another cuBLASLt than the simulated one was found");
    control_ = find();
    workspace_ = simt::allocate("the workspace", cuda::workspace_bytes, simt::Contents::unwritten);
  }
  ~CublasLt() override {
    control_->version = control_->more_workspace = 0;
    control_->no_heuristic = control_->no_check = false;
  }

  cuda::Queue queue(cuda::Gemm& gemm) const {
    return {.stream = nullptr, .workspace = workspace_, .gemm = &gemm, .chip = {9, 227 << 10}};
  }
  static Tensor tensor(DType type, Shape shape, uint32_t seed) {
    const Tensor t(simt::allocate("a tensor", shape.numel() * size_of(type), simt::Contents::written), type, shape);
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < t.numel(); i++) {
      if (type == f32) t.data<float>()[i] = normal(random);
      if (type == bf16) t.data<bfloat16>()[i] = bfloat16(normal(random));
    }
    return t;
  }
  static std::vector<unsigned char> bits(const Tensor& t) {
    const auto* const begin = static_cast<const unsigned char*>(t.raw());
    return {begin, begin + t.bytes()};
  }
  std::string gpu() const { return device::properties().name; }
  // Returns what bench_kernels --tune would write of these choices.
  GemmTable table(std::vector<GemmChoice> choices, int64_t library = CUBLAS_VERSION) const {
    for (GemmChoice& choice : choices) choice.candidates = 1;
    return {.gpu = gpu(), .library = library, .driver = "", .date = "a day", .choices = std::move(choices)};
  }

  // A gradient of weights, 48 x 64 from 96 rows, and of their bias.
  struct Layer {
    Tensor dy = tensor(bf16, {96, 48}, 1), x = tensor(bf16, {96, 64}, 2), dw = tensor(f32, {48, 64}, 3),
           db = tensor(f32, {48}, 4);
    GemmCall call() const { return gemm_call(LinearBackwardWeight{.dw = dw, .dy = dy, .x = x}); }
    GemmCall fused() const {
      GemmCall g = call();
      g.bias_gradient = reinterpret_cast<void*>(4096);  // where it is going to be is aligned
      return g;
    }
  };
  std::vector<unsigned char> product_of(cuda::Gemm& gemm, const Layer& l) {
    Tensor dw = tensor(f32, l.dw.shape(), 3);
    GemmCall g = l.call();
    g.c = dw.raw();
    gemm.run(queue(gemm), g);
    return bits(dw);
  }

  simulated_cublaslt::Control* control_;
  void* workspace_;
};

TEST_F(CublasLt, AlgorithmsDifferInBitsAndNoneFromItself) {
  cuda::Gemm gemm(no_tables);
  const Layer l;
  const std::vector<GemmChoice> all = gemm.candidates(l.call(), 10);
  ASSERT_EQ(all.size(), 6u) << "all but the one with atomics";
  std::set<std::vector<unsigned char>> different;
  for (const GemmChoice& candidate : all) {
    SCOPED_TRACE(candidate.what);
    EXPECT_EQ(candidate.what.find("reduction 1"), std::string::npos) << "atomics";
    std::vector<unsigned char> first;
    for (int time = 0; time < 2; time++) {
      Tensor dw = tensor(f32, {48, 64}, 3);
      GemmCall g = l.call();
      g.c = dw.raw();
      gemm.run(queue(gemm), g, candidate);
      if (time == 0) first = bits(dw);
      EXPECT_EQ(bits(dw), first);
      for (int64_t i = 0; i < dw.numel(); i++) {
        double want = double(l.dw.data<float>()[i]), size = 0;
        for (int64_t n = 0; n < 96; n++) {
          const double a = float(l.dy.data<bfloat16>()[n * 48 + i / 64]),
                       b = float(l.x.data<bfloat16>()[n * 64 + i % 64]);
          want += a * b;
          size += std::abs(a * b);
        }
        ASSERT_NEAR(dw.data<float>()[i], want, 1e-6 * size) << i;
      }
    }
    different.insert(first);
  }
  EXPECT_EQ(different.size(), all.size());
}

// What the mask of reductions is for: with atomics, which the simulated library prefers for these sizes, it is another
// sum each time.
TEST_F(CublasLt, ItsAtomicsGiveOtherBitsEachTime) {
  const Tensor left = tensor(f32, {8, 96}, 1), right = tensor(f32, {8, 96}, 2);
  cublasLtHandle_t handle;
  cublasLtMatmulDesc_t matmul;
  cublasLtMatrixLayout_t factor, result;
  cublasLtMatmulPreference_t preference;
  cublasLtCreate(&handle);
  cublasLtMatmulDescCreate(&matmul, CUBLAS_COMPUTE_32F, CUDA_R_32F);
  const cublasOperation_t transposed = CUBLAS_OP_T;
  cublasLtMatmulDescSetAttribute(matmul, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed);
  cublasLtMatrixLayoutCreate(&factor, CUDA_R_32F, 96, 8, 96);
  cublasLtMatrixLayoutCreate(&result, CUDA_R_32F, 8, 8, 8);
  cublasLtMatmulPreferenceCreate(&preference);
  cublasLtMatmulHeuristicResult_t found{};
  int count = 0;
  ASSERT_EQ(
      cublasLtMatmulAlgoGetHeuristic(handle, matmul, factor, factor, result, result, preference, 1, &found, &count),
      CUBLAS_STATUS_SUCCESS);
  std::set<std::vector<unsigned char>> seen;
  for (int time = 0; time < 3; time++) {
    const Tensor product = tensor(f32, {8, 8}, 3);
    const float one = 1, zero = 0;
    ASSERT_EQ(cublasLtMatmul(handle, matmul, &one, left.raw(), factor, right.raw(), factor, &zero, product.raw(),
                             result, product.raw(), result, &found.algo, workspace_, 0, nullptr),
              CUBLAS_STATUS_SUCCESS);
    seen.insert(bits(product));
  }
  EXPECT_GT(seen.size(), 1u);
}

TEST_F(CublasLt, RefusesWhatTheRealOneDoes) {
  const Tensor x = tensor(f32, {17, 16}, 1), y = tensor(f32, {16, 16}, 2);
  cublasLtHandle_t handle;
  cublasLtMatmulPreference_t preference;
  cublasLtCreate(&handle);
  cublasLtMatmulPreferenceCreate(&preference);
  struct Asked {
    cudaDataType input = CUDA_R_32F, output = CUDA_R_32F;
    int64_t ld = 16;
    uint64_t k = 16;
    uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    const void* bias = nullptr;
    int32_t bias_type = CUDA_R_32F;
    int64_t aux_ld = 16;
  };
  const auto status = [&](const Asked& asked, size_t workspace = 0, int64_t misaligned_by = 0) {
    cublasLtMatmulDesc_t matmul;
    cublasLtMatrixLayout_t left, right, result;
    cublasLtMatmulDescCreate(&matmul, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    cublasLtMatmulDescSetAttribute(matmul, CUBLASLT_MATMUL_DESC_EPILOGUE, &asked.epilogue, 4);
    cublasLtMatmulDescSetAttribute(matmul, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &asked.bias, 8);
    cublasLtMatmulDescSetAttribute(matmul, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &asked.bias_type, 4);
    const void* const aux = x.raw();
    cublasLtMatmulDescSetAttribute(matmul, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &aux, 8);
    cublasLtMatmulDescSetAttribute(matmul, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &asked.aux_ld, 8);
    cublasLtMatrixLayoutCreate(&left, asked.input, 16, 16, asked.ld);
    cublasLtMatrixLayoutCreate(&right, asked.input, asked.k, 16, 16);
    cublasLtMatrixLayoutCreate(&result, asked.output, 16, 16, 16);
    cublasLtMatmulHeuristicResult_t found{};
    int count = 0;
    cublasStatus_t said =
        cublasLtMatmulAlgoGetHeuristic(handle, matmul, left, right, result, result, preference, 1, &found, &count);
    const float one = 1, zero = 0;
    char* const a = static_cast<char*>(x.raw()) + misaligned_by;
    if (said == CUBLAS_STATUS_SUCCESS)
      said = cublasLtMatmul(handle, matmul, &one, a, left, x.raw(), right, &zero, y.raw(), result, y.raw(), result,
                            &found.algo, workspace_, workspace, nullptr);
    return said;
  };
  EXPECT_EQ(status({}), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(status({.ld = 12}), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(status({.k = 15}), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(status({.epilogue = 12345}), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(status({.epilogue = CUBLASLT_EPILOGUE_BIAS}), CUBLAS_STATUS_INVALID_VALUE) << "no bias";
  EXPECT_EQ(status({.epilogue = CUBLASLT_EPILOGUE_BIAS, .bias = x.raw()}), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(status({.epilogue = CUBLASLT_EPILOGUE_BIAS, .bias = x.raw(), .bias_type = CUDA_R_16BF}),
            CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(status({.epilogue = CUBLASLT_EPILOGUE_DGELU, .aux_ld = 20}), CUBLAS_STATUS_NOT_SUPPORTED) << "no 8";
  EXPECT_EQ(status({.input = CUDA_R_32F, .output = CUDA_R_16BF, .bias_type = CUDA_R_16BF}),
            CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_NE(message_of([&] { status({}, 0, 4); }).find("misaligned address"), std::string::npos);
  control_->more_workspace = 512;
  EXPECT_EQ(status({}), CUBLAS_STATUS_NOT_SUPPORTED) << "by no preference of any";
  const uint64_t room = 1024;
  cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &room, sizeof room);
  EXPECT_EQ(status({}, 512), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(status({}, 511), CUBLAS_STATUS_INVALID_VALUE);
  const int64_t wide = CUBLAS_OP_T;
  cublasLtMatmulDesc_t matmul;
  cublasLtMatmulDescCreate(&matmul, CUBLAS_COMPUTE_32F, CUDA_R_32F);
  EXPECT_EQ(cublasLtMatmulDescSetAttribute(matmul, CUBLASLT_MATMUL_DESC_TRANSA, &wide, sizeof wide),
            CUBLAS_STATUS_INVALID_VALUE);
}

TEST_F(CublasLt, ATableChoosesAndTheSameBitsComeAgain) {
  const Layer l;
  cuda::Gemm untuned(no_tables);
  const std::vector<unsigned char> first_choice = product_of(untuned, l);
  std::set<std::vector<unsigned char>> all;
  for (const GemmChoice& choice : untuned.candidates(l.call(), 10)) {
    SCOPED_TRACE(choice.what);
    // As it comes back from its file.
    const std::vector<GemmTable> tables{read_gemm_table(to_text(table({choice})), "the test's")};
    EXPECT_EQ(tables[0], table({choice}));
    cuda::Gemm one(tables), two(tables);
    const std::vector<unsigned char> product = product_of(one, l);
    EXPECT_EQ(product_of(one, l), product);
    EXPECT_EQ(product_of(two, l), product);
    EXPECT_EQ(fmt::format("algorithm {},", control_->last_algorithm.load()),
              choice.what.substr(0, choice.what.find(' ', 10)));
    EXPECT_EQ(one.describe({{choice.shape, 3}}),
              (std::vector<std::string>{
                  "GEMM: cuBLASLt 99.1.0; 1 of 1 shape of a step have tuned kernels, the library chooses the others"}));
    all.insert(product);
  }
  EXPECT_EQ(all.size(), 6u);
  EXPECT_TRUE(all.contains(first_choice));
}

// Every one of them multiplies all the same, by the library's first choice, and says why.
TEST_F(CublasLt, EntriesThatCannotBeUsedAreNotAndTheLogSaysSo) {
  const Layer l;
  cuda::Gemm untuned(no_tables);
  const std::vector<unsigned char> want = product_of(untuned, l);
  GemmChoice choice = untuned.candidates(l.call(), 10)[1];
  const auto expect = [&](const std::vector<GemmTable>& tables, int tuned, const std::string& line) {
    cuda::Gemm gemm(tables);
    EXPECT_EQ(product_of(gemm, l) == want, !tuned);
    const std::vector<std::string> said = gemm.describe({{choice.shape, 1}, {shape_of(l.fused()), 2}});
    ASSERT_EQ(said.size(), line.empty() ? 1u : 2u);
    EXPECT_EQ(said[0],
              fmt::format(
                  "GEMM: cuBLASLt 99.1.0; {} of 2 shapes of a step have tuned kernels, the library chooses the others",
                  tuned));
    if (!line.empty()) {
      EXPECT_EQ(said[1], line);
    }
  };
  expect({table({choice})}, 2, "");
  expect({}, 0, "");
  GemmTable another = table({choice});
  another.gpu = "NVIDIA Pretence 9000";
  expect({another}, 0, "");
  expect({table({choice}, 130100)}, 0,
         fmt::format("GEMM: the choices for {} of a day are for cuBLASLt 13.1.0, but this is 99.1.0: not used", gpu()));
  const std::string why = "GEMM: the choice for 48 x 64 x 96 from bf16 to f32 is not used, and the library chooses: ";
  GemmChoice unknown = choice;
  unknown.algorithm[1] = 77;
  // The second of two shapes has no entry of its own; the first's makes it, without its sums.
  const auto twice = [&](const std::vector<GemmTable>& tables, const std::string& line) {
    cuda::Gemm gemm(tables);
    EXPECT_EQ(product_of(gemm, l), want);
    const std::vector<std::string> said = gemm.describe({{choice.shape, 1}});
    ASSERT_EQ(said.size(), 2u);
    EXPECT_EQ(said[1], why + line);
  };
  twice({table({unknown})}, "cuBLASLt does not take its algorithm: CUBLAS_STATUS_NOT_SUPPORTED");
  control_->no_check = true;
  twice({table({choice})}, "cuBLASLt does not take its algorithm: CUBLAS_STATUS_NOT_SUPPORTED");
  control_->no_check = false;
  control_->more_workspace = 1 << 30;
  cuda::Gemm starved(std::vector{table({choice})});
  const std::vector<std::string> said = starved.describe({{choice.shape, 1}});
  ASSERT_EQ(said.size(), 2u);
  EXPECT_EQ(said[1], why + "its algorithm needs a workspace of 1073741824 bytes, but there are 33554432");
}

TEST_F(CublasLt, WithoutAnAlgorithmTheErrorNamesTheProduct) {
  control_->no_heuristic = true;
  cuda::Gemm gemm(no_tables);
  EXPECT_EQ(message_of([&] { product_of(gemm, Layer()); }),
            "cuBLASLt has no GEMM of 48 x 64 x 96 from bf16 to f32 with a workspace of 33554432 bytes: "
            "CUBLAS_STATUS_NOT_SUPPORTED");
}

// Its preferences name no alignment of a bias, which a kernel reads by vectors as wide as those of its result.
TEST_F(CublasLt, ABiasLessAlignedThanTheResultIsReadAsItLies) {
  cuda::Gemm gemm(no_tables);
  const Tensor x = tensor(bf16, {96, 64}, 1), w = tensor(bf16, {48, 64}, 2), bias = tensor(bf16, {64}, 3);
  for (const int64_t first : {0, 1, 2, 4}) {
    SCOPED_TRACE(first);
    const Tensor y = tensor(bf16, {96, 48}, 4), here = bias.flat(first, first + 48);
    gemm.run(queue(gemm), gemm_call(LinearForward{.y = y, .x = x, .w = w, .b = here}));
    double want = float(here.data<bfloat16>()[0]);
    for (int64_t i = 0; i < 64; i++) want += double(float(x.data<bfloat16>()[i])) * float(w.data<bfloat16>()[i]);
    EXPECT_NEAR(float(y.data<bfloat16>()[0]), want, 0.01 * std::abs(want));
  }
}

// What is tuned at 16 bytes serves every tensor that has them, and no other.
TEST_F(CublasLt, AnEntryHoldsForItsAlignment) {
  const Tensor dy = tensor(bf16, {96, 48}, 1), dw = tensor(f32, {48, 64}, 3);
  cuda::Gemm untuned(no_tables);
  const auto x_at = [&](int64_t bytes) {
    return Tensor(static_cast<char*>(simt::allocate("x", 96 * 64 * 2 + 64, simt::Contents::written)) + bytes, bf16,
                  {96, 64});
  };
  cuda::Gemm gemm(std::vector{
      table({untuned.candidates(gemm_call(LinearBackwardWeight{.dw = dw, .dy = dy, .x = x_at(16)}), 10)[1]})});
  for (const auto& [bytes, algorithm] :
       std::vector<std::pair<int64_t, int>>{{0, 12}, {16, 12}, {48, 12}, {8, 1}, {2, 1}}) {
    gemm.run(queue(gemm), gemm_call(LinearBackwardWeight{.dw = dw, .dy = dy, .x = x_at(bytes)}));
    EXPECT_EQ(control_->last_algorithm, algorithm) << bytes;
  }
  for (const GemmChoice& candidate :
       untuned.candidates(gemm_call(LinearBackwardWeight{.dw = dw, .dy = dy, .x = x_at(8)}), 10))
    EXPECT_LT(candidate.algorithm[1], 3u) << "no kernel with vectors";
}

// On Hopper in bf16 a GELU is taken along, unless it was measured apart; on others only where it was measured so.
TEST_F(CublasLt, ATableDecidesAboutAGelu) {
  const Tensor dy = tensor(bf16, {96, 48}, 1), w = tensor(bf16, {48, 64}, 2), h = tensor(bf16, {96, 64}, 3),
               dh = tensor(bf16, {96, 64}, 4);
  const GemmCall with = gemm_call(LinearBackwardInputGelu{.dh = dh, .dy = dy, .w = w, .h = h}),
                 apart = gemm_call(LinearBackwardInput{.dx = dh, .dy = dy, .w = w});
  for (const simt::Chip& chip : {simt::h100, simt::a100}) {
    const simt::AsChip machine(chip);
    cuda::Gemm untuned(no_tables);
    EXPECT_EQ(untuned.fuses(with), chip.major == 9);
    const GemmChoice fused = untuned.candidates(with, 8)[0], alone = untuned.candidates(apart, 8)[0];
    cuda::Gemm measured_apart(std::vector{table({alone})}), measured_both(std::vector{table({alone, fused})});
    EXPECT_FALSE(measured_apart.fuses(with));
    EXPECT_TRUE(measured_both.fuses(with));
    for (cuda::Gemm* gemm : {&measured_apart, &measured_both})
      EXPECT_NE(gemm->describe({{shape_of(with), 1}})[0].find("; 1 of 1 shape "), std::string::npos);
  }
}

TEST_F(CublasLt, ABiasGradientIsSummedInTheProductWhereATableSaysSo) {
  const Layer l;
  cuda::Gemm untuned(no_tables);
  const auto gradients = [&](cuda::Gemm& gemm) {
    const Tensor dw = tensor(f32, {48, 64}, 3), db = tensor(f32, {48}, 4);
    Stream s(World::cuda, queue(gemm));
    launch(s, LinearBackwardWeight{.dw = dw, .db = db, .dy = l.dy, .x = l.x});
    for (int64_t o = 0; o < 48; o++) {
      double want = double(l.db.data<float>()[o]), size = 0;
      for (int64_t n = 0; n < 96; n++) {
        want += double(float(l.dy.data<bfloat16>()[n * 48 + o]));
        size += std::abs(double(float(l.dy.data<bfloat16>()[n * 48 + o])));
      }
      EXPECT_NEAR(db.data<float>()[o], want, 1e-6 * size) << o;
    }
    return std::tuple(bits(dw), bits(db), s.log().size());
  };
  const auto apart = gradients(untuned);
  EXPECT_EQ(std::get<2>(apart), 2u) << "ops";
  EXPECT_EQ(control_->last_epilogue, CUBLASLT_EPILOGUE_DEFAULT);
  const std::vector<GemmChoice> all = untuned.candidates(l.fused(), 10);
  ASSERT_EQ(all.size(), 5u) << "one of them cannot";
  for (const GemmChoice& choice : all) {
    SCOPED_TRACE(choice.what);
    cuda::Gemm gemm(std::vector{table({choice})});
    const auto together = gradients(gemm);
    EXPECT_EQ(control_->last_epilogue, CUBLASLT_EPILOGUE_BGRADB);
    EXPECT_EQ(std::get<2>(together), 1u) << "ops";
    EXPECT_EQ(gradients(gemm), together);
  }
  // An entry that is not taken, and one without the sums, leave them to the op.
  control_->no_check = true;
  for (const GemmCall& call : {l.call(), l.fused()}) {
    GemmChoice choice = all[0];
    choice.shape = shape_of(call);
    cuda::Gemm gemm(std::vector{table({choice})});
    EXPECT_EQ(gradients(gemm), apart);
  }
}

}  // namespace
}  // namespace megalith
