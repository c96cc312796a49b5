// What differs between two checkpoints is found, counted and placed, whatever layouts wrote them.
#include "checkpoints/difference.h"

#include <array>
#include <cmath>
#include <limits>

#include "tests/checkpoints/helpers.h"

namespace megalith {
namespace {

using namespace test;

struct Planted {
  const char* tensor;
  size_t element;
  float value;
};

// The test tensors in one file, with some elements changed and some tensors left out.
std::string write_changed(const std::string& directory, const std::vector<Planted>& planted,
                          const std::string& left_out = "") {
  const std::string folder = CheckpointStore(directory).begin(1);
  std::vector<std::vector<float>> data;
  std::vector<ShardToWrite> stored;
  for (const TestTensor& t : test_tensors()) {
    if (t.name == left_out) continue;
    const TensorShard whole = whole_tensor(t.name, t.shape);
    data.push_back(values_of(t, whole));
    for (const Planted& p : planted)
      if (t.name == p.tensor) data.back().at(p.element) = p.value;
    stored.push_back({whole, data.back().data()});
  }
  Manifest manifest{.step = 1, .state = nlohmann::json::object(), .files = {}};
  manifest.files.push_back(RankFileWriter().write(folder, 0, stored));
  return store_of(folder).publish(folder, std::move(manifest));
}

TEST(Difference, no_layout_is_one) {
  const TemporaryFolder a, b;
  CheckpointReader one(write_checkpoint(a.path(), 1, 3, 2)), other(write_checkpoint(b.path(), 1, 2, 3));
  const TensorComparison c = compare_tensors(one, other);
  EXPECT_TRUE(c.different.empty());
  EXPECT_EQ(c.tensors, 6);
  EXPECT_EQ(c.elements, 17 * 6 + 5 * 12 + 6 + 17 * 6 + 2 * 3 * 4 + 1);
}

TEST(Difference, is_counted_and_placed) {
  const TemporaryFolder a, b;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  CheckpointReader one(write_checkpoint(a.path(), 1, 2, 3));
  CheckpointReader other(write_changed(b.path(), {{"parameters/wte.weight", 1, 3},      // was 1
                                                  {"parameters/wte.weight", 100, 107},  // was 100
                                                  {"parameters/wte.weight", 101, 102},  // was 101
                                                  {"moments/first/deep", 23, nan},
                                                  {"moments/first/wte.weight", 0, 3000.5f}}));
  const TensorComparison c = compare_tensors(one, other);
  ASSERT_EQ(c.different.size(), 3u);
  EXPECT_EQ(describe(c.different[0]),
            "moments/first/deep: 1 of 24 elements differ, by at most inf at [1, 2, 3] (4023 | nan); relative to the "
            "larger inf at [1, 2, 3] (4023 | nan)");
  EXPECT_EQ(describe(c.different[1]),
            "moments/first/wte.weight: 1 of 102 elements differ, by at most 0.5 at [0, 0] (3000 | 3000.5); relative to "
            "the larger 0.000167 at [0, 0] (3000 | 3000.5)");
  EXPECT_EQ(describe(c.different[2]),
            "parameters/wte.weight: 3 of 102 elements differ, by at most 7 at [16, 4] (100 | 107); relative to the "
            "larger 0.667 at [0, 1] (1 | 3)");
}

TEST(Difference, is_placed_in_a_tensor_of_several_blocks) {
  const TemporaryFolder a, b;
  const int64_t elements = (int64_t{1} << 20) + 3;
  const auto write = [&](const std::string& directory, float last) {
    std::vector<float> data(static_cast<size_t>(elements), 1);
    data.back() = last;
    const std::string folder = CheckpointStore(directory).begin(1);
    Manifest manifest{.step = 1, .state = nlohmann::json::object(), .files = {}};
    const std::vector<ShardToWrite> shards{{whole_tensor("t", {elements}), data.data()}};
    manifest.files.push_back(RankFileWriter().write(folder, 0, shards));
    return store_of(folder).publish(folder, std::move(manifest));
  };
  CheckpointReader one(write(a.path(), 1)), other(write(b.path(), 2));
  const TensorComparison c = compare_tensors(one, other);
  ASSERT_EQ(c.different.size(), 1u);
  EXPECT_EQ(describe(c.different[0]),
            "t: 1 of 1048579 elements differ, by at most 1 at [1048578] (1 | 2); relative to the larger 0.5 at "
            "[1048578] (1 | 2)");
}

TEST(Difference, of_signs_of_zero_and_of_kinds_of_nan_is_one) {
  const TemporaryFolder a, b;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  CheckpointReader one(write_changed(a.path(), {{"parameters/wte.weight", 5, nan}, {"scalar", 0, 0.0f}}));
  CheckpointReader other(write_changed(b.path(), {{"parameters/wte.weight", 5, nan}, {"scalar", 0, -0.0f}}));
  const TensorComparison c = compare_tensors(one, other);
  ASSERT_EQ(c.different.size(), 1u) << "the same NaN is the same bits";
  EXPECT_EQ(describe(c.different[0]),
            "scalar: 1 of 1 elements differ, by at most 0 at [0] (0 | -0); relative to the larger 0 at [0] (0 | -0)");
}

TEST(Difference, of_tensors_shapes_and_types) {
  const TemporaryFolder a, b, c;
  CheckpointReader one(write_changed(a.path(), {}, "scalar")), other(write_changed(b.path(), {}, "moments/first/deep"));
  const TensorComparison sets = compare_tensors(one, other);
  EXPECT_EQ(sets.tensors, 6);
  ASSERT_EQ(sets.different.size(), 2u);
  EXPECT_EQ(describe(sets.different[0]), "moments/first/deep: only in the first");
  EXPECT_EQ(describe(sets.different[1]), "scalar: only in the second");

  const auto write = [](const std::string& directory, int64_t step, std::vector<int64_t> shape, DType type) {
    const std::array<float, 6> zeros{};
    const std::string folder = CheckpointStore(directory).begin(step);
    const std::vector<ShardToWrite> shards{
        {whole_tensor("t", std::move(shape)), type, [&](int64_t, int64_t, const auto& use) { use(zeros.data()); }}};
    Manifest manifest{.step = step, .state = nlohmann::json::object(), .files = {}};
    manifest.files.push_back(RankFileWriter().write(folder, 0, shards));
    return CheckpointReader(store_of(folder).publish(folder, std::move(manifest)));
  };
  CheckpointReader f32 = write(c.path(), 1, {2, 3}, DType::f32), bf16 = write(c.path(), 2, {2, 3}, DType::bf16),
                   turned = write(c.path(), 3, {3, 2}, DType::f32);
  EXPECT_EQ(describe(compare_tensors(f32, bf16).different.at(0)), "t: f32 | bf16, 0 of 6 elements differ");
  EXPECT_EQ(describe(compare_tensors(f32, turned).different.at(0)), "t: shape (2, 3) | (3, 2)");
}

}  // namespace
}  // namespace megalith
