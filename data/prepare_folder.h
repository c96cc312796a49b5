// OUT and, inside it, OUT/prepare.partial, where everything is made, and the journal there, by which a prepare goes on
// after its death.
//
//   made_of.json    what is prepared and how; a prepare of anything else does not go on with it
//   position.json   how far the token files there are complete on the disk; replaced now and then
//   publish.json    the names that go to OUT, once all of them are whole; then only moving is left
//   prepared.json   what was prepared and how, and the largest ids of its files, which goes to OUT with the rest
//
// The folder is locked while a prepare works in it. Nothing in OUT is overwritten. After an error, and unless a restart
// can use what was made, OUT is left as it was found.
#pragma once

#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "kernels/system/files.h"
#include "kernels/system/folder_lock.h"

namespace megalith {

class PrepareFolder {
 public:
  static constexpr const char *made_of = "made_of.json", *position = "position.json", *publishing = "publish.json";
  static constexpr const char* prepared = "prepared.json";  // in OUT, with what was made

  // Makes the folders. Errors: OUT that cannot be made, another prepare at work there, files in prepare.partial that
  // none of ours made.
  explicit PrepareFolder(const std::string& out);
  ~PrepareFolder();
  PrepareFolder(const PrepareFolder&) = delete;
  PrepareFolder& operator=(const PrepareFolder&) = delete;

  std::string path(const std::string& name) const { return (partial_ / name).string(); }

  // What `from` makes of what an earlier prepare, which was killed, has noted under a name. Error: the note is damaged,
  // as nlohmann's exceptions say or one of `from`.
  template <class T>
  std::optional<T> noted(const std::string& name, T (*from)(const nlohmann::json& json)) const {
    std::optional<T> value;
    read_note(name, [&](const nlohmann::json& json) { value = from(json); });
    return value;
  }
  void note(const std::string& name, const nlohmann::json& value);
  void forget(const std::string& name);
  // From now on it is left for a restart, whatever happens.
  void keep() { keeps_ = true; }

  // OUT/prepared.json of a prepare that has ended there; none: there is none, or a prepare has not ended since.
  static std::optional<nlohmann::json> ended(const std::string& out);

  // An Error if OUT has a file or folder that a prepare makes.
  void refuse_existing() const;
  // Moves those of the names that are not there yet into OUT, in their order, and ends the work. Names are those of
  // token files and of the tokenizer. Returns why prepare.partial, which is needless then, could not be removed; empty:
  // it is gone. A prepare of the same into the same OUT tries again.
  std::string publish(const std::vector<std::string>& names);

 private:
  void read_note(const std::string& name, const std::function<void(const nlohmann::json& json)>& read) const;
  void remove_partial();
  void clean_out() const;

  std::filesystem::path out_, partial_;
  std::vector<std::filesystem::path> made_;  // OUT and what is above it, as far as it was not there
  std::optional<FolderLock> lock_;
  bool keeps_ = false, published_ = false;
};

}  // namespace megalith
