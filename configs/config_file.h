// Finds the TOML file that an argument names. A run folder means its config.toml, and that file means the folder that
// contains it, wherever the folder was when it was written. A name that is not a path means the recipe of that name,
// which is installed with the program. Inside configs/ only, except recipe_names().
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "configs/config.h"

namespace megalith {

// Returns the file itself, a folder's config.toml, or the recipe of that name. An existing path wins over a recipe.
// Error: a folder without config.toml; an unknown recipe.
std::string config_file(const std::string& path);

// Returns the names of all recipes, sorted.
std::vector<std::string> recipe_names();

// Returns share/megalith/configs next to the folder of the running program: /usr/share/megalith/configs for
// /usr/bin/megalith. It may not exist.
std::filesystem::path recipe_folder();

// Returns overrides "section.key=value" for the config.toml of a run folder that has moved: run.output becomes the
// current folder, and paths inside it move too. Empty for other files. `read` is the file's content.
std::vector<std::string> meant_by_place(const std::string& path, const Config& read);

// Error if `path` is a folder without output of a run.
void check_run_folder(const std::string& path, const Config& read);

}  // namespace megalith
