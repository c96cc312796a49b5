#include "trainer/machine/available_memory.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <optional>
#include <sstream>
#include <vector>

#include "trainer/machine/machine.h"

namespace megalith {

namespace {

struct GroupFolders {
  std::string mount, path;  // "/sys/fs/cgroup/memory", and "/docker/1f" below it
  bool is_v2;
};

std::optional<int64_t> number_in(const std::string& path) {
  std::string word;
  if (!(std::ifstream(path) >> word)) return std::nullopt;
  int64_t number = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  return error == std::errc{} ? std::optional(number) : std::nullopt;  // "max": no limit
}

// Adds up the lines "NAME NUMBER" of these names.
int64_t sum_in(const std::string& path, const std::vector<std::string>& names) {
  std::ifstream file(path);
  int64_t sum = 0;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    int64_t number = 0;
    if (words >> name >> number && std::find(names.begin(), names.end(), name) != names.end()) sum += number;
  }
  return sum;
}

bool has_item(const std::string& list, const std::string& item) {
  return ("," + list + ",").find("," + item + ",") != std::string::npos;
}

// Decodes mountinfo's \ and three octal digits, which encode white space and backslashes.
std::string without_octal(const std::string& text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); i++)
    if (text[i] == '\\' && i + 3 < text.size()) {
      plain += static_cast<char>(std::stoi(text.substr(i + 1, 3), nullptr, 8));
      i += 3;
    } else {
      plain += text[i];
    }
  return plain;
}

// Returns this process's groups in the hierarchies that may limit memory: v2's, and v1's of the memory controller.
std::vector<GroupFolders> groups_of_this_process(const std::string& root) {
  std::optional<std::string> v1, v2;
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // "4:memory:/docker/1f"
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (controllers.empty()) v2 = line.substr(second + 1);
    if (has_item(controllers, "memory")) v1 = line.substr(second + 1);
  }
  std::vector<GroupFolders> found;
  std::ifstream mounts(root + "/proc/self/mountinfo");
  for (std::string line; std::getline(mounts, line);) {
    std::string id, parent, device, mounted, at, word, type, source, options;
    std::istringstream words(line);
    words >> id >> parent >> device >> mounted >> at;
    while (words >> word && word != "-") {
    }
    words >> type >> source >> options;
    const bool is_v2 = type == "cgroup2", is_v1 = type == "cgroup" && has_item(options, "memory");
    const std::optional<std::string>& group = is_v2 ? v2 : v1;
    if (!(is_v1 || is_v2) || !group) continue;
    // A container's mount may begin with its own group; the group's path then continues from there.
    std::string path = *group, begin = without_octal(mounted);
    if (begin != "/") path = path == begin || path.starts_with(begin + "/") ? path.substr(begin.size()) : "";
    found.push_back({root + without_octal(at), path == "/" ? "" : path, is_v2});
  }
  return found;
}

}  // namespace

AvailableMemory available_memory(const std::string& root) {
  AvailableMemory available;
  available.bytes = physical_memory();
  available.bytes -=
      sum_in(root + "/proc/meminfo", {"HugePages_Total:"}) * sum_in(root + "/proc/meminfo", {"Hugepagesize:"}) * 1024;
  for (const GroupFolders& g : groups_of_this_process(root))
    for (std::string path = g.path;; path.resize(path.rfind('/'))) {
      const std::string folder = g.mount + path;
      const auto limit = number_in(folder + (g.is_v2 ? "/memory.max" : "/memory.limit_in_bytes"));
      const auto used = number_in(folder + (g.is_v2 ? "/memory.current" : "/memory.usage_in_bytes"));
      if (limit) {
        const int64_t caches = sum_in(folder + "/memory.stat",
                                      g.is_v2 ? std::vector<std::string>{"inactive_file", "active_file"}
                                              : std::vector<std::string>{"total_inactive_file", "total_active_file"});
        const int64_t left = std::max<int64_t>(0, *limit - std::max<int64_t>(0, used.value_or(0) - caches));
        if (left < available.bytes) available = {left, path.empty() ? "/" : path, *limit};
      }
      if (path.empty()) break;
    }
  return available;
}

}  // namespace megalith
