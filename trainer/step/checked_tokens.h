// Remembers token files whose ids were all found to be below a vocabulary, so that the next start of a run need not
// read hundreds of gigabytes again: a JSON file in the run folder. A file with another size or time counts as another
// file.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace megalith {

class CheckedTokens {
 public:
  CheckedTokens() = default;
  // Reads the file of an earlier start, if it exists and is valid.
  explicit CheckedTokens(const std::string& path);

  // Returns whether all ids of these token files are known to be below `vocab`.
  bool below(const std::vector<std::string>& files, int64_t vocab) const;
  void add(const std::vector<std::string>& files, int64_t vocab);
  void write(const std::string& path) const;  // unless the file is up to date

 private:
  struct File {
    int64_t bytes = 0, time = 0;  // by the file system
    int64_t below = 0;
  };
  static File look_at(const std::string& file);  // bytes < 0: the file does not exist

  std::map<std::string, File> files_;
};

}  // namespace megalith
