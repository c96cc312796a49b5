// The weights of a Hugging Face folder: its model.safetensors, or the files that model.safetensors.index.json lists.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoints/safetensors.h"

namespace megalith {

// Returns the names of a folder's files that look like weights of any format, sorted.
std::vector<std::string> weight_files(const std::string& folder);

// Returns whether the folder has safetensors weights.
bool has_safetensors(const std::string& folder);

// Returns the file of each tensor, from the text of an index; `path` names the index in messages. Errors: not a JSON
// object, no weight_map, a file outside the folder.
std::map<std::string, std::string> safetensors_index(std::string_view text, const std::string& path);

// Opens all files and checks their headers. Errors: a folder without weights, naming its files in other formats; a
// missing file that the index lists; a tensor that is not where the index says, or not in the index.
class SafeTensorsFolder {
 public:
  explicit SafeTensorsFolder(const std::string& folder);

  const std::string& path() const { return path_; }  // for messages: the file, or the index
  const std::map<std::string, const SafeTensors*>& files() const { return file_of_; }  // by tensor
  const SafeTensors::Entry& entry(const std::string& name) const { return file(name).entry(name); }
  void read(const std::string& name, int64_t first, int64_t stride, int64_t count, float* out) const {
    file(name).read(name, first, stride, count, out);
  }

 private:
  void open(const std::string& path);
  void open_listed(const std::string& folder);
  const SafeTensors& file(const std::string& name) const;

  std::string path_;
  std::vector<std::unique_ptr<SafeTensors>> opened_;
  std::map<std::string, const SafeTensors*> file_of_;
};

}  // namespace megalith
