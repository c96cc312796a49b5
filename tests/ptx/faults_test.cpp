// Faults planted in the PTX of our kernels, one at a time: each is noticed by a case, as an error of the interpreter or
// as numbers that the twin does not have.
#include <gtest/gtest-spi.h>

#include <regex>

#include "cases.h"
#include "kernels/system/check.h"
#include "tests/device/device.h"
#include "tests/ptx/library.h"

namespace megalith::test {
namespace {

// A case, whose twin is computed once for all faults, and the kernels that it launches.
struct Planted {
  Planted(const Case& c, const cuda::Chip& chip_ = ampere) : of(c), chip(chip_) {
    Doubles result = doubles(c);
    c.twin(result);
    of.twin = [result](Doubles& d) { d = result; };
  }
  Case of;
  cuda::Chip chip;

  // Returns what is found when the case runs; empty: nothing.
  std::string found() const {
    testing::TestPartResultArray failures;
    try {
      const testing::ScopedFakeTestPartResultReporter collect(
          testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &failures);
      agrees_with_its_twin(of, 0, chip);
    } catch (const Error& e) {
      return e.what();
    }
    return failures.size() ? failures.GetTestPartResult(0).message() : "";
  }
  std::vector<ptx::Kernel*> kernels() const {
    std::map<ptx::Kernel*, int64_t> before;
    for (const auto& [name, kernel] : ptx::library().kernels) before[kernel] = kernel->launches;
    EXPECT_EQ(found(), "") << of.name();
    std::vector<ptx::Kernel*> launched;
    for (const auto& [kernel, launches] : before)
      if (kernel->launches > launches) launched.push_back(kernel);
    return launched;
  }
};

int planted_so_far = 0;

// At every place of a pattern in the case's kernels, one at a time, `step` places apart. The replacement is
// std::regex's. Those that nobody notices.
std::vector<std::string> unnoticed(const Planted& p, const std::string& pattern, const std::string& replacement = "",
                                   int step = 1) {
  const std::regex regex(pattern);
  std::vector<std::string> all;
  int place = 0;
  for (ptx::Kernel* kernel : p.kernels()) {
    const std::string body = kernel->body;
    for (std::sregex_iterator at(body.begin(), body.end(), regex), end; at != end; ++at) {
      if (place++ % step) continue;
      planted_so_far++;
      kernel->body = body.substr(0, static_cast<size_t>(at->position())) + at->format(replacement) +
                     body.substr(static_cast<size_t>(at->position() + at->length()));
      kernel->code = nullptr;
      const std::string found = p.found();
      EXPECT_TRUE(found.empty() || found.find("block (") != std::string::npos ||
                  found.find("the twin has") != std::string::npos)
          << found;  // such a text is none
      const auto lines = std::count(kernel->header.begin(), kernel->header.end(), '\n') +
                         std::count(body.begin(), body.begin() + at->position(), '\n');
      if (found.empty())
        all.push_back(fmt::format("{}:{}: {}", kernel->module->name(), kernel->line + lines, at->str()));
    }
    kernel->body = body;
    kernel->code = nullptr;
  }
  EXPECT_GT(place, 0) << p.of.name() << " has no " << pattern;
  return all;
}
using None = std::vector<std::string>;

// Attention has three tiles of 128 here, the last of which is not full.
const AttentionDims dims{1, 300, 1, 64};
const Planted forward_8(attention_forward_case(dims, 0, bf16), ampere),
    forward_9(attention_forward_case(dims, 0, bf16), hopper),
    backward_8(attention_backward_case(dims, 0, bf16), ampere),
    backward_9(attention_backward_case(dims, 0, bf16), hopper), plain(attention_forward_case({1, 70, 1, 40}, 0.2, f32));

TEST(PtxFaults, OperandsSwapped) {
  const std::string r = "(%r\\d+), (%r\\d+)", quad = "\\{%[rf]\\d+, %[rf]\\d+, %[rf]\\d+, %[rf]\\d+\\}";
  for (const Planted& p : {forward_8, backward_8}) {
    // These swap the first two and the middle two registers of the left factor, both of the right factor, and the first
    // two of those that are loaded.
    EXPECT_EQ(unnoticed(p, "(mma.sync[^{]*" + quad + ", \\{)" + r, "$1$3, $2", 13), None());
    EXPECT_EQ(unnoticed(p, "(mma.sync[^{]*" + quad + ", \\{%r\\d+, )" + r, "$1$3, $2", 13), None());
    EXPECT_EQ(unnoticed(p, "(mma.sync[^{]*" + quad + ", " + quad + ", \\{)" + r, "$1$3, $2", 13), None());
    EXPECT_EQ(unnoticed(p, "(ldmatrix[^{]*\\{)" + r, "$1$3, $2", 7), None());
  }
  for (const Planted& p : {forward_9, backward_9}) {
    EXPECT_EQ(unnoticed(p, "(wgmma.mma_async[^}]*\\}, )left, right", "$1right, left"), None());
    EXPECT_EQ(unnoticed(p, "(wgmma.mma_async[^}]*\\}, \\{)" + r, "$1$3, $2"), None());
    EXPECT_EQ(unnoticed(p, "(wgmma.mma_async[^{]*\\{)(%f\\d+), (%f\\d+)", "$1$3, $2"), None());
  }
  // (In LayerNorm nobody would: its differences are squared.)
  for (const Planted& p : {forward_8, forward_9, plain})
    EXPECT_EQ(unnoticed(p, "(sub.f32\\s+%f\\d+, )(%f\\d+), (%f\\d+)", "$1$3, $2", 3), None());
  EXPECT_EQ(unnoticed(forward_9, "(shfl.sync.bfly.b32\\s+%r\\d+\\|%p\\d+, )" + r, "$1$3, $2"), None());
}

TEST(PtxFaults, MissingBarriers) {
  const std::string barrier = "bar.sync\\s+0;", of_warp = "bar.warp.sync\\s+-1;", wait = "cp.async.wait_group \\d+;";
  EXPECT_EQ(unnoticed(forward_8, barrier), None());
  for (const char* turn : {"bar.sync\\s+%r\\d+, %r\\d+;", "bar.arrive\\s+%r\\d+, %r\\d+;"})
    EXPECT_EQ(unnoticed(forward_9, turn), None());
  // Two barriers are for blocks of heads apart, which add to each other's sums. Only tests/simt checks such an order.
  EXPECT_EQ(unnoticed(backward_9, barrier).size(), 2);
  // Behind the loop one is there for warpgroups, in both kernels: of warps each reads its own rows only.
  EXPECT_EQ(unnoticed(backward_8, barrier).size(), 2);
  for (const Planted& p : {forward_8, forward_9, backward_8, backward_9}) EXPECT_EQ(unnoticed(p, wait), None());
  // The first in write_rows (attention_cuda.h), where a barrier, or that of the rows before, orders the same.
  EXPECT_EQ(unnoticed(forward_8, of_warp).size(), 1);
  EXPECT_EQ(unnoticed(forward_9, of_warp).size(), 1);
  EXPECT_EQ(unnoticed(backward_9, of_warp).size(), 3);

  for (const Case& c :
       {plain.of, with_largest(layernorm_forward_case(5, 2048, f32), "y"),
        with_largest(residual_layernorm_forward_case(5, 1601, 0.5, bf16), "ln"),
        with_largest(swiglu_backward_case(9, 320, bf16), "dx"), residual_layernorm_backward_case(5, 1600, 0.5, bf16),
        residual_layernorm_backward_case(2200, 8, 0.5, bf16), residual_layernorm_backward_case(5, 1601, 0.5, bf16),
        residual_backward_case(700, 320, 0.25, bf16), embedding_backward_case(3, 700, 16, {0, 300, 300}, 4, bf16),
        cross_entropy_forward_backward_case(2, 5003, 5, bf16), softmax_part_case(2, {0, 50257, 50257}, 47, f32),
        linear_backward_weight_case(66, 257, 65, true, bf16), accumulate_sum_case(100003),
        decide_update_case("", Values(300, 0.25), {.max_norm = 1, .skip_above = 2}, Values(100, 5.0))})
    EXPECT_EQ(unnoticed(c, barrier + "|" + of_warp), None());
}

TEST(PtxFaults, MissingFences) {
  for (const Planted& p : {forward_9, backward_9})
    for (const char* what : {"wgmma.fence.sync.aligned;", "fence.proxy.async.shared::cta;",
                             "wgmma.commit_group.sync.aligned;", "wgmma.wait_group.sync.aligned [1-9];"})
      EXPECT_EQ(unnoticed(p, what), None());
  EXPECT_EQ(unnoticed(forward_9, "wgmma.wait_group.sync.aligned 0;"), None());
  // That for dv, behind which its weights' registers are the gradients': in PTX every value has registers of its own.
  EXPECT_EQ(unnoticed(backward_9, "wgmma.wait_group.sync.aligned 0;").size(), 1);
}

TEST(PtxFaults, TicketsThatAreAllAlike) {
  EXPECT_EQ(unnoticed(backward_9, "(atom.relaxed.gpu.global.add.s32\\s[^;]*, )1;", "$010;"), None());
}

TEST(PtxFaults, WrongDescriptors) {
  for (int bit = 0; bit < 32; bit++) {  // of the upper half
    const std::string wrong = fmt::format("$010x{:08x}", 0x40000040u ^ 1u << bit);
    for (const Planted& p : {forward_9, backward_9})
      EXPECT_EQ(unnoticed(p, "(mov.b64 (?:left|right), \\{%r\\d+, )0x40000040", wrong, 11), None());
  }
  // Places further on in a matrix are constants in the lower half.
  EXPECT_EQ(unnoticed(forward_9, "(or.b32\\s+%r\\d+, %r\\d+, 6553)8;", "$019;"), None());
  std::printf("%d faults were planted\n", planted_so_far);
}

}  // namespace
}  // namespace megalith::test
