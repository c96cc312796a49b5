// The GPU in a build without CUDA.
#include "kernels/stream/device.h"
#include "kernels/system/check.h"

namespace megalith::device {

namespace {
[[noreturn]] void absent() { FAIL("this build has no CUDA; configure with: cmake --preset cuda"); }
}  // namespace

bool in_build() { return false; }
std::string architectures() { absent(); }
void expect_waiting_kernels() {}
int count() { return 0; }
std::string unusable(int) { absent(); }
void select(int) { absent(); }
Properties properties() { absent(); }
Link link(int, int) { absent(); }

Memory allocate(int64_t, const std::string&) { absent(); }
Memory allocate_pinned(int64_t, const std::string&) { absent(); }

OwnedStream make_stream(bool) { absent(); }
OwnedEvent make_event() { absent(); }
OwnedEvent make_timed_event() { absent(); }
void Destroy::operator()(CUstream_st*) const noexcept {}
void Destroy::operator()(CUevent_st*) const noexcept {}
void Destroy::operator()(CUgraphExec_st*) const noexcept {}
void record(CUevent_st*, CUstream_st*) { absent(); }
void wait(CUstream_st*, CUevent_st*) { absent(); }
bool passed(CUevent_st*) { absent(); }
double seconds_between(CUevent_st*, CUevent_st*) { absent(); }
void begin_capture(CUstream_st*) { absent(); }
OwnedGraph end_capture(CUstream_st*) { absent(); }
void drop_capture(CUstream_st*) noexcept {}
void launch(CUstream_st*, CUgraphExec_st*) { absent(); }
void synchronize(CUstream_st*) { absent(); }

void copy(CUstream_st*, void*, const void*, int64_t) { absent(); }

Range::Range(const char*) noexcept {}
Range::~Range() = default;

}  // namespace megalith::device
