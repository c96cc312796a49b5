// The one door to the operating system's files, with what stands on it beside it: mapped_file.h, folder_lock.h and
// large_write.h. Everything that the project opens, maps, writes, flushes, renames, locks or removes goes through here,
// so that a test sees every call in its order and can have any of them fail (file_calls.h). Looking (is it there, how
// large is it, what does a folder hold) is left to std::filesystem.
//
// Errors name the path, the numbers, what the system says and a remedy. Every folder may include this file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <system_error>

#include "kernels/system/check.h"

namespace megalith {

// The Error that a file itself is at fault for: it is not there, it ends too early, its checksum is wrong. Whoever
// looks again, from anywhere, meets it again. What merely keeps this process from looking (rights, open files, memory,
// a disk that does not answer) is a plain Error and says nothing about the file.
class Damage : public Error {
 public:
  using Error::Error;
};

// Whether this error, met when a file was examined, means that no such file exists.
inline bool means_absent(std::error_code error) {
  return error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory ||
         error == std::errc::is_a_directory;
}

// "s3" of s3://bucket/run; "" of a path. The system would make folders of such a name, here and nowhere else.
std::string_view scheme_of(std::string_view name);
// Error of a name with a scheme. Making a file or a folder checks it.
void check_is_path(const std::string& name);

// An open file, closed with the object.
class File {
 public:
  enum class Use {
    read,    // one that exists, else Damage
    create,  // a new one
    append,  // one that exists or a new one; not through a link, whose end may be another's
    stream,  // one that exists, plain or a pipe, or "-", the standard input: read from front to back, by read_next
    // These are for folders where everybody may write. The first makes a file that no other user may open; the second
    // opens one that is no link and belongs to this user, and any other is an Error.
    create_own,
    read_own,
  };
  File(std::string path, Use use);  // refuses what is no plain file
  static File in_memory();          // without a name on any disk; path() opens it as long as it lives
  ~File();
  File(File&& other) noexcept;
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  const std::string& path() const { return path_; }
  int64_t size() const;
  // Exactly `bytes` bytes from `offset`; Damage if the file ends before that.
  void read(int64_t offset, void* out, int64_t bytes) const;
  // Of a stream: as many of the next bytes as are there, `most` at most; 0 at its end.
  int64_t read_next(void* out, int64_t most);
  // Of a stream of a plain file: where it reads next.
  void seek(int64_t offset);
  void write(int64_t offset, const void* data, int64_t bytes);
  // Whether writes from here on go past the system's cache, where the file's system can do that. Offset, bytes and
  // address of each are then multiples of `direct_block`.
  void write_directly(bool directly);
  static constexpr int64_t direct_block = 4096;
  void append(std::string_view bytes) { write(size(), bytes.data(), static_cast<int64_t>(bytes.size())); }
  template <class T>
  void append(std::span<const T> values) {
    append({reinterpret_cast<const char*>(values.data()), values.size_bytes()});
  }
  void resize(int64_t bytes);  // what is beyond is lost
  // Reserves this size, so that a full disk is known before the first byte is written. Does nothing on file
  // systems that cannot.
  void reserve(int64_t bytes);
  void sync();  // what was written is on the disk
  // Whether path() names this file still, which others may have removed or replaced.
  bool is_at_its_path() const;

 protected:
  void close();

 private:
  friend class FolderLock;
  friend class MappedFile;
  friend class SharedMemory;
  File() = default;

  std::string path_;
  int fd_ = -1;
};

struct Publishing {
  bool replace = false;            // replaces an existing plain file; else, and of another kind, it is an Error
  bool durable = true;             // file and name are on the disk when publish() returns; false only with `replace`
  std::string aside = ".partial";  // what the name ends in until then
};

// A new file beside `path`, which gets its name in publish() and is removed by the destructor otherwise. Nothing exists
// under `path` before it is whole.
class NewFile : public File {
 public:
  explicit NewFile(std::string path, const Publishing& how = {});  // replaces what an earlier death left aside
  ~NewFile();
  void publish();

 private:
  std::string name_;
  Publishing how_;
  bool published_ = false;
};

std::string read_file(const std::string& path, File::Use use = File::Use::read);
// Whether a file or folder, no link, is there and belongs to this user.
bool is_own(const std::string& path);
void write_file(const std::string& path, std::string_view text, const Publishing& how = {});

// Makes a folder in one that is there, durably. False if it was there, and then nothing is flushed.
bool make_folder(const std::string& path, const std::string& remedy);
// The same with those above it. The names of those that were there are flushed too, as far as this process may: whoever
// made them may have died before.
bool make_folders(const std::string& path, const std::string& remedy);
// Renames a file or a folder, durably. `to` must not exist. On Error it has its old name.
void move_file(const std::string& from, const std::string& to);
// Makes the names in a folder durable, as File::sync does bytes. No error where the file system cannot sync folders.
void sync_folder(const std::string& folder);
void remove_all(const std::string& path);        // whether or not it exists
void discard(const std::string& path) noexcept;  // a file or an empty folder, if that can be done

}  // namespace megalith

// CHECK for what a file must be.
#define CHECK_INTACT(condition, ...)                                                            \
  do {                                                                                          \
    if (!(condition)) throw ::megalith::Damage(__FILE__, __LINE__, ::fmt::format(__VA_ARGS__)); \
  } while (false)
