// TensorBoard's event files, byte by byte; tests/end_to_end/watching_test.cpp has TensorBoard open them.
#include "trainer/train/tensorboard.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/data/scratch.h"

namespace megalith {
namespace {

std::string hex_of(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return text;
}

// The examples of RFC 3720, B.4, and the usual check value.
TEST(Crc32c, IsThatOfTheStandard) {
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  std::string counting;
  for (int i = 0; i < 32; i++) counting += static_cast<char>(i);
  EXPECT_EQ(crc32c(counting), 0x46dd794eu);
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(crc32c(""), 0u);
}

TEST(EventBytes, AreThoseOfTheWireFormat) {
  // 1.5 s; file_version; step 300 is the varint ac 02.
  EXPECT_EQ(hex_of(version_event(1.5)),
            "09000000000000f83f"
            "1a0d" +
                hex_of("brain.Event:2"));
  EXPECT_EQ(hex_of(start_event(1.5, 300)),
            "09000000000000f83f"
            "10ac02"
            "3a020801");
  EXPECT_EQ(hex_of(scalars_event(1.5, 1, {{"a", 2}, {"bc", -0.5}})),
            "09000000000000f83f"
            "1001"
            "2a15"
            "0a080a01"
            "61"
            "15"
            "00000040"
            "0a090a02"
            "6263"
            "15"
            "000000bf");
}

TEST(EventBytes, RecordsHaveLengthAndMaskedSums) {
  const std::string record = event_record("123456789");
  ASSERT_EQ(record.size(), 8u + 4 + 9 + 4);
  EXPECT_EQ(hex_of(record.substr(0, 8)), "0900000000000000");
  EXPECT_EQ(record.substr(12, 9), "123456789");
  // e3069283 turned right by 15 is 2507c60d; plus a282ead8.
  EXPECT_EQ(hex_of(record.substr(21)), "e5b08ac7");
}

TEST(EventFile, HasTheNumbersOfALine) {
  const test::Scratch scratch;
  {
    EventFile file(scratch.path("events"), 4, 1000);
    file.append({{"step", 5},
                 {"loss", 2.5},
                 {"grad_norm", nullptr},
                 {"skipped", "norm"},
                 {"time", {{"GEMM", 0.25}}},
                 {"samples", {8, 16}},
                 {"tokens_so_far", 64},
                 {"seconds_since_start", 3},
                 {"unix_time", 1003}});
  }
  { const EventFile later(scratch.path("events"), 5, 1000); }
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(scratch.path("events"))) names.push_back(entry.path());
  std::ranges::sort(names);
  ASSERT_EQ(names.size(), 2u) << "a file for each start";
  EXPECT_NE(names[0].find(".tfevents."), std::string::npos);
  EXPECT_EQ(read_file(names[0]), event_record(version_event(1000)) + event_record(start_event(1000, 5)) +
                                     event_record(scalars_event(1003, 5, {{"loss", 2.5}, {"time/GEMM", 0.25}})));
  EXPECT_EQ(read_file(names[1]), event_record(version_event(1000)) + event_record(start_event(1000, 6)));
}

}  // namespace
}  // namespace megalith
