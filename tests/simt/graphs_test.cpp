// A stream that is captured refuses what it may not be given (kernels/stream/device.h), of which CUDA says no more than
// that the capture was invalid.
#include <gtest/gtest.h>

#include "kernels/elementwise/elementwise.h"
#include "kernels/linear/device_queue.h"
#include "kernels/stream/arena.h"
#include "tests/message_of.h"

namespace megalith {
namespace {

class SimtGraphs : public testing::Test {
 protected:
  // The error of f() while the stream is captured; nothing where there is none.
  std::string refusal(const std::function<void()>& f) {
    const std::optional<std::string> message = error_of([&] {
      LaunchGraph graph;
      for (const bool captured : {false, true})
        s_.replay(graph, [&] {
          for (int i = 0; i < 4; i++) launch(s_, Fill{.y = x_, .value = 1.0 * i});
          if (captured) f();
        });
    });
    s_.synchronize();
    return message.value_or("");
  }

  DeviceQueue queue_;
  Stream s_{World::cuda, queue_.queue()};
  Arena device_{World::cuda, "device", 1 << 20}, host_{World::cuda, "host", 1 << 20, MemoryPlace::host};
  const Tensor x_ = device_.tensor(DType::f32, {500}), kept_ = host_.tensor(DType::f32, {500});
};

TEST_F(SimtGraphs, NothingButKernelsIsCaptured) {
  EXPECT_EQ(refusal([] {}), "");
  const auto names = [](const std::string& message, const char* what) {
    EXPECT_NE(message.find(what), std::string::npos) << message;
  };
  CUstream_st* const stream = queue_.queue().stream;
  names(refusal([&] { device::copy(stream, x_.raw(), kept_.raw(), 4); }), "a copy on a stream");
  names(refusal([&] { s_.to_host(kept_, x_).wait(); }), "an event on a stream");
  names(refusal([&] { device::synchronize(stream); }), "the host waits on a stream");
  names(refusal([&] { s_.upload("x", {x_}, [](auto) {}); }), "that is being captured");
  names(refusal([&] { s_.download("x", x_, [](auto) {}); }), "that is being captured");
  names(refusal([&] {
          LaunchGraph inner;
          s_.replay(inner, [] {});
        }),
        "holds another");
}

}  // namespace
}  // namespace megalith
