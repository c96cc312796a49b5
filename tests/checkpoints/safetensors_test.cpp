// safetensors files, made byte by byte.
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <random>

#include "tests/checkpoints/raw_safetensors.h"

namespace megalith {
namespace {

using namespace test;

TEST(SafeTensors, every_half_and_every_bfloat16) {
  std::string bits(65536 * 2, '\0');
  for (uint32_t i = 0; i < 65536; i++) {
    const auto h = static_cast<uint16_t>(i);
    std::memcpy(bits.data() + i * 2, &h, 2);
  }
  const TemporaryFolder folder;
  spill(folder / "f", safetensors({{"half", {"F16", {65536}, bits}}, {"brain", {"BF16", {65536}, bits}}}));
  const SafeTensors file(folder / "f");
  std::vector<float> half(65536), brain(65536);
  file.read("half", 0, 1, 65536, half.data());
  file.read("brain", 0, 1, 65536, brain.data());
  int64_t wrong = 0;
  for (uint32_t i = 0; i < 65536; i++) {
    const int exponent = i >> 10 & 31, fraction = i & 1023;
    const double sign = i >> 15 ? -1 : 1;
    double expected = exponent ? std::ldexp(1024 + fraction, exponent - 25) : std::ldexp(fraction, -24);
    if (exponent == 31) expected = fraction ? NAN : INFINITY;
    const float want = static_cast<float>(std::copysign(expected, sign));
    wrong +=
        std::isnan(want) ? !std::isnan(half[i]) : std::bit_cast<uint32_t>(half[i]) != std::bit_cast<uint32_t>(want);
    wrong += std::bit_cast<uint32_t>(brain[i]) != i << 16;
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_THROW(file.read("half", 65535, 1, 2, half.data()), Error);
  EXPECT_THROW(file.read("half", 0, INT64_MAX, 2, half.data()), Error);
  EXPECT_THROW(file.read("half", -1, 1, 1, half.data()), Error);
  EXPECT_THROW(file.read("absent", 0, 1, 1, half.data()), Error);
}

TEST(SafeTensors, malformed_files_are_refused) {
  const TemporaryFolder folder;
  const auto refused = [&](const std::string& bytes, const std::string& part) {
    spill(folder / "f", bytes);
    const std::string message = message_of([&] { SafeTensors file(folder / "f"); });
    expect_part(message, folder / "f");
    expect_part(message, part);
  };
  const std::string eight(8, 'x');
  refused("", "0 bytes");
  refused(std::string(8, '\xff') + "{}", "header");
  refused(with_header("[]", ""), "object");
  refused(with_header("{", ""), "header");
  refused(with_header(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", eight + "y"), "end at");
  refused(with_header(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", "x"), "truncated");
  refused(with_header(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", eight), "3 elements");
  refused(with_header(R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", eight), "dimension");
  refused(with_header(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", eight), "[8, 0)");
  refused(with_header(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0]}})", eight), "offsets");
  refused(
      with_header(R"({"a":{"dtype":"F32","shape":[9007199254740993,9007199254740993,4],"data_offsets":[0,8]}})", eight),
      "too large");
  refused(
      with_header(
          R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
          eight),
      "overlap");
  refused(with_header(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", eight), "gap");
  refused(with_header(R"({"a":{"shape":[2],"data_offsets":[0,8]}})", eight), "dtype");

  const std::string good = safetensors(small_tensors());
  for (size_t length = 0; length < good.size(); length += 1 + length / 20) refused(good.substr(0, length), "");
}

TEST(SafeTensors, any_changed_byte_of_the_header_is_survived) {
  Model model(small_tensors(), config_of(small));
  const std::string path = model.path() + "/model.safetensors";
  const std::string bytes = read_file(path);
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  std::mt19937 random(1);
  for (size_t i = 0; i < 8 + length; i++) {
    poke(path, i, {static_cast<char>(random())});
    try {
      HuggingFaceReader reader = open_gpt2(model.path());
      for (const StoredParameter& p : gpt2_parameters(small)) {
        const TensorShard whole = whole_tensor("parameters/" + p.name, p.shape);
        std::vector<float> out(static_cast<size_t>(whole.numel()));
        reader.read(whole, out.data());
      }
    } catch (const Error&) {
    }
    poke(path, i, {bytes[i]});
  }
}

TEST(SafeTensors, the_writer_wants_every_element) {
  const TemporaryFolder folder;
  const std::vector<float> data = {1, 2, 3, 4, 5, 6};
  {
    SafeTensorsWriter writer(folder / "f", {{"a", {2, 2}}, {"b", {2}}});
    writer.append(data.data(), 3);
    EXPECT_THROW(writer.finish(), Error);
    writer.append(data.data() + 3, 3);
    EXPECT_THROW(writer.append(data.data(), 1), Error);
    EXPECT_FALSE(fs::exists(folder / "f"));
    writer.finish();
  }
  const SafeTensors file(folder / "f");
  std::array<float, 2> out{};
  file.read("b", 0, 1, 2, out.data());
  EXPECT_EQ(out, (std::array<float, 2>{5, 6}));
  file.read("a", 1, 2, 2, out.data());
  EXPECT_EQ(out, (std::array<float, 2>{2, 4}));
  { SafeTensorsWriter abandoned(folder / "g", {{"a", {2}}}); }
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 1);
}

}  // namespace
}  // namespace megalith
