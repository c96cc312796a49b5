// Small kernels of a few instructions: what they leave, and what is found wrong with them.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <string>
#include <vector>

#include "tests/message_of.h"
#include "tests/ptx/ptx.h"

namespace megalith::test {

inline uint32_t bits(float v) { return std::bit_cast<uint32_t>(v); }

// Registers that the instructions may use: %r0 is the thread, %rd1 where its results lie, %rd2 the input; %rd3 the
// shared memory of the launch, %r3 the same as 32 bits.
inline std::string kernel_of(const std::string& instructions) {
  return R"(.version 8.0
.target sm_90a
.address_size 64
.extern .shared .align 1024 .b8 dynamic[];
.visible .entry kernel(.param .u64 out, .param .u64 in, .param .u32 each)
.maxntid 256, 1, 1
{
  .reg .pred %p<20>; .reg .b16 %h<20>; .reg .b32 %r<50>; .reg .f32 %f<99>; .reg .b64 %rd<20>; .reg .f64 %fd<20>;
  ld.param.u64 %rd1, [out];
  ld.param.u64 %rd2, [in];
  ld.param.u32 %r1, [each];
  mov.u32 %r0, %tid.x;
  mad.wide.u32 %rd1, %r0, %r1, %rd1;
  mov.u64 %rd3, dynamic;
  mov.u32 %r3, dynamic;
)" + instructions +
         "\n  ret;\n}\n";
}

struct Launch {
  int threads = 32, words = 1;  // results of each thread
  int64_t shared = 0;
  std::vector<uint32_t> input = {};
};
inline std::vector<uint32_t> run(const std::string& instructions, const Launch& l = {}) {
  simt::clear_memory();
  const auto bytes = static_cast<size_t>(l.threads * l.words * 4);
  char* out = static_cast<char*>(simt::allocate("out", static_cast<int64_t>(bytes), simt::Contents::unwritten));
  char* in = static_cast<char*>(simt::allocate("in", 1 << 20, simt::Contents::read_only));
  if (!l.input.empty()) std::memcpy(in, l.input.data(), l.input.size() * 4);
  ptx::Module module("test.ptx", kernel_of(instructions));
  std::vector<char> parameters(20);
  std::memcpy(parameters.data(), &out, 8);
  std::memcpy(parameters.data() + 8, &in, 8);
  const int each = l.words * 4;
  std::memcpy(parameters.data() + 16, &each, 4);
  ptx::run(module.kernels()[0], {"test", 1, static_cast<unsigned>(l.threads), l.shared, nullptr, parameters});
  std::vector<uint32_t> results(bytes / 4);
  std::memcpy(results.data(), out, bytes);
  return results;
}
// Returns what the instructions leave in %r9 of every thread.
inline std::vector<uint32_t> r9(const std::string& instructions) {
  return run(instructions + "\nst.global.u32 [%rd1], %r9;");
}
inline void expect(const std::string& instructions, uint32_t wanted) {
  EXPECT_EQ(r9(instructions)[0], wanted) << instructions << fmt::format(" {:#x} {:#x}", r9(instructions)[0], wanted);
}
inline void expect_float(const std::string& instructions, float wanted) {
  expect(instructions + " mov.b32 %r9, %f9;", bits(wanted));
}
inline std::string f(float v) { return fmt::format("0f{:08X}", bits(v)); }

inline void expect_error(const std::string& instructions, const std::string& wanted, const Launch& l = {}) {
  const std::string message = message_of([&] { run(instructions, l); });
  EXPECT_NE(message.find(wanted), std::string::npos) << message << ", expected: " << wanted;
}

}  // namespace megalith::test
