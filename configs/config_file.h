// Finds the TOML file that an argument names. A run folder stands for its config.toml, and that file means the folder
// that it lies in, wherever that was when it was written. Inside configs/ only.
#pragma once

#include <string>
#include <vector>

#include "configs/config.h"

namespace megalith {

// Returns the file itself, or a folder's config.toml. Error: the folder has none.
std::string config_file(const std::string& path);

// Returns overrides "section.key=value" for the config.toml of a run folder that has moved: run.output becomes the
// current folder, and paths inside it move too. Other files need none. `read` is what the file says.
std::vector<std::string> meant_by_place(const std::string& path, const Config& read);

// Error if `path` is a folder to which no run has written.
void check_run_folder(const std::string& path, const Config& read);

}  // namespace megalith
