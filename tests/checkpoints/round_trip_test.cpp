// What one layout writes, every other reads; what was written can be told apart from what was not.
#include <hdf5.h>

#include <array>
#include <cerrno>
#include <cmath>
#include <limits>
#include <set>

#include "checkpoints/checksum.h"
#include "checkpoints/hdf5_file.h"
#include "kernels/system/file_calls.h"
#include "tests/checkpoints/helpers.h"

namespace megalith {
namespace {

using namespace test;

TEST(RoundTrip, any_layout_reads_any_checkpoint) {
  const std::vector<std::array<int, 2>> layouts = {{1, 1}, {1, 2}, {1, 3}, {1, 4}, {1, 7},
                                                   {2, 1}, {3, 1}, {2, 2}, {3, 2}};
  for (const auto& [tensor, shards] : layouts) {
    const TemporaryFolder folder;
    const std::string path = write_checkpoint(folder.path(), 100, tensor, shards);
    EXPECT_EQ(path, folder / "step-00000100");
    CheckpointReader reader(path);
    EXPECT_EQ(reader.manifest().step, 100);
    EXPECT_EQ(reader.manifest().state.at("samples"), 1000);
    EXPECT_EQ(reader.manifest().files.size(), static_cast<size_t>(tensor * shards));
    std::set<std::string> names;
    for (const FileRecord& file : reader.manifest().files)
      for (const DatasetRecord& dataset : file.datasets) names.insert(dataset.shard.name);
    EXPECT_EQ(names.size(), test_tensors().size());
    for (const auto& [other_tensor, other_shards] : layouts)
      EXPECT_TRUE(reads_right(reader, other_tensor, other_shards))
          << tensor << "x" << shards << " read as " << other_tensor << "x" << other_shards;
    const VerifyReport report = verify_checkpoint(path);
    EXPECT_TRUE(report.damaged.empty()) << report.damaged[0];
    EXPECT_EQ(report.num_files, tensor * shards);
  }
}

// Over blocks and parts of the writer, in both types, wherever they lie.
TEST(RoundTrip, counts_what_is_not_finite) {
  const TemporaryFolder folder;
  const std::string path = CheckpointStore(folder.path()).begin(1);
  const int64_t n = (int64_t{4} << 20) + 12345;
  std::vector<float> wide(static_cast<size_t>(n), 3e38f);
  std::vector<bfloat16> narrow(static_cast<size_t>(n), bfloat16(-1e-40f));
  const std::vector<size_t> places = {0, 8191, 8192, 16383, 100000, (4 << 20) - 1, 4 << 20, static_cast<size_t>(n) - 1};
  for (const size_t i : places) {
    wide[i] = i % 2 ? -std::numeric_limits<float>::infinity() : std::numeric_limits<float>::signaling_NaN();
    narrow[i] = bfloat16(wide[i]);
  }
  const std::array<ShardToWrite, 2> shards = {
      ShardToWrite{flat_shard("wide", {n}, {0, n}), wide.data()},
      ShardToWrite{flat_shard("narrow", {n}, {0, n}), DType::bf16,
                   [&](int64_t begin, int64_t, const auto& use) { use(narrow.data() + begin); }}};
  const FileRecord record = RankFileWriter().write(path, 0, shards);
  for (const DatasetRecord& d : record.datasets)
    EXPECT_EQ(d.not_finite, static_cast<int64_t>(places.size())) << d.dataset;
  EXPECT_EQ(file_record_from_text(to_text(record)), record);
  EXPECT_EQ(what_is_not_finite({1, {}, {record}}), fmt::format("{} values that are not finite, in {} and 1 more tensor",
                                                               2 * places.size(), record.datasets[0].shard.name));
  // What is read back from a text is held to what can be.
  std::string text = to_text(record);
  text.replace(text.find("\"not_finite\":8"), 14, "\"not_finite\":-8");
  EXPECT_THROW(file_record_from_text(text), Error);
}

TEST(RoundTrip, tensors_larger_than_one_chunk) {
  const TemporaryFolder folder;
  const std::vector<int64_t> shape = {2003, 2203};  // of odd width; over chunks of the reader and parts of the writer
  const TensorShard whole = whole_tensor("parameters/big", shape);
  std::vector<float> data(static_cast<size_t>(whole.numel()));
  for (size_t i = 0; i < data.size(); i++) data[i] = static_cast<float>(i);
  const std::string path = CheckpointStore(folder.path()).begin(1);
  TensorShard front = whole, back = whole;
  front.elements.end = back.elements.begin = 4200001;
  const std::array<ShardToWrite, 2> shards = {ShardToWrite{front, data.data()},
                                              ShardToWrite{back, data.data() + 4200001}};
  const FileRecord record = RankFileWriter().write(path, 0, shards);
  EXPECT_EQ(record.datasets[0].dataset, "parameters/big");
  EXPECT_EQ(record.datasets[1].dataset, "parameters/big#1");
  CheckpointReader reader(store_of(path).publish(path, {1, nlohmann::json::object(), {record}}));
  for (int pass = 0; pass < 2; pass++) {  // before and after the datasets were verified
    std::vector<float> out(data.size());
    reader.read(whole, out.data());
    EXPECT_TRUE(out == data);
    const TensorShard columns{whole.name, shape, {700, 1401}, {333, 1400011}};
    std::vector<float> some(static_cast<size_t>(columns.numel()));
    reader.read(columns, some.data());
    int64_t wrong = 0;
    for (int64_t i = columns.elements.begin; i < columns.elements.end; i++)
      wrong +=
          some[static_cast<size_t>(i - columns.elements.begin)] != static_cast<float>(i / 701 * 2203 + 700 + i % 701);
    EXPECT_EQ(wrong, 0);
  }
}

TEST(RoundTrip, every_bit_of_a_float_survives) {
  const TemporaryFolder folder;
  std::vector<float> data = {0.0f,
                             -0.0f,
                             std::numeric_limits<float>::quiet_NaN(),
                             -std::numeric_limits<float>::infinity(),
                             std::numeric_limits<float>::denorm_min(),
                             std::bit_cast<float>(0x7f800001u)};
  const TensorShard whole = whole_tensor("t", {6});
  const std::string path = CheckpointStore(folder.path()).begin(1);
  const ShardToWrite stored{whole, data.data()};
  const FileRecord record = RankFileWriter().write(path, 0, {&stored, 1});
  CheckpointReader reader(store_of(path).publish(path, {1, nlohmann::json::object(), {record}}));
  std::vector<float> out(6);
  reader.read(whole, out.data());
  EXPECT_EQ(std::memcmp(out.data(), data.data(), 24), 0);
}

TEST(RoundTrip, the_same_shards_give_the_same_bytes) {
  const TemporaryFolder a, b;
  const std::string first = write_checkpoint(a.path(), 5), second = write_checkpoint(b.path(), 5);
  for (const char* file : {"/manifest.json", "/rank-00000.h5", "/rank-00001.h5"})
    EXPECT_EQ(read_file(first + file), read_file(second + file)) << file;
}

TEST(RoundTrip, one_writer_gives_the_same_bytes_as_many) {
  const TemporaryFolder folder;
  RankFileWriter writer;
  std::vector<float> data(40, 1.5f);
  const TensorShard whole = whole_tensor("t", {40});
  const auto files_of = [&](int64_t step, const ShardToWrite& shard) {
    const std::string path = CheckpointStore(folder.path()).begin(step);
    const FileRecord one = writer.write(path, 0, {&shard, 1}), fresh = RankFileWriter().write(path, 1, {&shard, 1});
    EXPECT_EQ(one.datasets, fresh.datasets);
    EXPECT_EQ(one.structure, fresh.structure);
    EXPECT_EQ(one.bytes, fresh.bytes);
    EXPECT_EQ(read_file(path + "/rank-00000.h5"), read_file(path + "/rank-00001.h5")) << step;
  };
  files_of(1, {whole, data.data()});
  data.assign(40, -2.5f);
  files_of(2, {whole, data.data()});
  files_of(3, {flat_shard("t", {40}, {3, 40}), data.data()});
  {
    const FileHook full_disk([](const FileEvent& event) {
      return event.call == FileCall::write ? FileFate{ENOSPC, 0} : FileFate{};
    });
    const ShardToWrite shard{whole, data.data()};
    EXPECT_NE(message_of([&] {
                writer.write(CheckpointStore(folder.path()).begin(4), 0, {&shard, 1});
              }).find("No space"),
              std::string::npos);
  }
  files_of(5, {whole, data.data()});
}

// The file would have 12 TiB.
TEST(RoundTrip, elements_take_no_memory_while_hdf5_lays_them_out) {
  constexpr int64_t numel = int64_t{1} << 40;
  std::vector<DatasetRecord> datasets;
  for (const char* name : {"a", "b", "c"}) datasets.push_back({.shard = whole_tensor(name, {numel}), .dataset = name});
  const HDF5Layout layout(datasets);
  EXPECT_GE(layout.offsets()[2], 2 * 4 * numel);
  EXPECT_LT(layout.structure({1, 2, 3}).size(), 65536u);
}

// f32 and bf16 in one file, and the bf16 tensor in two shards that meet in the middle of a row.
TEST(RoundTrip, bf16_is_kept_as_it_is) {
  const TemporaryFolder folder;
  std::vector<float> wide(15);
  std::vector<bfloat16> narrow(35);
  for (size_t i = 0; i < wide.size(); i++) wide[i] = 1.0f / static_cast<float>(i + 3);
  for (size_t i = 0; i < narrow.size(); i++) narrow[i] = bfloat16(1.0f / static_cast<float>(i + 3));
  const auto shown = [&](int64_t first, int64_t last) {
    TensorShard shard = whole_tensor("moments/a", {5, 7});
    shard.elements.begin = first;
    shard.elements.end = last;
    return ShardToWrite(shard, DType::bf16, [&narrow, first](int64_t begin, int64_t, const auto& use) {
      use(narrow.data() + first + begin);
    });
  };
  const std::array<ShardToWrite, 3> shards = {shown(0, 17), ShardToWrite{whole_tensor("b", {3, 5}), wide.data()},
                                              shown(17, 35)};
  const std::string unfinished = CheckpointStore(folder.path()).begin(4);
  Manifest manifest;
  manifest.step = 4;
  manifest.files = {file_record_from_text(to_text(RankFileWriter().write(unfinished, 0, shards)))};
  EXPECT_LT(manifest.files[0].datasets[1].offset + 2 * 35, manifest.files[0].bytes);
  const std::string path = store_of(unfinished).publish(unfinished, std::move(manifest));
  EXPECT_TRUE(verify_checkpoint(path).damaged.empty());
  EXPECT_NE(describe_checkpoint(path).find("50 elements of bf16 and f32"), std::string::npos);
  CheckpointReader reader(path);
  for (int turn = 0; turn < 2; turn++) {  // the second without checking all of a dataset
    std::vector<float> out(15);
    reader.read(whole_tensor("b", {3, 5}), out.data());
    EXPECT_EQ(out, wide);
    TensorShard middle = whole_tensor("moments/a", {5, 7});
    middle.elements.begin = 15;
    middle.elements.end = 19;
    out.resize(4);
    reader.read(middle, out.data());
    for (size_t i = 0; i < 4; i++) EXPECT_EQ(out[i], static_cast<float>(narrow[15 + i])) << i;
  }
}

void read_attribute(hid_t object, const char* name, void* value) {
  const hid_t attribute = H5Aopen(object, name, H5P_DEFAULT), type = H5Aget_type(attribute);
  EXPECT_GE(H5Aread(attribute, type, value), 0) << name;
  H5Tclose(type);
  H5Aclose(attribute);
}

TEST(RoundTrip, hdf5_itself_reads_the_file) {
  const TemporaryFolder folder;
  const std::string path = write_checkpoint(folder.path(), 5, 1, 1) + "/rank-00000.h5";
  const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
  ASSERT_GE(file, 0);
  for (const TestTensor& t : test_tensors()) {
    const TensorShard whole = whole_tensor(t.name, t.shape);
    const hid_t dataset = H5Dopen2(file, t.name.c_str(), H5P_DEFAULT);
    ASSERT_GE(dataset, 0) << t.name;
    std::vector<float> out(static_cast<size_t>(whole.numel()));
    EXPECT_GE(H5Dread(dataset, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, out.data()), 0);
    EXPECT_EQ(out, values_of(t, whole)) << t.name;
    std::vector<int64_t> elements(2);
    std::string checksum(16, ' ');
    read_attribute(dataset, "elements", elements.data());
    read_attribute(dataset, "xxh3_64", checksum.data());
    EXPECT_EQ(elements, (std::vector<int64_t>{0, whole.numel()})) << t.name;
    EXPECT_EQ(checksum, hex(checksum_of(out.data(), whole.numel() * 4))) << t.name;
    H5Dclose(dataset);
  }
  H5Fclose(file);
}

TEST(RoundTrip, hundreds_of_tensors_in_one_file) {
  const TemporaryFolder folder;
  std::vector<float> value(2000);
  std::vector<ShardToWrite> shards;
  for (size_t i = 0; i < value.size(); i++) {
    value[i] = static_cast<float>(i);
    shards.push_back({whole_tensor(fmt::format("parameters/h.{}.a_rather_long_name.weight", i), {1}), &value[i]});
  }
  const std::string path = CheckpointStore(folder.path()).begin(1);
  const FileRecord record = RankFileWriter().write(path, 0, shards);
  const std::string published = store_of(path).publish(path, {1, nlohmann::json::object(), {record}});
  EXPECT_TRUE(verify_checkpoint(published).damaged.empty());
  CheckpointReader reader(published);
  for (size_t i = 0; i < value.size(); i++) {
    float out = -1;
    reader.read(shards[i].shard, &out);
    ASSERT_EQ(out, value[i]);
  }
}

TEST(RoundTrip, a_rank_may_hold_nothing) {
  const TemporaryFolder folder;
  const std::string path = CheckpointStore(folder.path()).begin(1);
  const TensorShard whole = whole_tensor("t", {3});
  const std::vector<float> data = {1, 2, 3};
  const ShardToWrite all{whole, data.data()}, none{flat_shard("t", {3}, {3, 3}), nullptr};
  Manifest manifest{1, nlohmann::json::object(), {}};
  manifest.files.push_back(RankFileWriter().write(path, 0, {&all, 1}));
  manifest.files.push_back(RankFileWriter().write(path, 1, {&none, 1}));
  manifest.files.push_back(RankFileWriter().write(path, 2, {}));
  EXPECT_TRUE(manifest.files[1].datasets.empty());
  const std::string published = store_of(path).publish(path, manifest);
  EXPECT_TRUE(verify_checkpoint(published).damaged.empty());
  CheckpointReader reader(published);
  std::vector<float> out(3);
  reader.read(whole, out.data());
  EXPECT_EQ(out, data);
  reader.read(none.shard, nullptr);  // nothing wanted, nothing touched
}

TEST(RoundTrip, what_is_not_there_is_an_error) {
  const TemporaryFolder folder;
  CheckpointReader reader(write_checkpoint(folder.path(), 1));
  float out[128];
  EXPECT_EQ(reader.shape("scalar"), std::vector<int64_t>{1});
  EXPECT_THROW(reader.shape("parameters"), Error);
  EXPECT_EQ(reader.shape("moments/first/deep"), (std::vector<int64_t>{2, 3, 4}));
  const std::string absent = message_of([&] { reader.read(whole_tensor("parameters/h.9.ln_1.bias", {6}), out); });
  EXPECT_NE(absent.find("h.9.ln_1.bias"), std::string::npos) << absent;
  const std::string shape = message_of([&] { reader.read(whole_tensor("parameters/h.0.ln_1.bias", {7}), out); });
  EXPECT_NE(shape.find("(6)"), std::string::npos) << shape;
  EXPECT_NE(shape.find("(7)"), std::string::npos) << shape;
  EXPECT_THROW(reader.read({"scalar", {1}, 0, 1, 0, 2}, out), Error);
}

TEST(RoundTrip, a_checkpoint_with_a_hole_is_not_published) {
  const TemporaryFolder folder;
  const std::string path = CheckpointStore(folder.path()).begin(1);
  Manifest manifest{1, nlohmann::json::object(), {}};
  for (int rank : {0, 2}) manifest.files.push_back(write_rank(path, rank, 1, 3));
  const std::string message = message_of([&] { store_of(path).publish(path, manifest); });
  EXPECT_NE(message.find("no rank stored elements"), std::string::npos) << message;
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(RoundTrip, state_that_json_cannot_hold_is_refused) {
  for (const nlohmann::json& state :
       {nlohmann::json{{"a", {{"loss", NAN}}}}, nlohmann::json{{"text", "\xff\xfe"}}, nlohmann::json::array({1})}) {
    const TemporaryFolder folder;
    const std::string path = CheckpointStore(folder.path()).begin(1);
    EXPECT_THROW(store_of(path).publish(path, {1, state, {write_rank(path, 0, 1, 1)}}), Error);
    EXPECT_TRUE(fs::is_empty(folder.path()));
  }
}

TEST(RoundTrip, names_that_collide_are_refused) {
  const TemporaryFolder folder;
  const float value = 1;
  const std::string path = CheckpointStore(folder.path()).begin(1);
  const std::array<ShardToWrite, 2> shards = {ShardToWrite{whole_tensor("a", {1}), &value},
                                              ShardToWrite{whole_tensor("a/b", {1}), &value}};
  EXPECT_NE(message_of([&] { RankFileWriter().write(path, 0, shards); }).find("a/b"), std::string::npos);
  EXPECT_TRUE(fs::is_empty(path));
}

TEST(RoundTrip, inspection_names_what_is_there) {
  const TemporaryFolder folder;
  const std::string path = write_checkpoint(folder.path(), 42);
  const std::string text = describe_checkpoint(path, true), outline = describe_checkpoint(path);
  for (const char* part : {"step 42", "parameters/wte.weight", "(17, 6)", "\"samples\": 420", "2 files"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
  for (const char* part : {"step 42", "  parameters/ ", "  samples              420\n", "2 files", "--all"})
    EXPECT_NE(outline.find(part), std::string::npos) << part << " in\n" << outline;
  EXPECT_EQ(outline.find("wte.weight"), std::string::npos) << "a line for each tensor: " << outline;
}

}  // namespace
}  // namespace megalith
