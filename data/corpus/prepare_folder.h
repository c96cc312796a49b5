// OUT and, inside it, OUT/prepare.partial, where everything is made, with the journal to continue from:
//
//   made_of.json    what is prepared and how; another prepare does not continue it
//   position.json   how much of the token files is complete on the disk; replaced now and then
//   publish.json    the names that go to OUT, once all are complete; then only moving is left
//   prepared.json   what was prepared and how, with the files' largest ids; goes to OUT with the rest
//
// The folder is locked while a prepare works in it. Nothing in OUT is overwritten. After an error, unless a restart can
// continue, OUT is left as it was found.
#pragma once

#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "data/conversations/chat_template.h"
#include "kernels/system/files.h"
#include "kernels/system/folder_lock.h"

namespace megalith {

class PrepareFolder {
 public:
  static constexpr const char *made_of = "made_of.json", *position = "position.json", *publishing = "publish.json";
  static constexpr const char* chat_template = chat_template_name;  // in OUT, of conversations (chat_template.h)

  // Makes the folders. Errors: OUT cannot be made, another prepare works there, prepare.partial holds unknown files.
  explicit PrepareFolder(const std::string& out);
  ~PrepareFolder();
  PrepareFolder(const PrepareFolder&) = delete;
  PrepareFolder& operator=(const PrepareFolder&) = delete;

  std::string path(const std::string& name) const { return (partial_ / name).string(); }

  // Returns what `from` makes of an earlier prepare's note. Error: the note is damaged, or `from` refuses it.
  template <class T>
  std::optional<T> noted(const std::string& name, T (*from)(const nlohmann::json& json)) const {
    std::optional<T> value;
    read_note(name, [&](const nlohmann::json& json) { value = from(json); });
    return value;
  }
  void note(const std::string& name, const nlohmann::json& value);
  void forget(const std::string& name);
  // Keeps the folder for a restart, whatever happens.
  void keep() { keeps_ = true; }

  // Error if OUT has a file or folder that a prepare makes.
  void refuse_existing() const;
  // Moves those of the names that are not in OUT yet there, in order, and ends the work. Names are those of token files
  // and of the tokenizer. Returns why prepare.partial could not be removed, for an equal prepare to try again; "" if it
  // was.
  std::string publish(const std::vector<std::string>& names);

 private:
  void read_note(const std::string& name, const std::function<void(const nlohmann::json& json)>& read) const;
  void remove_partial();
  void clean_out() const;

  std::filesystem::path out_, partial_;
  std::vector<std::filesystem::path> made_;  // OUT and its parents that did not exist
  std::optional<FolderLock> lock_;
  bool keeps_ = false, published_ = false;
};

}  // namespace megalith
