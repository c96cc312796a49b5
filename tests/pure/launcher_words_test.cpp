// Standard error of mpirun: its ranks' words are passed on, and of its own those that no rank has said.
#include "trainer/session/launcher_words.h"

#include <gtest/gtest.h>

namespace megalith {
namespace {

const std::string dashes = std::string(74, '-') + "\n";

// However the bytes are cut.
std::string passed(const std::string& said, size_t bytes) {
  LauncherWords words;
  std::string all;
  for (size_t at = 0; at < said.size(); at += bytes) all += words.pass(std::string_view(said).substr(at, bytes));
  return all + words.rest();
}

void expect(const std::string& said, const std::string& right) {
  for (size_t bytes = 1; bytes <= said.size() + 1; bytes++) ASSERT_EQ(passed(said, bytes), right) << bytes;
}

const std::string by_status_4 = dashes +
                                "Primary job  terminated normally, but 1 process returned\na non-zero exit code. Per "
                                "user-direction, the job has been aborted.\n" +
                                dashes;
const std::string first_4 = dashes +
                            "mpirun detected that one or more processes exited with non-zero status, thus causing\nthe "
                            "job to be terminated. The first process to do so was:\n\n  Process name: [[3010,1],1]\n  "
                            "Exit code:    75\n" +
                            dashes;
const std::string first_5 =
    dashes +
    "prterun detected that one or more processes exited with non-zero status,\nthus causing the "
    "job to be terminated. The first process to do so was:\n\n   Process name: "
    "[prterun-vm-71842@1,0]\n   Exit code:    75\n" +
    dashes;
const std::string abort_4 =
    dashes +
    "MPI_ABORT was invoked on rank 0 in communicator MPI_COMM_WORLD\nwith errorcode 1.\n\nNOTE: "
    "invoking MPI_ABORT causes Open MPI to kill all MPI processes.\n" +
    dashes;
const std::string killed =
    dashes + "mpirun noticed that process rank 0 with PID 0 on node vm exited on signal 9 " + "(Killed).\n" + dashes;

TEST(LauncherWords, WhatARankHasSaidIsNotRepeated) {
  expect(by_status_4 + "mpirun: Forwarding signal 10 to job\n" + first_4, "");
  expect("megalith: no\n" + first_5 + "PRTE: Forwarding signal 10 to job\n" + abort_4 + "more\n",
         "megalith: no\nmore\n");
}

// Open MPI 5 says it now and then where a signal comes as a rank ends.
TEST(LauncherWords, ThatARankIsGoneAlreadyIsNoNews) {
  const std::string gone =
      "[vm:27865] PMIX ERROR: PMIX_ERR_UNREACH in file ../../../src/server/pmix_server.c at line 1\n";
  expect("megalith: no\n" + gone + "more\n", "megalith: no\nmore\n");
  expect("\rstep 3 [==-]" + gone, "\rstep 3 [==-]");
  for (const char* other :
       {"[vm:27865] PMIX ERROR: PMIX_ERR_NOMEM in file a.c at line 1\n", "[vm:27865]\n", "[1/20] a\n", "["})
    expect(other, other);
}

TEST(LauncherWords, WhatNoRankCanSayIsPassedOn) {
  expect(killed, killed);
  expect(by_status_4 + killed + first_4, killed);
  expect("mpirun: no such host\n", "mpirun: no such host\n");
}

TEST(LauncherWords, LinesOfRanksStayThatTheLauncherSurrounds) {
  std::string cut = first_4;
  cut.insert(cut.find("  Exit"), "megalith: rank 1: it is the disk\n");
  expect(cut, "megalith: rank 1: it is the disk\n");
}

TEST(LauncherWords, ABarIsPassedOnBeforeItsLineEnds) {
  LauncherWords words;
  EXPECT_EQ(words.pass("\rstep 3 [=="), "\rstep 3 [==");
  EXPECT_EQ(words.pass("]\n----"), "]\n");
  EXPECT_EQ(words.rest(), "----");
}

TEST(LauncherWords, ABarMayStandBeforeTheLaunchersWords) {
  expect("\rstep 3 [==-]" + by_status_4 + first_4, "\rstep 3 [==-]");
  expect("\rstep 3 [==-]mpirun: Forwarding signal 10 to job\n\rstep 4", "\rstep 3 [==-]\rstep 4");
}

TEST(LauncherWords, WhatIsCutOffOrEndlessIsPassedOn) {
  expect(dashes + "mpirun", dashes + "mpirun");
  const std::string table = dashes + std::string(100, 'x') + "\n";
  std::string rows;
  for (int i = 0; i < 100; i++) rows += "a row that a program prints below a line of dashes, which nothing ends\n";
  EXPECT_EQ(passed(table + rows, 100), table + rows);
}

}  // namespace
}  // namespace megalith
