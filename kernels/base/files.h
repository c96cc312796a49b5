// The one door to the operating system's files. What the project opens, maps, writes, flushes, renames, locks or
// removes goes through here, so that a test sees every call in its order and can have any of them fail (FileHook, at
// the end). Looking (is it there, how large is it, what does a folder hold) is left to std::filesystem.
//
// Errors name the path, the numbers, what the system says and a remedy. Every folder may include this file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <system_error>

#include "kernels/base/check.h"

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

// A file mapped read-only into memory for the life of the object. Where it shrinks meanwhile, or its disk fails, the
// system kills whoever reads the bytes, unless by read() or in reading(): those throw Damage, or Error.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path, File::Use use = File::Use::read);  // refuses one that is empty
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& path() const { return path_; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }

  void read(int64_t offset, void* out, int64_t bytes) const;  // exactly so many
  // Calls work(), which reads bytes() and is left by a jump where it cannot: at a read of them it owns nothing.
  template <class Work>
  void reading(const Work& work) const {
    guarded([](const void* w) { (*static_cast<const Work*>(w))(); }, &work);
  }

 private:
  void guarded(void (*work)(const void*), const void* argument) const;

  std::string path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// Memory that is written to files past the system's cache: in huge pages where the system has them, of which a disk
// takes up to twice as many bytes a second. To be used for one file after another, since the system takes longer to
// hand it over than it takes to fill it.
class DirectMemory {
 public:
  explicit DirectMemory(int64_t bytes);
  ~DirectMemory();
  DirectMemory(const DirectMemory&) = delete;
  DirectMemory& operator=(const DirectMemory&) = delete;

  char* data() const { return data_; }  // a multiple of File::direct_block
  int64_t bytes() const { return bytes_; }

 private:
  int64_t bytes_;
  char* data_;
};

// A new file of zeros, mapped for the life of the object into memory that other processes of this user may read
// meanwhile. The file is removed with the object.
class SharedMemory {
 public:
  SharedMemory(const std::string& path, int64_t bytes);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  void* data() const { return data_; }

 private:
  std::string path_;
  void* data_ = nullptr;
  size_t size_;
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

// One process at a time in a folder: a lock of the kernel on the file FOLDER/lock, which ends with the process, however
// that ends. It holds between machines where their file system has locks, as NFS does. The file stays; while it is
// locked, it says by whom. A file of that name that says anything else is another's and stays as it is.
class FolderLock {
 public:
  // Errors: another process has it, with the folder, its host and process id; the file is no lock; it cannot be
  // written. `remedy` ends the first two.
  FolderLock(const std::string& folder, const std::string& remedy);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  // Why this file system cannot lock, and so nothing keeps others out; else empty.
  const std::string& absent() const { return absent_; }
  // Whether the folder has this lock still: who removes it lets another in.
  bool holds() const { return file_.is_at_its_path(); }

 private:
  bool is_lock() const;  // it is empty, or says what a lock does

  File file_;
  std::string absent_;
};

// For tests. While one lives, `decide` is asked before each call of this process to the system, by one thread at a
// time, and may not throw or call anything here. It is the only state here that belongs to no object: one at a time,
// installed and removed while no other thread has files.
enum class FileCall { open, create, reserve, write, resize, sync, rename, sync_folder, make_folder, remove, lock };

struct FileEvent {
  FileCall call;
  std::string path;
  int64_t bytes = 0;           // to write or reserve; of a resize, the new size
  std::string to = {};         // of a rename
  int64_t offset = 0;          // of a write
  const void* data = nullptr;  // what it writes, during the call
  bool with_contents = false;  // a removal takes a folder with all that is in it
};

struct FileFate {
  int error = 0;                                        // the errno that the call fails with; 0: it is made
  int64_t bytes = std::numeric_limits<int64_t>::max();  // a write first writes this many, and is short or fails then
};

class FileHook {
 public:
  using Decide = std::function<FileFate(const FileEvent&)>;
  explicit FileHook(Decide decide);
  ~FileHook();
  FileHook(const FileHook&) = delete;
  FileHook& operator=(const FileHook&) = delete;

 private:
  Decide decide_;
};

}  // namespace megalith

// CHECK for what a file must be.
#define CHECK_INTACT(condition, ...)                                                            \
  do {                                                                                          \
    if (!(condition)) throw ::megalith::Damage(__FILE__, __LINE__, ::fmt::format(__VA_ARGS__)); \
  } while (false)
