#pragma once

#include <string>

#include "kernels/system/files.h"

namespace megalith {

// Lets one process at a time work in a folder: a kernel lock on FOLDER/lock, released when the process ends in any way.
// It works between machines if their file system has locks, as NFS does. The file stays, and names the holder while
// locked. A file of that name with other contents is left alone.
class FolderLock {
 public:
  // Errors: another process holds it (with the folder, its host and process id); the file is not a lock; it cannot be
  // written. `remedy` ends the first two messages.
  FolderLock(const std::string& folder, const std::string& remedy);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  // Returns why this file system cannot lock, so that other processes are not kept out; else "".
  const std::string& absent() const { return absent_; }
  // Returns whether the lock file is still in place: a process that removes it lets others in.
  bool holds() const { return file_.is_at_its_path(); }

 private:
  bool is_lock() const;  // empty, or written by a lock

  File file_;
  std::string absent_;
};

}  // namespace megalith
