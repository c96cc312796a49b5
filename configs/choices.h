// The words of options that are a choice, beside their enum.
#pragma once

#include "configs/config.h"
#include "configs/hardware.h"

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace megalith {

// In the order of the enumerators.
template <class Enum>
inline constexpr auto enum_words = nullptr;
template <>
inline constexpr auto enum_words<ShardingStrategy> =
    std::array<std::string_view, 4>{"full_shard", "shard_grad_op", "shard_optimizer", "no_shard"};
template <>
inline constexpr auto enum_words<PipelineSchedule> = std::array<std::string_view, 5>{"1f1b", "gpipe", "zb_h1", "zb_v", "v_half"};
template <>
inline constexpr auto enum_words<ComputeType> = std::array<std::string_view, 3>{"bf16", "fp16", "fp32"};
template <>
inline constexpr auto enum_words<StorageType> = std::array<std::string_view, 2>{"fp32", "bf16"};
template <>
inline constexpr auto enum_words<ResidualType> = std::array<std::string_view, 2>{"compute", "fp32"};
template <>
inline constexpr auto enum_words<Decay> = std::array<std::string_view, 4>{"cosine", "linear", "constant", "sqrt"};
template <>
inline constexpr auto enum_words<Algorithm> = std::array<std::string_view, 2>{"adamw", "muon"};
template <>
inline constexpr auto enum_words<Device> = std::array<std::string_view, 3>{"auto", "cuda", "cpu"};
template <>
inline constexpr auto enum_words<Backend> = std::array<std::string_view, 2>{"nccl", "mpi"};
template <>
inline constexpr auto enum_words<NormKind> = std::array<std::string_view, 2>{"layer", "rms"};
template <>
inline constexpr auto enum_words<Positions> = std::array<std::string_view, 2>{"learned", "rotary"};
template <>
inline constexpr auto enum_words<Activation> = std::array<std::string_view, 3>{"gelu", "gelu_erf", "swiglu"};
template <>
inline constexpr auto enum_words<DeviceKind> = std::array<std::string_view, 2>{"gpu", "cpu"};
template <>
inline constexpr auto enum_words<Topology> = std::array<std::string_view, 2>{"switch", "host"};
template <>
inline constexpr auto enum_words<AttentionKernel> =
    std::array<std::string_view, 3>{"fused", "fused_softmax", "unfused"};

template <class Choice>
std::vector<std::string> choice_words() {
  return {enum_words<Choice>.begin(), enum_words<Choice>.end()};
}

template <class Choice>
std::optional<Choice> parse_choice(std::string_view word) {
  for (size_t i = 0; i < enum_words<Choice>.size(); ++i)
    if (enum_words<Choice>[i] == word) return static_cast<Choice>(i);
  return std::nullopt;
}

// "group_4" carries a number, so these are not a plain list.
template <>
std::vector<std::string> choice_words<ActivationCheckpointing>();
template <>
std::optional<ActivationCheckpointing> parse_choice<ActivationCheckpointing>(std::string_view word);

}  // namespace megalith
