#include "trainer/model/spec.h"

#include "configs/adapter.h"

namespace megalith {

int64_t num_parameters(const UnitSpec& unit) {
  int64_t sum = 0;
  for (const ParamSpec& param : unit.params) sum += param.shape.numel();
  return sum;
}

int64_t num_parameters(const std::vector<UnitSpec>& spec) {
  int64_t sum = 0;
  for (const UnitSpec& unit : spec) sum += num_parameters(unit);
  return sum;
}

int64_t num_trained(const std::vector<UnitSpec>& spec) {
  int64_t sum = 0;
  for (const UnitSpec& unit : spec)
    for (const ParamSpec& param : unit.params) sum += param.trained ? param.shape.numel() : 0;
  return sum;
}

namespace {
// FNV-1a (Fowler, Noll and Vo, draft-eastlake-fnv).
uint64_t hash_of(const std::string& name) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}
}  // namespace

size_t Declarations::begin_unit(std::string name) {
  units.push_back({.name = std::move(name)});
  return units.size() - 1;
}

Param Declarations::parameter(ParamSpec spec) {
  spec.id = is_of_adapter(spec.name) ? hash_of(spec.name) : parameters_++;
  std::vector<ParamSpec>& params = units.back().params;
  params.push_back(std::move(spec));
  return {static_cast<int32_t>(params.size()) - 1};
}

}  // namespace megalith
