// Files that are written past the system's cache: the bytes of any length, on disks and in memory, and errors that the
// threads meet.
#include "kernels/system/large_write.h"

#include <cerrno>
#include <chrono>
#include <thread>

#include "kernels/system/file_calls.h"
#include "tests/checkpoints/helpers.h"

namespace megalith {
namespace {

using namespace test;

constexpr int64_t write_size = int64_t{1} << 20;

std::string noise(int64_t bytes) {
  std::string text(static_cast<size_t>(bytes), '\0');
  uint64_t state = 1;
  for (char& c : text) c = static_cast<char>((state = state * 6364136223846793005u + 1442695040888963407u) >> 56);
  return text;
}

// In pieces of odd sizes, with zeros in between.
std::string written(File& file, const std::string& text) {
  std::string expected;
  DirectMemory memory(4 * write_size);
  LargeWrite large(file, memory);
  const int64_t size = static_cast<int64_t>(text.size());
  for (int64_t at = 0, piece = 1; at < size; at += piece, piece = piece * 3 % 1000003) {
    const int64_t some = std::min(piece, size - at);
    large.append(text.data() + at, some);
    expected += text.substr(static_cast<size_t>(at), static_cast<size_t>(some));
    if (piece % 7 == 0) {
      large.append_zeros(piece);
      expected.append(static_cast<size_t>(piece), '\0');
    }
    EXPECT_EQ(large.bytes(), static_cast<int64_t>(expected.size()));
  }
  large.finish();
  EXPECT_EQ(large.bytes(), static_cast<int64_t>(expected.size()));
  return expected;
}

TEST(LargeWrite, of_any_length_wherever_it_lies) {
  const FileHook slow_disk([](const FileEvent& event) {
    if (event.call == FileCall::write && event.offset == 0) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    return FileFate{};
  });
  for (const char* place : {"/var/tmp", "/dev/shm"}) {
    const std::string path = fmt::format("{}/megalith-large-write-{}", place, ::getpid());
    for (const int64_t bytes :
         {int64_t{0}, int64_t{1}, int64_t{4096}, write_size - 1, write_size, write_size + 1, 10 * write_size + 12345}) {
      File file(path, File::Use::create);
      const std::string expected = written(file, noise(bytes));
      EXPECT_TRUE(read_file(path) == expected) << bytes << " bytes in " << place;
      file.write(3, "abc", 3);  // through the cache again, wherever it begins
      file.sync();
      discard(path);
    }
  }
}

TEST(LargeWrite, an_error_is_told_once_and_nothing_goes_on_without_it) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/file", text = noise(12 * write_size);
  for (const int64_t fails : {int64_t{0}, 2 * write_size, 9 * write_size, 11 * write_size}) {
    File file(path, File::Use::create);
    const FileHook hook([&](const FileEvent& event) {
      return event.call == FileCall::write && event.offset == fails ? FileFate{ENOSPC, 0} : FileFate{};
    });
    const std::string message = message_of([&] {
      DirectMemory memory(4 * write_size);
      LargeWrite large(file, memory);
      large.append(text.data(), 12 * write_size);
      large.finish();
    });
    EXPECT_NE(message.find("No space left"), std::string::npos) << message;
    discard(path);
  }
}

}  // namespace
}  // namespace megalith
