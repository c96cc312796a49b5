// The table of Config's fields. Inside configs/ only.
#pragma once

#include "configs/config.h"
#include "configs/field.h"

namespace megalith {

using Field = FieldOf<Config>;

// Returns every option, in the order it is printed. Built once; immutable.
const Table<Config>& field_table();

const Field* find_field(std::string_view name);

}  // namespace megalith
