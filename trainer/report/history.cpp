#include "trainer/report/history.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "configs/config.h"
#include "kernels/system/files.h"
#include "kernels/system/json.h"
#include "trainer/session/last_word.h"

namespace megalith {

namespace {

using nlohmann::json;

constexpr double largest_number = 1e100;             // keeps sums and scales of plots finite
constexpr int64_t largest_count = int64_t{1} << 53;  // exact in a double
constexpr double last_second = 253402300799;         // end of the year 9999, seconds since 1970
constexpr size_t most_kinds_of_time = 100, most_sets = 100;

// Returns NaN if the key is missing or null, which means a value that is not finite.
double number(const json& object, const char* key, double least = -largest_number) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? no_number : real_number(*found, least, largest_number);
}

double at_least_0(const json& object, const char* key, double otherwise) {
  const double found = number(object, key, 0);
  return found == found ? found : otherwise;
}

int64_t count_at(const json& object, const char* key, int64_t otherwise) {
  return whole_number(object.value(key, json(otherwise)), 0, largest_count);
}

void append(Abscissae& course, double step, double tokens, double seconds) {
  course.step.push_back(step);
  course.tokens.push_back(tokens);
  course.hours.push_back(seconds / 3600);
}

class Reader {
 public:
  explicit Reader(History& history) : h_(history) {}

  void line(const json& object) {
    if (object.contains("start")) return start(object.at("start"));
    const auto step = static_cast<double>(whole_number(object.at("step"), 0, largest_count));
    if (object.contains("validation_loss")) return evaluation(object, step);
    if (object.contains("texts")) return texts(object);
    if (const auto after = object.find("time_after"); after != object.end()) return clock(object), add_time(*after);
    this->step(object, step);
  }

 private:
  void start(const json& start) {
    h_.layout = start.value("layout", h_.layout);
    h_.device = start.value("device", h_.device);
    h_.compute = start.value("compute", h_.compute);
    h_.host = start.value("host", h_.host);
    h_.ranks = count_at(start, "ranks", h_.ranks);
    h_.parameters = count_at(start, "parameters", h_.parameters);
    h_.planned_steps = count_at(start, "steps", h_.planned_steps);
    for (const auto& [key, text] : {std::pair("version", &h_.version),
                                    {"command", &h_.command},
                                    {"tokenizer", &h_.tokenizer},
                                    {"tokenizer_name", &h_.tokenizer_name},
                                    {"held_out", &h_.validation}})
      *text = start.value(key, *text);
    if (const auto data = start.find("data"); data != start.end()) {
      h_.data.clear();
      for (const json& source : as_list(*data))
        h_.data.push_back(
            {as_object(source).value("name", ""), source.value("content", ""), count_at(source, "samples", 0)});
    }
    if (const std::string from = start.value("resumed_from", ""); !from.empty())
      h_.origins.push_back({from, start.value("other_decay", ""), count_at(start, "completed_steps", 0)});
    time_of_day(start);
    planned(start);
    tokens_a_step_ = at_least_0(start, "tokens", tokens_a_step_);
    seconds_before_ = seconds_;
    if (!h_.loss.empty()) h_.resumed.push_back(h_.loss.size());
  }

  // Older files have this in each step.
  void planned(const json& object) {
    const auto found = object.find("memory_bytes");
    if (found == object.end()) return;
    h_.planned_memory.clear();
    // In the plan's order; unknown names come last.
    std::vector<std::string> names = {"parameters", "optimizer", "gradients", "saved", "scratch", "communication"};
    for (const auto& [name, bytes] : as_object(*found).items())
      if (std::ranges::find(names, name) == names.end()) names.push_back(name);
    for (const std::string& name : names)
      if (found->contains(name)) h_.planned_memory.emplace_back(name, real_number(found->at(name), 0, largest_number));
  }

  void time_of_day(const json& object) {
    const double now = number(object, "unix_time", 0);
    if (!(now <= last_second)) return;
    if (!(h_.began <= now)) h_.began = now;
    h_.last = now;
  }

  void clock(const json& object) {
    time_of_day(object);
    const double since = number(object, "seconds_since_start", 0);
    seconds_ = since == since ? seconds_before_ + since : seconds_ + at_least_0(object, "step_seconds", 0);
  }

  void step(const json& object, double step) {
    clock(object);
    tokens_a_step_ = at_least_0(object, "tokens", tokens_a_step_);
    tokens_ = at_least_0(object, "tokens_so_far", tokens_ + tokens_a_step_);
    h_.ranks = count_at(object, "ranks", h_.ranks);
    if (const auto samples = object.find("samples"); samples != object.end())
      h_.samples = whole_number(as_list(*samples).at(1), 0, largest_count);
    planned(object);
    append(h_.steps, step, tokens_, seconds_);
    h_.loss.push_back(number(object, "loss"));
    h_.norm.push_back(number(object, "grad_norm"));
    h_.learning_rate.push_back(number(object, "learning_rate"));
    h_.tokens_per_second.push_back(number(object, "tokens_per_second"));
    h_.mfu.push_back(number(object, "mfu"));
    if (object.contains("skipped")) h_.skipped.push_back(h_.loss.size() - 1);
    if (const auto time = object.find("time"); time != object.end()) {
      h_.timed_steps.push_back(step);
      add_time(*time);
    }
    if (const auto memory = object.find("memory_measured"); memory != object.end())
      for (const auto& [name, bytes] : as_object(*memory).items())
        measured(name, real_number(bytes, 0, largest_number));
  }

  // Adds a breakdown to that of the last step with one.
  void add_time(const json& breakdown) {
    if (h_.timed_steps.empty()) return;
    for (const auto& [name, seconds] : as_object(breakdown).items()) {
      std::vector<double>& all = h_.time[name];
      all.resize(h_.timed_steps.size());
      all.back() += real_number(seconds, 0, largest_number);
    }
    CHECK(h_.time.size() <= most_kinds_of_time, "the breakdown of the time has {} parts so far; at most {} are read",
          h_.time.size(), most_kinds_of_time);
  }

  void measured(const std::string& name, double bytes) {
    const auto known = std::ranges::find(h_.measured_memory, name, &std::pair<std::string, double>::first);
    if (known == h_.measured_memory.end())
      h_.measured_memory.emplace_back(name, bytes);
    else
      known->second = std::max(known->second, bytes);
  }

  void evaluation(const json& object, double step) {
    clock(object);
    append(h_.evaluations, step, at_least_0(object, "tokens_so_far", tokens_), seconds_);
    h_.validation_loss.push_back(number(object, "validation_loss"));
    h_.bits_per_byte.push_back(number(object, "bits_per_byte"));
    if (const auto sets = object.find("sets"); sets != object.end())
      for (const auto& [name, result] : as_object(*sets).items()) {
        std::vector<double>& losses = h_.set_losses[name];
        losses.resize(h_.validation_loss.size(), no_number);
        losses.back() = number(as_object(result), "loss");
      }
    CHECK(h_.set_losses.size() <= most_sets, "the evaluations have {} sets so far; at most {} are read",
          h_.set_losses.size(), most_sets);
  }

  void texts(const json& object) {
    clock(object);
    for (const json& text : as_list(object.at("texts")))
      h_.texts.push_back({whole_number(object.at("step"), 0, largest_count), as_object(text).value("prompt", ""),
                          text.value("text", "")});
  }

  History& h_;
  double tokens_ = 0, tokens_a_step_ = 0, seconds_ = 0, seconds_before_ = 0;
};

// Lines without a time continue the line before.
bool has_time_of_day(const std::string& line) {
  return line.size() >= log_time_length && std::isdigit(static_cast<unsigned char>(line.front())) && line[4] == '-' &&
         line[log_time_length - 1] == ' ';
}

}  // namespace

RunLog read_run_log(const std::string& path) {
  RunLog log;
  std::vector<std::string> entries;
  try {
    std::istringstream lines(read_file(path));
    for (std::string line; std::getline(lines, line);)
      if (has_time_of_day(line) || entries.empty())
        entries.push_back(line);
      else
        entries.back() += "\n" + line;
  } catch (const Error&) {
    return log;
  }
  log.end = RunLog::End::open;
  for (const std::string& entry : entries) {
    const std::string said = entry.substr(std::min(entry.size(), log_time_length));
    if (said.starts_with("warning: "))
      log.warnings.push_back(entry.substr(0, log_time_length) + said.substr(std::string("warning: ").size()));
    log.end = said.starts_with("done: ")          ? RunLog::End::done
              : said.starts_with(last_word_begin) ? RunLog::End::ended
                                                  : RunLog::End::open;
    log.words = log.end == RunLog::End::open ? "" : said;
  }
  return log;
}

History read_history(const std::string& run_folder) {
  History history;
  history.folder = run_folder;
  const std::string path = run_folder + "/metrics.jsonl", config = run_folder + "/config.toml";
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  CHECK(!error, "{} is not a run folder: there is no {}; name the run.output of a training", run_folder, path);
  const char* remedy = "train some steps first";
  CHECK(size > 0, "{} is empty; {}", path, remedy);
  Reader reader(history);
  for_each_json_line(read_file(path), path, [&](const json& object) { reader.line(object); });
  CHECK(!history.loss.empty(), "{} has no line of a step; {}", path, remedy);
  for (auto& [name, seconds] : history.time) seconds.resize(history.timed_steps.size());
  for (auto& [name, losses] : history.set_losses) losses.resize(history.validation_loss.size(), no_number);
  try {
    for (const auto& [key, value] : key_values(load_config(config))) history.settings[key] = value;
  } catch (const Error& e) {
    history.settings_unknown = e.what();
  }
  history.log = read_run_log(run_folder + "/log.txt");
  return history;
}

}  // namespace megalith
