#include "trainer/report/run_log.h"

#include <algorithm>
#include <cctype>
#include <sstream>

#include "kernels/system/files.h"
#include "trainer/session/last_word.h"

namespace megalith {

namespace {

// Lines without one go on with what the line before says.
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

}  // namespace megalith
