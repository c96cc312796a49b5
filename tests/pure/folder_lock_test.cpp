// A folder has one job at a time, whichever way the one before it ended.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>

#include "kernels/system/files.h"
#include "kernels/system/folder_lock.h"
#include "tests/data/scratch.h"
#include "tests/message_of.h"

namespace megalith {
namespace {

class Lock : public testing::Test {
 protected:
  std::string refusal() const {
    return message_of([&] { const FolderLock second(folder_, "choose another with run.output=DIR"); });
  }
  std::string said() const { return read_file(folder_ + "/lock"); }

  const test::Scratch scratch_;
  const std::string folder_ = scratch_.path("");
};

TEST_F(Lock, IsRefusedToASecondAndGivenBack) {
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  for (int k = 0; k < 2; k++) {
    const FolderLock lock(folder_, "");
    EXPECT_TRUE(lock.absent().empty()) << lock.absent();
    const std::string message = refusal();
    for (const std::string& part : {folder_ + " is in use by process ", std::to_string(::getpid()), std::string(host),
                                    std::string("stop it, or choose another with run.output=DIR")})
      EXPECT_NE(message.find(part), std::string::npos) << part << " is missing: " << message;
  }
  EXPECT_EQ(said(), "");
}

TEST_F(Lock, EndsWithAProcessThatIsKilled) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const FolderLock lock(folder_, "");
    if (::write(ready[1], "!", 1) == 1) ::pause();
    ::_exit(1);
  }
  char c;
  ASSERT_EQ(::read(ready[0], &c, 1), 1);
  EXPECT_NE(refusal().find(fmt::format("process {} on ", child)), std::string::npos) << refusal();
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_FALSE(said().empty()) << "the dead do not tidy up";
  const FolderLock lock(folder_, "");
  EXPECT_NE(said().find(fmt::format("process {} on ", ::getpid())), std::string::npos) << said();
  for (int end : ready) ::close(end);
}

TEST_F(Lock, NeedsAFileThatCanBeWritten) {
  EXPECT_NE(message_of([&] { const FolderLock lock(folder_ + "/none", "choose"); }).find("/none/lock: No such file"),
            std::string::npos);
}

}  // namespace
}  // namespace megalith
