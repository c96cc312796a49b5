// A build without CUDA.
#include "trainer/communication/nccl.h"

namespace megalith {

struct NcclSession::Shared {};
NcclSession::NcclSession(const Session& session, NcclOptions) : session_(session) {
  FAIL("this build has no CUDA and no NCCL; configure with: cmake --preset cuda");
}
NcclSession::~NcclSession() = default;
std::unique_ptr<Communicator> NcclSession::world() const { return nullptr; }
void NcclSession::check() const {}
std::string NcclSession::version() const { return ""; }

}  // namespace megalith
