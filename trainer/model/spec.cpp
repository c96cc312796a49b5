#include "trainer/model/spec.h"

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

size_t Declarations::begin_unit(std::string name) {
  units.push_back({.name = std::move(name)});
  return units.size() - 1;
}

Param Declarations::parameter(ParamSpec spec) {
  spec.id = parameters_++;
  std::vector<ParamSpec>& params = units.back().params;
  params.push_back(std::move(spec));
  return {static_cast<int32_t>(params.size()) - 1};
}

}  // namespace megalith
