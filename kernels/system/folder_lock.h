// A folder that one process at a time works in.
#pragma once

#include <string>

#include "kernels/system/files.h"

namespace megalith {

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

}  // namespace megalith
