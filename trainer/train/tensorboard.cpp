#include "trainer/train/tensorboard.h"

#include <unistd.h>

#include <nlohmann/json.hpp>
#include <set>

#include "trainer/log/log.h"
#include "trainer/train/event_bytes.h"

namespace megalith {

namespace {

// TensorBoard knows its files by ".tfevents." and reads them in the order of their names. Starts within a second are
// told apart by their steps.
std::string new_file(const std::string& folder, int64_t completed, double unix_time) {
  make_folders(folder, "it is for run.tensorboard = true; choose another run.output");
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  return fmt::format("{}/events.out.tfevents.{:010}.{:012}.{}.{}", folder, static_cast<int64_t>(unix_time), completed,
                     host, ::getpid());
}

void add_numbers(std::vector<std::pair<std::string, double>>& values, const std::string& tag,
                 const nlohmann::ordered_json& value) {
  if (value.is_number()) values.emplace_back(tag, value.get<double>());
  if (!value.is_object()) return;
  for (const auto& [name, part] : value.items()) add_numbers(values, tag + "/" + name, part);
}

}  // namespace

EventFile::EventFile(const std::string& folder, int64_t completed, double unix_time)
    : file_(new_file(folder, completed, unix_time), false,
            [](const std::string& trouble) { log_warning("{}", trouble); }) {
  file_.append(event_record(version_event(unix_time)) + event_record(start_event(unix_time, completed + 1)));
}

void EventFile::append(const nlohmann::ordered_json& line) {
  static const std::set<std::string> time = {"step", "tokens_so_far", "unix_time", "seconds_since_start"};
  std::vector<std::pair<std::string, double>> values;
  for (const auto& [key, value] : line.items())
    if (!time.contains(key)) add_numbers(values, key, value);
  file_.append(event_record(scalars_event(line.at("unix_time").get<double>(), line.at("step").get<int64_t>(), values)));
}

}  // namespace megalith
