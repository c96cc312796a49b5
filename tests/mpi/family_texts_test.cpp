// The references' greedy texts, by a model that is split over all ranks, some of which share a key-value head.
#include <filesystem>
#include <nlohmann/json.hpp>

#include "kernels/system/files.h"
#include "tests/mpi/session.h"
#include "tests/pure/greedy_texts.h"

namespace megalith {
namespace {

TEST(FamilyTexts, AreGreedyAsTheReferencesOnTensorParallelRanks) {
  const int64_t ranks = session().size();
  const std::filesystem::path families = MEGALITH_SOURCE_DIR "/../shared/reference/families";
  if (!std::filesystem::exists(families)) GTEST_SKIP() << "no references at " << families;
  bool any = false;
  for (const char* name : {"llama3", "llama2", "mistral", "qwen2", "qwen3", "neox"}) {
    const std::string folder = families / name;
    const WeightSource weights = open_weights(folder);
    const ModelConfig& model = weights.model;
    if (model.heads % ranks != 0 || model.features() % ranks != 0 ||
        (model.kv_heads() % ranks != 0 && ranks % model.kv_heads() != 0))
      continue;
    SCOPED_TRACE(name);
    expect_greedy_texts(weights, nlohmann::json::parse(read_file(folder + "/greedy.json")), session(), ranks);
    any = true;
  }
  if (!any) GTEST_SKIP() << "no reference can be split over " << ranks << " ranks";
}

}  // namespace
}  // namespace megalith
