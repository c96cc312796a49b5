// One process at a time in a folder: a lock of the kernel on the file FOLDER/lock, which ends with the process, however
// that ends. It holds between machines where their file system has locks, as NFS does. The file stays; while it is
// locked, it says by whom.
#pragma once

#include <string>

namespace megalith {

class FolderLock {
 public:
  // Errors: another process has it, with the folder, its host and process id; the file cannot be written. `remedy`
  // ends both messages.
  FolderLock(const std::string& folder, const std::string& remedy);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  // Why this file system cannot lock, and so nothing keeps others out; else empty.
  const std::string& absent() const { return absent_; }

 private:
  int fd_ = -1;
  std::string absent_;
};

}  // namespace megalith
