#include "configs/config.h"
#include "kernels/system/check.h"

#include <charconv>

namespace megalith {
namespace {

using Kind = ActivationCheckpointing::Kind;

constexpr std::string_view group_prefix = "group_";
constexpr int64_t largest_group = 10000;  // the most layers a model may have

}  // namespace

std::string to_string(const ActivationCheckpointing& value) {
  switch (value.kind) {
    case Kind::none: return "none";
    case Kind::selective: return "selective";
    case Kind::each: return "each";
    case Kind::group: return fmt::format("{}{}", group_prefix, value.group_size);
    case Kind::contiguous: return "contiguous";
  }
  FAIL("unknown kind {} of activation checkpointing", static_cast<int>(value.kind));
}

template <>
std::vector<std::string> choice_words<ActivationCheckpointing>() {
  return {"none", "selective", "each", "group_N", "contiguous"};
}

template <>
std::optional<ActivationCheckpointing> parse_choice<ActivationCheckpointing>(std::string_view word) {
  for (const Kind kind : {Kind::none, Kind::selective, Kind::each, Kind::contiguous})
    if (const ActivationCheckpointing plain{.kind = kind}; word == to_string(plain)) return plain;
  if (!word.starts_with(group_prefix)) return std::nullopt;
  const std::string_view digits = word.substr(group_prefix.size());
  int64_t size = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), size);
  if (error != std::errc{} || end != digits.data() + digits.size() || size < 1 || size > largest_group)
    return std::nullopt;
  return ActivationCheckpointing{.kind = Kind::group, .group_size = size};
}

}  // namespace megalith
