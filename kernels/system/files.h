// The interface to the operating system's files, with mapped_file.h, folder_lock.h and large_write.h. The project
// opens, maps, writes, flushes, renames, locks and removes files through these only, so that a test sees every call in
// order and can make any fail (file_calls.h). Queries (existence, size, listing) use std::filesystem directly. Errors
// name the path, the numbers, the system's reason and a remedy. Every folder may include this file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <system_error>

#include "kernels/system/check.h"

namespace megalith {

// An Error that is the file's own fault, and so would recur on any machine: the file is absent, too short, or has a
// wrong checksum. An obstacle of this process (permissions, open files, memory, an unresponsive disk) is a plain Error.
class CorruptFile : public Error {
 public:
  using Error::Error;
};

// Returns whether this error means that no such file exists.
inline bool means_absent(std::error_code error) {
  return error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory ||
         error == std::errc::is_a_directory || error == std::errc::too_many_symbolic_link_levels;
}

// Returns "s3" for s3://bucket/run, and "" for a path. The system would create local folders of such a name.
std::string_view scheme_of(std::string_view name);
// Throws Error for a name with a scheme. Creating a file or a folder calls it.
void check_is_path(const std::string& name);

// An open file, closed with the object.
class File {
 public:
  enum class Use {
    read,    // an existing file, else CorruptFile
    create,  // a new one
    append,  // an existing or new file; refuses a link, whose target may belong to another user
    stream,  // an existing file, plain or a pipe, or "-", the standard input: read in sequence by read_next
    // For folders that all users may write to: create_own makes a file that no other user may open; read_own refuses
    // links and files of other users.
    create_own,
    read_own,
  };
  File(std::string path, Use use);  // refuses all but plain files
  static File in_memory();          // has no name on any disk; path() opens it during its lifetime
  ~File();
  File(File&& other) noexcept;
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  const std::string& path() const { return path_; }
  int64_t size() const;
  // Reads exactly `bytes` bytes from `offset`; CorruptFile if the file ends before that.
  void read(int64_t offset, void* out, int64_t bytes) const;
  // Reads a stream's next available bytes, at most `most`; returns 0 at its end.
  int64_t read_next(void* out, int64_t most);
  // Sets where a stream of a plain file reads next.
  void seek(int64_t offset);
  void write(int64_t offset, const void* data, int64_t bytes);
  // Sets whether later writes bypass the page cache, if the file system can. Their offset, size and address must then
  // be multiples of `direct_block`.
  void write_directly(bool directly);
  static constexpr int64_t direct_block = 4096;
  void append(std::string_view bytes) { write(size(), bytes.data(), static_cast<int64_t>(bytes.size())); }
  template <class T>
  void append(std::span<const T> values) {
    append({reinterpret_cast<const char*>(values.data()), values.size_bytes()});
  }
  void resize(int64_t bytes);  // truncates or extends
  // Reserves this size, to detect a full disk before the first write. Does nothing on file systems that cannot.
  void reserve(int64_t bytes);
  void sync();  // flushes to the disk
  // Returns whether path() still names this file; others may have removed or replaced it.
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
  bool replace = false;            // replaces an existing plain file; anything else that exists is an Error
  bool durable = true;             // publish() flushes file and name to the disk; false only with `replace`
  std::string aside = ".partial";  // the suffix of the name until then
};

// A new file in the folder of `path`, renamed to it by publish() or removed by the destructor.
class NewFile : public File {
 public:
  explicit NewFile(std::string path, const Publishing& how = {});  // removes what an earlier crash left there
  ~NewFile();
  void publish();

 private:
  std::string name_;
  Publishing how_;
  bool published_ = false;
};

std::string read_file(const std::string& path, File::Use use = File::Use::read);
// Returns whether a file or folder, not a link, exists and belongs to this user.
bool is_own(const std::string& path);
void write_file(const std::string& path, std::string_view text, const Publishing& how = {});

// Throws Error if any file, folder or link has this name, also a link without a target.
void check_nothing_at(const std::string& path, const std::string& remedy);
// Makes a folder in an existing one, durably. Returns false if it exists, and then flushes nothing.
bool make_folder(const std::string& path, const std::string& remedy);
// As make_folder, with the parents. Flushes existing names too, as far as permitted: their creator may have crashed.
bool make_folders(const std::string& path, const std::string& remedy);
// Renames a file or a folder, durably. `to` must not exist. After an Error it has its old name.
void move_file(const std::string& from, const std::string& to);
// Makes the names in a folder durable, as File::sync does bytes. No error if the file system cannot sync folders.
void sync_folder(const std::string& folder);
void remove_all(const std::string& path);        // succeeds if the path does not exist
void discard(const std::string& path) noexcept;  // a file or an empty folder, if possible

// Opens the null device as each of the descriptors 0 to 2 that is closed. Otherwise the first file to be opened would
// get its number, and would be read as standard input or written as standard output.
void open_standard_descriptors();

}  // namespace megalith

// CHECK for properties of a file itself.
#define CHECK_INTACT(condition, ...)                                                                 \
  do {                                                                                               \
    if (!(condition)) throw ::megalith::CorruptFile(__FILE__, __LINE__, ::fmt::format(__VA_ARGS__)); \
  } while (false)
