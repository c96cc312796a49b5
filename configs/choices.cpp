#include "configs/choices.h"

#include "kernels/system/check.h"

#include <charconv>

namespace megalith {
namespace {

using Kind = ActivationCheckpointing::Kind;

constexpr std::string_view group_prefix = "group_";
constexpr int64_t largest_group = 10000;  // the most layers a model may have

template <class Enum>
std::string enum_word(Enum value) {
  const auto index = static_cast<size_t>(value);
  CHECK(index < enum_words<Enum>.size(), "{} is not an enumerator; there are {}", index, enum_words<Enum>.size());
  return std::string(enum_words<Enum>[index]);
}

}  // namespace

std::string to_string(ShardingStrategy value) { return enum_word(value); }
std::string to_string(PipelineSchedule value) { return enum_word(value); }
std::string to_string(ComputeType value) { return enum_word(value); }
std::string to_string(StorageType value) { return enum_word(value); }
std::string to_string(ResidualType value) { return enum_word(value); }
std::string to_string(Decay value) { return enum_word(value); }
std::string to_string(Algorithm value) { return enum_word(value); }
std::string to_string(Device value) { return enum_word(value); }
std::string to_string(Backend value) { return enum_word(value); }
std::string to_string(NormKind value) { return enum_word(value); }
std::string to_string(Positions value) { return enum_word(value); }
std::string to_string(Activation value) { return enum_word(value); }
std::string to_string(DeviceKind value) { return enum_word(value); }
std::string to_string(Topology value) { return enum_word(value); }
std::string to_string(AttentionKernel value) { return enum_word(value); }

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
