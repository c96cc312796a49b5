// Which TOML file an argument names. A run folder stands for the config.toml in it, and such a file means the folder
// that it lies in, wherever that was when the file was written. Inside configs/ only.
#pragma once

#include <string>
#include <vector>

#include "configs/config.h"

namespace megalith {

// The file itself, or config.toml of a folder. Error: the folder has none.
std::string config_file(const std::string& path);

// Returns overrides "section.key=value" for the config.toml of a run folder that has moved: run.output is where the
// folder is now, and paths that lay in it have moved with it. Any other file needs none. `read` is what the file says.
std::vector<std::string> meant_by_place(const std::string& path, const Config& read);

// Error where `path` is a folder, and none that a run has written to.
void check_run_folder(const std::string& path, const Config& read);

}  // namespace megalith
