// Who may include whom (ARCHITECTURE.md), and six rules beside it: mpi.h has one door, the system's files have one
// (kernels/system/), JSON's text has one (kernels/system/json.h), spdlog has one (trainer/log/log.h), the model's math
// knows no ranks, and what decides sees nothing that does. Every rule is shown to be able to fail.

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

namespace {

using Files = std::map<std::string, std::string>;  // path from the root of the tree -> text

struct Rule {
  std::string folder;
  std::vector<std::string> may_include;  // folders, with a slash, and single files; beside the folder itself
};

const std::vector<std::string> everybody = {"kernels/system/"};

// From the ground up.
const std::vector<Rule>& table() {
  using Folders = std::vector<std::string>;
  const auto with = [](Folders folders, const Folders& more) {
    folders.insert(folders.end(), more.begin(), more.end());
    return folders;
  };
  const Folders loops = {"kernels/tensor/", "kernels/stream/", "kernels/loops/"};
  const Folders math = {"kernels/", "configs/"};
  const Folders ranks = with(math, {"trainer/machine/", "trainer/session/", "trainer/communication/"});
  const Folders layout = with(math, {"trainer/communication/", "trainer/model/", "trainer/schedule/", "trainer/layout/",
                                     "trainer/program/", "trainer/parallel/"});
  const Folders step = with(layout, {"trainer/step/", "data/", "trainer/machine/"});
  const Folders job =
      with(step, {"trainer/session/", "trainer/log/", "checkpoints/", "trainer/job/", "trainer/checkpointing/"});
  static const std::vector<Rule> rules = {
      {"kernels/system/", {}},
      {"kernels/tensor/", {}},
      {"kernels/stream/", {"kernels/tensor/"}},
      {"kernels/nvcc/", {"kernels/tensor/tensor.h", "kernels/stream/queue_cuda.h"}},
      {"kernels/loops/", {"kernels/tensor/tensor.h", "kernels/tensor/largest.h", "kernels/stream/queue_cuda.h"}},
      {"kernels/elementwise/", loops},
      {"kernels/activation/", loops},
      {"kernels/embedding/", loops},
      {"kernels/loss/", loops},
      {"kernels/update/", with(loops, {"kernels/elementwise/"})},
      {"kernels/linear/", with(loops, {"kernels/activation/"})},
      {"kernels/attention/", with(loops, {"kernels/elementwise/", "kernels/linear/"})},
      {"kernels/norm/", with(loops, {"kernels/elementwise/", "kernels/attention/"})},
      {"configs/", {}},
      {"data/tokenizers/", {}},
      {"data/samples/", {}},
      {"data/conversations/", {"data/tokenizers/"}},
      {"data/corpus/", {"data/tokenizers/", "data/samples/", "data/conversations/"}},
      {"checkpoints/",
       {"kernels/tensor/finite.h", "kernels/tensor/interval.h", "kernels/tensor/tensor.h",
        "kernels/tensor/tensor_shard.h", "configs/config.h", "configs/adapter.h"}},
      {"trainer/machine/", {}},
      {"trainer/doctor/", {"kernels/stream/flight_recorder.h"}},
      {"trainer/session/", {"kernels/tensor/", "kernels/stream/", "configs/", "trainer/machine/", "trainer/doctor/"}},
      {"trainer/log/", {"trainer/machine/", "trainer/session/last_word.h"}},
      {"trainer/communication/", ranks},
      {"trainer/model/", math},
      {"trainer/schedule/", {"configs/config.h", "trainer/communication/mesh_shape.h", "trainer/model/spec.h"}},
      {"trainer/layout/", with(math, {"trainer/communication/mesh_shape.h", "trainer/model/", "trainer/schedule/"})},
      {"trainer/program/", {"trainer/layout/", "trainer/schedule/"}},
      {"trainer/parallel/", layout},
      {"trainer/step/", step},
      {"trainer/planner/",
       with(layout, {"trainer/step/", "trainer/machine/", "trainer/session/", "checkpoints/reader.h"})},
      {"trainer/job/", with(step, {"trainer/session/", "checkpoints/"})},
      {"trainer/checkpointing/", with(step, {"trainer/session/", "trainer/log/", "checkpoints/", "trainer/job/"})},
      {"trainer/inference/", job},
      {"trainer/verify/", job},
      {"trainer/train/", with(job, {"trainer/inference/"})},
      {"trainer/replay/", with(job, {"trainer/train/", "trainer/inference/"})},
      {"trainer/report/", {"configs/", "trainer/session/last_word.h"}},
      {"trainer/commands/", {""}},
      {"trainer/main.cpp", {""}},
  };
  return rules;
}

std::string without_comments(const std::string& text) {
  std::string code;
  const auto copy_or_skip = [&](size_t begin, size_t end, bool copy) {
    end = std::min(end, text.size());
    if (copy) code.append(text, begin, end - begin);
    return end;
  };
  for (size_t at = 0; at < text.size();) {
    if (text[at] == '"') {
      size_t end = at + 1;
      while (end < text.size() && text[end] != '"' && text[end] != '\n') end += text[end] == '\\' ? 2 : 1;
      at = copy_or_skip(at, end + 1, true);
    } else if (text.compare(at, 2, "//") == 0) {
      at = copy_or_skip(at, text.find('\n', at), false);
    } else if (text.compare(at, 2, "/*") == 0) {
      const size_t close = text.find("*/", at + 2);
      at = copy_or_skip(at, close == std::string::npos ? close : close + 2, false);
    } else {
      at = copy_or_skip(at, at + 1, true);
    }
  }
  return code;
}

// With the quotes or brackets that are around them.
std::vector<std::string> includes_of(const std::string& code) {
  std::vector<std::string> found;
  std::istringstream lines(code);
  for (std::string line; std::getline(lines, line);) {
    std::erase_if(line, [](unsigned char c) { return std::isspace(c); });
    if (line.starts_with("#include")) found.push_back(line.substr(8, line.find_first_of("\">", 9) - 7));
  }
  return found;
}

bool has_word(const std::string& code, const std::string& word) {
  const auto in_word = [&](size_t at) {
    return at < code.size() && (std::isalnum(static_cast<unsigned char>(code[at])) || code[at] == '_');
  };
  for (size_t at = code.find(word); at != std::string::npos; at = code.find(word, at + 1))
    if (!in_word(at - 1) && !in_word(at + word.size())) return true;
  return false;
}

const std::vector<std::string>& words_of_own_files() {
  static const std::vector<std::string> words = [] {
    std::vector<std::string> all = {"<fcntl.h>", "<sys/mman.h>", "<sys/file.h>", "ofstream", "fopen"};
    for (const char* space : {"std::", "filesystem::", "fs::"})
      for (const char* call : {"rename(", "remove(", "remove_all(", "create_directory(", "create_directories("})
        all.push_back(std::string(space) + call);
    return all;
  }();
  return words;
}
const std::vector<std::string> words_of_json_text = {"json::parse(", "json::accept(", "json::from_", "json::to_",
                                                     ".dump("};

std::vector<std::string> violations_of(const std::string& path, const std::string& text, const Files& files) {
  const auto rule =
      std::find_if(table().begin(), table().end(), [&](const Rule& r) { return path.starts_with(r.folder); });
  if (rule == table().end()) return {path + " lies in no folder of the table"};
  std::vector<std::string> allowed = rule->may_include;
  allowed.push_back(rule->folder);
  allowed.insert(allowed.end(), everybody.begin(), everybody.end());

  std::vector<std::string> found;
  const std::string code = without_comments(text);
  for (const std::string& quoted : includes_of(code)) {
    const std::string include = quoted.substr(1, quoted.size() - 2);
    if (include == "mpi.h" && path != "trainer/session/mpi_check.h") found.push_back(path + " includes mpi.h");
    if (include.starts_with("spdlog/") && path != "trainer/log/log.cpp") found.push_back(path + " includes " + include);
    if (quoted.front() != '"') continue;
    if (std::none_of(allowed.begin(), allowed.end(), [&](const std::string& a) { return include.starts_with(a); }))
      found.push_back(path + " includes " + include);
    if (!files.contains(include)) found.push_back(path + " includes " + include + ", which is no path from the root");
  }
  const auto refuse = [&](const std::vector<std::string>& words, const char* what) {
    for (const std::string& word : words)
      if (code.find(word) != std::string::npos) found.push_back(path + what + word);
  };
  // A terminal is no file.
  if (!path.starts_with("kernels/system/") && path != "trainer/machine/terminal.cpp")
    refuse(words_of_own_files(), " has files of its own: ");
  if (path != "kernels/system/json.cpp") refuse(words_of_json_text, " reads or writes JSON: ");
  if (path.starts_with("trainer/model/") && has_word(code, "rank")) found.push_back(path + " says rank");
  return found;
}

// What decides (which rank has what, who does what when) is a pure function of the config.
bool decides(const std::string& path) {
  return path.starts_with("trainer/schedule/") || path.starts_with("trainer/layout/") ||
         path.starts_with("trainer/program/") || path.starts_with("trainer/train/policy");
}
const std::set<std::string> doers = {"kernels/stream/stream.h", "kernels/stream/arena.h",
                                     "trainer/communication/communicator.h", "trainer/parallel/runtime.h"};
// The first makes the layers for the parameters that they declare, the second counts what an op of Muon's multiplies.
const std::set<std::string> deciding_with_ops = {"trainer/layout/plan.cpp", "trainer/layout/matrices.cpp"};

// Returns the files that a file includes, and those that they include.
std::set<std::string> all_includes_of(const std::string& path, const Files& files) {
  std::set<std::string> seen;
  std::vector<std::string> left{path};
  while (!left.empty()) {
    const auto file = files.find(left.back());
    left.pop_back();
    if (file == files.end()) continue;
    for (const std::string& quoted : includes_of(without_comments(file->second)))
      if (const std::string include = quoted.substr(1, quoted.size() - 2); seen.insert(include).second)
        left.push_back(include);
  }
  return seen;
}

std::vector<std::string> doers_seen_by(const std::string& path, const Files& files) {
  std::vector<std::string> found;
  if (decides(path) && !deciding_with_ops.contains(path))
    for (const std::string& include : all_includes_of(path, files))
      if (doers.contains(include)) found.push_back(path + " decides, and sees " + include);
  return found;
}

Files the_tree() {
  namespace fs = std::filesystem;
  const fs::path root = MEGALITH_SOURCE_DIR;
  Files files;
  for (const fs::directory_entry& top : fs::directory_iterator(root)) {
    const std::string name = top.path().filename().string();
    // tests/ and bench/ look at the whole from outside.
    if (!top.is_directory() || name.starts_with(".") || name.starts_with("build") || name == "tests" || name == "bench")
      continue;
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(top)) {
      const std::string extension = entry.path().extension().string();
      if (extension != ".h" && extension != ".cpp" && extension != ".cu") continue;
      std::ostringstream text;
      text << std::ifstream(entry.path()).rdbuf();
      files[fs::relative(entry.path(), root).generic_string()] = text.str();
    }
  }
  return files;
}

TEST(Layering, EveryIncludeIsAllowed) {
  const Files files = the_tree();
  ASSERT_GT(files.size(), 100u) << "is MEGALITH_SOURCE_DIR the root of the tree?";
  for (const char* folder : {"kernels/", "configs/", "data/", "checkpoints/", "trainer/model/", "trainer/planner/"})
    EXPECT_TRUE(files.lower_bound(folder)->first.starts_with(folder)) << "no sources in " << folder;
  for (const auto& [path, text] : files)
    for (const std::string& violation : violations_of(path, text, files)) ADD_FAILURE() << violation;
}

TEST(Layering, WhatDecidesSeesNothingThatDoes) {
  const Files files = the_tree();
  for (const std::string& doer : doers) EXPECT_TRUE(files.contains(doer)) << doer;
  for (const std::string& path : deciding_with_ops) EXPECT_TRUE(files.contains(path)) << path;
  int deciding = 0;
  for (const auto& [path, text] : files) {
    deciding += decides(path);
    for (const std::string& violation : doers_seen_by(path, files)) ADD_FAILURE() << violation;
  }
  EXPECT_GT(deciding, 40);
  Files planted = files;
  planted["trainer/schedule/a.h"] = "#include \"trainer/model/b.h\"\n";
  planted["trainer/model/b.h"] = "#include \"kernels/stream/stream.h\"\n";
  EXPECT_GT(doers_seen_by("trainer/schedule/a.h", planted).size(), 0u) << "through another header";
  planted["trainer/schedule/a.h"] = "// #include \"trainer/model/b.h\"\n";
  EXPECT_EQ(doers_seen_by("trainer/schedule/a.h", planted).size(), 0u);
}

// One planted file a line: where it lies, what it says, and whether that is wrong.
TEST(Layering, TheCheckerFindsPlantedViolations) {
  struct Plant {
    const char* path;
    const char* text;
    bool wrong;
  };
  const std::vector<Plant> plants = {
      {"kernels/a.h", "\n", true},
      {"kernels/norm/a.h", "#include \"kernels/tensor/tensor.h\"\n", false},
      {"kernels/norm/a.h", "#include \"configs/config.h\"\n", true},
      {"kernels/norm/a.cpp", "#include \"trainer/communication/mesh.h\"\n", true},
      {"kernels/norm/a.cpp", "#include \"kernels/stream/stream.h\"\n", false},
      {"kernels/linear/a.cpp", "#include \"kernels/activation/gelu.h\"\n", false},
      {"kernels/linear/a.cpp", "#include \"kernels/norm/layernorm.h\"\n", true},
      {"kernels/stream/a.h", "#include \"kernels/tensor/tensor.h\"\n", false},
      {"kernels/stream/a.cpp", "#include \"kernels/elementwise/elementwise.h\"\n", true},
      {"kernels/tensor/a.h", "#include \"kernels/stream/stream.h\"\n", true},
      {"configs/a.cpp", "#include \"kernels/system/check.h\"\n", false},
      {"configs/a.cpp", "#include \"kernels/tensor/tensor.h\"\n", true},
      {"configs/a.cpp", "#include \"trainer/model/spec.h\"\n", true},
      {"data/samples/a.cpp", "#include \"kernels/elementwise/philox.h\"\n", true},
      {"data/corpus/a.cpp", "#  include   \"trainer/train/run.h\"\n", true},
      {"data/corpus/a.cpp", "#include \"data/samples/known_files.h\"\n", false},
      {"data/samples/a.cpp", "#include \"data/corpus/corpus.h\"\n", true},
      {"data/conversations/a.cpp", "#include \"data/tokenizers/tokenizer.h\"\n", false},
      {"data/tokenizers/a.cpp", "#include \"data/conversations/chat_template.h\"\n", true},
      {"data/a.cpp", "\n", true},
      {"checkpoints/a.cpp", "#include \"kernels/tensor/tensor.h\"\n", false},
      {"checkpoints/a.cpp", "#include \"kernels/stream/stream.h\"\n", true},
      {"checkpoints/a.cpp", "#include \"trainer/model/spec.h\"\n", true},
      {"checkpoints/a.h", "#include \"configs/config.h\"\n", false},
      {"checkpoints/a.cpp", "#include \"configs/field_table.h\"\n", true},
      {"trainer/session/a.h", "#include \"trainer/communication/communicator.h\"\n", true},
      {"trainer/communication/a.h", "#include \"trainer/session/session.h\"\n", false},
      {"trainer/session/a.cpp", "#include \"trainer/doctor/diagnosis.h\"\n", false},
      {"trainer/doctor/a.cpp", "#include \"trainer/session/recorder_pages.h\"\n", true},
      {"trainer/communication/a.h", "#include \"trainer/model/spec.h\"\n", true},
      {"trainer/model/a.h", "#include \"kernels/stream/stream.h\"\n", false},
      {"trainer/model/a.h", "#include \"trainer/communication/mesh.h\"\n", true},
      {"trainer/model/a.h", "#include \"trainer/layout/plan.h\"\n", true},
      {"trainer/schedule/a.h", "#include \"trainer/communication/mesh_shape.h\"\n", false},
      {"trainer/schedule/a.h", "#include \"trainer/communication/mesh.h\"\n", true},
      {"trainer/schedule/a.h", "#include \"trainer/layout/plan.h\"\n", true},
      {"trainer/layout/a.h", "#include \"trainer/schedule/schedule.h\"\n", false},
      {"trainer/layout/a.h", "#include \"trainer/program/program.h\"\n", true},
      {"trainer/program/a.h", "#include \"trainer/layout/plan.h\"\n", false},
      {"trainer/program/a.h", "#include \"trainer/parallel/stage.h\"\n", true},
      {"trainer/parallel/a.h", "#include \"trainer/communication/mesh.h\"\n", false},
      {"trainer/parallel/a.h", "#include \"trainer/session/session.h\"\n", true},
      {"trainer/parallel/a.h", "#include \"trainer/step/trainer.h\"\n", true},
      {"trainer/parallel/a.h", "#include \"data/samples/loader.h\"\n", true},
      {"trainer/step/a.h", "#include \"data/samples/loader.h\"\n", false},
      {"trainer/step/a.h", "#include \"trainer/job/agreement.h\"\n", true},
      {"trainer/planner/a.h", "#include \"trainer/step/rehearsal.h\"\n", false},
      {"trainer/planner/a.h", "#include \"data/samples/loader.h\"\n", true},
      {"trainer/job/a.h", "#include \"trainer/step/text_data.h\"\n", false},
      {"trainer/job/a.h", "#include \"trainer/checkpointing/checkpointer.h\"\n", true},
      {"trainer/checkpointing/a.h", "#include \"trainer/job/agreement.h\"\n", false},
      {"trainer/checkpointing/a.h", "#include \"trainer/train/run.h\"\n", true},
      {"trainer/inference/a.h", "#include \"trainer/checkpointing/weight_source.h\"\n", false},
      {"trainer/inference/a.h", "#include \"trainer/train/run.h\"\n", true},
      {"trainer/verify/a.h", "#include \"trainer/job/agreement.h\"\n", false},
      {"trainer/verify/a.h", "#include \"trainer/train/run.h\"\n", true},
      {"trainer/train/a.h", "#include \"trainer/checkpointing/checkpointer.h\"\n", false},
      {"trainer/train/a.h", "#include \"trainer/planner/matcher.h\"\n", true},
      {"trainer/replay/a.h", "#include \"trainer/train/bad_step_file.h\"\n", false},
      {"trainer/replay/a.h", "#include \"trainer/planner/matcher.h\"\n", true},
      {"trainer/report/a.h", "#include \"configs/config.h\"\n", false},
      {"trainer/report/a.cpp", "#include \"trainer/train/metrics.h\"\n", true},
      {"trainer/commands/a.cpp", "#include \"trainer/planner/matcher.h\"\n", false},
      {"trainer/train/a.h", "#include \"trainer/commands/command.h\"\n", true},
      {"trainer/model/a.h", "#include \"../communication/mesh.h\"\n", true},
      {"trainer/model/a.h", "#include \"block.h\"\n", true},
      {"trainer/train/a.cpp", "#include <mpi.h>\n", true},
      {"trainer/session/mpi_check.h", "#include <mpi.h>\n", false},
      {"trainer/train/a.cpp", "#include <spdlog/spdlog.h>\n", true},
      {"trainer/log/log.cpp", "#include <spdlog/spdlog.h>\n", false},
      {"data/corpus/a.cpp", "#include <fcntl.h>\n", true},
      {"data/corpus/a.cpp", "#\tinclude\t<sys/mman.h>\n", true},
      {"data/corpus/a.cpp", "std::ofstream out;\n", true},
      {"data/corpus/a.cpp", "const auto open = &std::fopen;\n", true},
      {"trainer/train/a.cpp", "std::filesystem::rename(a, b);\n", true},
      {"trainer/train/a.cpp", "fs::remove_all(a);\n", true},
      {"trainer/train/a.cpp", "namespace f = std::filesystem;  // filesystem::remove(a)\n", false},
      {"trainer/train/a.cpp", "fs::exists(a);\n", false},
      {"trainer/train/a.cpp", "const auto j = nlohmann::json::parse(text);\n", true},
      {"checkpoints/a.cpp", "write(header.dump());\n", true},
      {"checkpoints/a.cpp", "nlohmann::json j = {{\"a\", 1}};\nj.at(\"a\").get<int>();\n", false},
      {"kernels/system/json.cpp", "return nlohmann::json::parse(text);\n", false},
      {"trainer/model/a.cpp", "int rank = 0;\n", true},
      {"trainer/model/a.cpp", "int ranks = 0;  // of every rank\n/* rank */ int franked;\n", false},
      {"trainer/communication/a.cpp", "int rank = 0;\n", false},
      {"trainer/a.h", "\n", true},
      {"extras/a.h", "\n", true},
      {"kernels/norm/a.h", "// #include \"configs/config.h\"\n", false},
      {"kernels/norm/a.h", "const char* s = \"//\";\n#include \"configs/config.h\"\n", true},
  };
  const Files files = the_tree();
  for (const Plant& plant : plants)
    EXPECT_EQ(!violations_of(plant.path, plant.text, files).empty(), plant.wrong) << plant.path << ": " << plant.text;
}

}  // namespace
