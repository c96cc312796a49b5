// Finds the TOML file that an argument names. A run folder stands for its config.toml, and that file means the folder
// that it lies in, wherever that was when it was written. A name that is no path stands for the recipe of that name,
// which is installed beside the program. Inside configs/ only.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "configs/config.h"

namespace megalith {

// Returns the file itself, a folder's config.toml, or the recipe of that name. Error: the folder has none; there is no
// such recipe. What exists under that name is preferred to a recipe.
std::string config_file(const std::string& path);

// Returns share/megalith/configs beside the folder of the program that runs: /usr/share/megalith/configs for
// /usr/bin/megalith. It may not exist.
std::filesystem::path recipe_folder();

// Returns overrides "section.key=value" for the config.toml of a run folder that has moved: run.output becomes the
// current folder, and paths inside it move too. Other files need none. `read` is what the file says.
std::vector<std::string> meant_by_place(const std::string& path, const Config& read);

// Error if `path` is a folder to which no run has written.
void check_run_folder(const std::string& path, const Config& read);

}  // namespace megalith
