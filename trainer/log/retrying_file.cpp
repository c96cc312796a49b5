#include "trainer/log/retrying_file.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "kernels/system/counted.h"

namespace megalith {

RetryingFile::RetryingFile(const std::string& path, bool lines, Warn warn)
    : file_(std::in_place, path, File::Use::append), warn_(std::move(warn)), end_(file_->size()) {
  if (!lines || end_ == 0) return;
  char last = '\n';
  file_->read(end_ - 1, &last, 1);
  if (last != '\n') kept_ = "\n";
}

RetryingFile::~RetryingFile() {
  if (!failing_) return;
  write();
  if (kept_lines_ > 0)
    warn_(fmt::format("{} of {} could not be written and are lost", counted(kept_lines_ + lost_lines_, "line"),
                      file_->path()));
}

void RetryingFile::append(const std::string& text, int64_t count) {
  const auto is_full = [&] { return failing_ && kept_.size() + text.size() > most_kept; };
  if (is_full()) write();
  if (is_full()) {
    lost_lines_ += count;
    return;
  }
  kept_ += text;
  kept_lines_ += count;
  write();
}

std::string RetryingFile::sync() {
  std::string warning = file_->is_at_its_path() ? "" : reopen();
  write();
  if (failing_) return warning;
  try {
    file_->sync();
  } catch (const Error& e) {
    fail(e.what());
  }
  return warning;
}

std::string RetryingFile::reopen() try {
  const std::string path = file_->path();
  make_folders(std::filesystem::path(path).parent_path().string(), "may this user write there?");
  File again(path, File::Use::append);
  const bool replaced = again.size() > 0;
  std::string lost;
  try {
    std::string part;
    for (int64_t at = 0; !replaced && at < end_; at += static_cast<int64_t>(part.size())) {
      part.resize(static_cast<size_t>(std::min<int64_t>(end_ - at, 1 << 20)));
      file_->read(at, part.data(), static_cast<int64_t>(part.size()));
      again.write(at, part.data(), static_cast<int64_t>(part.size()));
    }
  } catch (const Error& e) {
    lost = fmt::format(", but not all of its content: {}", e.what());
  }
  file_.emplace(std::move(again));
  end_ = file_->size();
  half_left_ = false;
  if (replaced)
    return fmt::format(
        "{} was replaced by another file during this run; lines written since then are lost, and new ones are appended "
        "to that file",
        path);
  return fmt::format("{} was removed during this run, and was created again{}", path,
                     lost.empty() ? " with its content" : lost);
} catch (const Error& e) {
  return fmt::format("{} was removed during this run, and the next save tries to open it again: {}", file_->path(),
                     e.what());
}

void RetryingFile::write() {
  try {
    if (!half_left_) end_ = std::max(end_, file_->size());
    if (!kept_.empty()) file_->write(end_, kept_.data(), static_cast<int64_t>(kept_.size()));
    if (failing_) file_->sync();  // a full disk may fail only here
  } catch (const Error& e) {
    return fail(e.what());
  }
  half_left_ = false;
  end_ += static_cast<int64_t>(kept_.size());
  kept_.clear();
  const int64_t waited = std::exchange(kept_lines_, 0);
  if (!std::exchange(failing_, false)) return;
  const int64_t lost = std::exchange(lost_lines_, 0);
  warn_(fmt::format("writing to {} works again: {} written, {} lost", file_->path(), counted(waited, "buffered line"),
                    lost));
}

void RetryingFile::fail(const std::string& why) {
  // Remove a half line, which takes no space. If that fails too, the next write overwrites it.
  half_left_ = true;
  try {
    if (file_->size() > end_) file_->resize(end_);
    half_left_ = false;
  } catch (const Error&) {
  }
  if (failing_) return;
  failing_ = true;
  warn_(fmt::format("{}. The run continues: up to {} MiB of lines stay in memory until they can be written", why,
                    most_kept >> 20));
}

}  // namespace megalith
