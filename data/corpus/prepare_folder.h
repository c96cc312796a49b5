// OUT and OUT/prepare.partial, in which prepare works, with the journal from which a restart continues:
//
//   made_of.json    what is prepared and how; a different prepare does not continue it
//   position.json   how much of the token files is complete on the disk; replaced periodically
//   publish.json    the names to move to OUT, once all files are complete; then only moving is left
//   prepared.json   what was prepared and how, with the files' largest ids; moved to OUT with the others
//
// A prepare locks the folder while it works there. It never overwrites a file in OUT. After an error, unless a restart
// can continue, OUT is left as it was found.
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

  // Makes the folders. Errors: OUT cannot be made, another prepare is running there, prepare.partial holds unknown
  // files.
  explicit PrepareFolder(const std::string& out);
  ~PrepareFolder();
  PrepareFolder(const PrepareFolder&) = delete;
  PrepareFolder& operator=(const PrepareFolder&) = delete;

  std::string path(const std::string& name) const { return (partial_ / name).string(); }

  // Returns from(note) for an earlier prepare's note. Error: the note is damaged, or `from` refuses it.
  template <class T>
  std::optional<T> noted(const std::string& name, T (*from)(const nlohmann::json& json)) const {
    std::optional<T> value;
    read_note(name, [&](const nlohmann::json& json) { value = from(json); });
    return value;
  }
  void note(const std::string& name, const nlohmann::json& value);
  void forget(const std::string& name);
  // Keeps the folder for a restart, also after an error.
  void keep() { keeps_ = true; }

  // Error if OUT has a file or folder that a prepare would write.
  void refuse_existing() const;
  // Moves those of the names to OUT that are not there yet, in order, and ends the work. The names are those of token
  // files and of the tokenizer. Returns why prepare.partial could not be removed, for an equal prepare to try again; ""
  // if it was.
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
