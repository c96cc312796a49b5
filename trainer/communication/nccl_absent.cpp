#include "trainer/communication/nccl.h"

namespace megalith {

namespace {
[[noreturn]] void absent() { FAIL("this build has no CUDA and no NCCL; configure with: cmake --preset cuda"); }
}  // namespace

std::string nccl_version(const std::string&) { absent(); }
struct NcclSession::Shared {};
NcclSession::NcclSession(const Session& session, NcclOptions) : session_(session) { absent(); }
NcclSession::~NcclSession() = default;
std::unique_ptr<Communicator> NcclSession::world() const { return nullptr; }
device::Memory NcclSession::allocate(int64_t, const std::string&) const { absent(); }
void NcclSession::check() const {}
std::string NcclSession::version() const { return ""; }

}  // namespace megalith
