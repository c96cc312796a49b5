#include "trainer/job/ranks_agree.h"

#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "data/samples/sources.h"
#include "kernels/system/json.h"
#include "trainer/job/agreement.h"
#include "trainer/job/content.h"
#include "trainer/session/open_session.h"
#include "trainer/step/sample_room.h"
#include "trainer/step/text_data.h"

namespace megalith {

namespace {

namespace fs = std::filesystem;

std::string whole_path(const std::string& path) {
  std::error_code error;
  const fs::path whole = fs::absolute(path, error);
  return error ? path : whole.string();
}

}  // namespace

LaunchFingerprint launch_fingerprint(const Config& config) {
  std::error_code error;
  LaunchFingerprint all;
  for (const auto& [key, value] : key_values(config)) all[key] = {value, ""};
  all["executable"] = {content_of({"/proc/self/exe"}), fs::read_symlink("/proc/self/exe", error).string()};
  const auto compare = [&](const std::string& name, const std::string& source) {
    all[name] = {source.empty() ? "none" : content_of_source(source), source.empty() ? "" : whole_path(source)};
  };
  const std::vector<DataSource> sources = parse_sources("data.train", config.data.train);
  for (const DataSource& source : sources)
    compare("the file of data.train" + (sources.size() == 1 ? "" : ", " + source.name), source.name);
  const std::vector<ValidationSource> sets = parse_validation(config.data.validation);
  if (sets.empty()) compare("the file of data.validation", "");
  for (const ValidationSource& set : sets)
    compare("the file of data.validation" + (set.name.empty() ? "" : ", " + set.name), set.source);
  if (const std::string& prompts = config.train.sample_prompts; names_prompt_file(prompts))
    all["the file of train.sample_prompts"] = {content_of({prompts}), whole_path(prompts)};
  const std::string folder = tokenizer_path(config.data);
  const std::vector<std::string> files = folder.empty() ? std::vector<std::string>{} : tokenizer_files(folder);
  all["the tokenizer"] = {files.empty() ? "none" : content_of(files), whole_path(folder)};
  return all;
}

std::string differences(const LaunchFingerprint& mine, const LaunchFingerprint& of_rank_0) {
  constexpr int shown = 8;
  LaunchFingerprint names = mine;
  names.insert(of_rank_0.begin(), of_rank_0.end());
  const auto text = [](const LaunchFingerprint& of, const std::string& name) {
    const auto found = of.find(name);
    if (found == of.end()) return std::string("unknown");
    const auto& [content, place] = found->second;
    return place.empty() ? content : fmt::format("{} ({})", place, content);
  };
  std::string lines;
  int num = 0;
  for (const auto& [name, ignored] : names) {
    const auto a = mine.find(name), b = of_rank_0.find(name);
    if (a != mine.end() && b != of_rank_0.end() && a->second[0] == b->second[0]) continue;
    if (num++ < shown) lines += fmt::format("\n  {}: {}; on rank 0: {}", name, text(mine, name), text(of_rank_0, name));
  }
  return num > shown ? fmt::format("{}\n  and {} more", lines, num - shown) : lines;
}

void check_ranks_agree(const Config& config, const Session& session, const LaunchFingerprint& more) {
  if (session.size() == 1) return together(session, [&] { check_launch(launch_of_this_process(), session); });
  LaunchFingerprint mine;
  together(session, [&] { mine = launch_fingerprint(config); });
  mine.insert(more.begin(), more.end());
  const std::string of_rank_0 = session.broadcast_text(to_cbor(mine));
  together(session, [&] {
    const std::string found = differences(mine, from_cbor(of_rank_0).get<LaunchFingerprint>());
    char host[256] = "";
    ::gethostname(host, sizeof host - 1);
    CHECK(found.empty(),
          "was started differently from rank 0; give every rank the same program, config, overrides and files. On "
          "{}:{}",
          host, found);
  });
}

}  // namespace megalith
