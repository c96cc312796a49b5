// Token files whose ids were all read once and found to be below a vocabulary, so that the next start of a run need not
// read hundreds of gigabytes again: a JSON file in the run folder. A file that has another size or time since is
// another.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace megalith {

class CheckedTokens {
 public:
  CheckedTokens() = default;
  // Reads the file of an earlier start, where there is one that is understood.
  explicit CheckedTokens(const std::string& path);

  // Returns whether all ids of these token files are known to be below `vocab`.
  bool below(const std::vector<std::string>& files, int64_t vocab) const;
  void add(const std::vector<std::string>& files, int64_t vocab);
  void write(const std::string& path) const;  // unless the file says the same already

 private:
  struct File {
    int64_t bytes = 0, time = 0;  // as the file system has it
    int64_t below = 0;
  };
  static File look_at(const std::string& file);  // bytes < 0: it is not there

  std::map<std::string, File> files_;
};

}  // namespace megalith
