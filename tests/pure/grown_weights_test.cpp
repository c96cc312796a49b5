// Tables with rows for more tokens than the base has.
#include "trainer/checkpointing/grown_weights.h"

#include <gtest/gtest.h>

#include <cmath>

#include "checkpoints/peft_folder.h"
#include "tests/parts_of_columns.h"

namespace megalith {
namespace {

const std::string grown_table = "parameters/wte.weight", grown_head = "parameters/lm_head.weight",
                  kept_norm = "parameters/ln_f.weight";

// Columns with the means 10 and -3 and the deviations 2 and 0.
std::unique_ptr<TensorSource> base() {
  const MemorySource::Values matrix{{4, 2}, {8, -3, 12, -3, 8, -3, 12, -3}};
  return std::make_unique<MemorySource>(std::map<std::string, MemorySource::Values>{
      {grown_table, matrix}, {grown_head, matrix}, {kept_norm, {{2}, {5, 6}}}});
}

std::vector<float> whole(TensorSource& source, const std::string& name) {
  const TensorShard shard = whole_tensor(name, source.shape(name));
  std::vector<float> values(static_cast<size_t>(shard.numel()));
  source.read(shard, values.data());
  return values;
}

TEST(GrownWeights, AddedRowsAreDrawnAsTheBasesColumnsAre) {
  constexpr int64_t rows = 4004;
  GrownSource source(base(), rows, 1);
  for (const std::string& name : {grown_table, grown_head}) {
    EXPECT_EQ(source.shape(name), (std::vector<int64_t>{rows, 2}));
    const std::vector<float> all = whole(source, name);
    EXPECT_EQ(std::vector<float>(all.begin(), all.begin() + 8), whole(*base(), name));
    double sum = 0, squares = 0;
    for (size_t i = 8; i < all.size(); i += 2) {
      EXPECT_EQ(all[i + 1], -3) << "no deviation, and the mean";
      sum += all[i];
      squares += (all[i] - 10.0) * (all[i] - 10.0);
    }
    EXPECT_NEAR(sum / 4000, 10, 4 * 2 / std::sqrt(4000.0)) << "four standard errors";
    EXPECT_NEAR(std::sqrt(squares / 4000), 2, 4 * 2 / std::sqrt(8000.0));
  }
  EXPECT_EQ(whole(source, kept_norm), (std::vector<float>{5, 6}));
}

TEST(GrownWeights, DependOnTheSeedAloneAndNotOnTheLayout) {
  GrownSource source(base(), 9, 7), again(base(), 9, 7), another(base(), 9, 8);
  for (const std::string& name : {grown_table, grown_head}) test::expect_parts_of_columns(source, name);
  EXPECT_EQ(whole(source, grown_table), whole(again, grown_table));
  EXPECT_NE(whole(source, grown_table), whole(another, grown_table));
}

}  // namespace
}  // namespace megalith
