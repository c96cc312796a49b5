#include "trainer/train/tensorboard.h"

#include <unistd.h>

#include <array>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "trainer/log/log.h"

namespace megalith {

namespace {

static_assert(std::endian::native == std::endian::little);

template <class T>
std::string bytes_of(T value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
  return bytes + static_cast<char>(value);
}

enum Wire : uint64_t { wire_varint = 0, wire_64 = 1, wire_bytes = 2, wire_32 = 5 };
std::string key(uint64_t field, Wire wire) { return varint(field << 3 | wire); }
std::string number_field(uint64_t field, int64_t value) {
  return key(field, wire_varint) + varint(static_cast<uint64_t>(value));
}
std::string double_field(uint64_t field, double value) { return key(field, wire_64) + bytes_of(value); }
std::string float_field(uint64_t field, float value) { return key(field, wire_32) + bytes_of(value); }
std::string bytes_field(uint64_t field, std::string_view value) {
  return key(field, wire_bytes) + varint(value.size()) + std::string(value);
}

// Fields of event.proto and summary.proto.
enum Event : uint64_t { wall_time_field = 1, step_field = 2, file_version = 3, summary = 5, session_log = 7 };
enum Summary : uint64_t { value_field = 1 };
enum SummaryValue : uint64_t { tag_field = 1, simple_value = 2 };
enum SessionLog : uint64_t { status_field = 1 };
constexpr int64_t session_start = 1;

std::string masked_crc(std::string_view bytes) {
  const uint32_t crc = crc32c(bytes);
  return bytes_of<uint32_t>(std::rotr(crc, 15) + 0xa282ead8u);
}

// TensorBoard finds files by ".tfevents." and reads them in the order of their names. `completed` orders starts within
// a second.
std::string new_file(const std::string& folder, int64_t completed, double unix_time) {
  make_folders(folder, "it is for run.tensorboard = true; choose another run.output");
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  return fmt::format("{}/events.out.tfevents.{:010}.{:012}.{}.{}", folder, static_cast<int64_t>(unix_time), completed,
                     host, ::getpid());
}

void add_numbers(std::vector<std::pair<std::string, double>>& values, const std::string& tag,
                 const nlohmann::ordered_json& value) {
  if (value.is_number()) values.emplace_back(tag, value.get<double>());
  if (!value.is_object()) return;
  for (const auto& [name, part] : value.items()) add_numbers(values, tag + "/" + name, part);
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  static const std::array<uint32_t, 256> table = [] {
    std::array<uint32_t, 256> t{};
    for (uint32_t i = 0; i < 256; i++) {
      uint32_t crc = i;
      for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
      t[i] = crc;
    }
    return t;
  }();
  uint32_t crc = ~0u;
  for (const char c : bytes) crc = crc >> 8 ^ table[(crc ^ static_cast<unsigned char>(c)) & 0xff];
  return ~crc;
}

std::string event_record(std::string_view event) {
  const std::string length = bytes_of<uint64_t>(event.size());
  return length + masked_crc(length) + std::string(event) + masked_crc(event);
}

std::string version_event(double wall_time) {
  return double_field(wall_time_field, wall_time) + bytes_field(file_version, "brain.Event:2");
}

std::string start_event(double wall_time, int64_t step) {
  return double_field(wall_time_field, wall_time) + number_field(step_field, step) +
         bytes_field(session_log, number_field(status_field, session_start));
}

std::string scalars_event(double wall_time, int64_t step, const std::vector<std::pair<std::string, double>>& values) {
  std::string all;
  for (const auto& [tag, value] : values)
    all += bytes_field(value_field, bytes_field(tag_field, tag) + float_field(simple_value, static_cast<float>(value)));
  return double_field(wall_time_field, wall_time) + number_field(step_field, step) + bytes_field(summary, all);
}

EventFile::EventFile(const std::string& folder, int64_t completed, double unix_time)
    : file_(new_file(folder, completed, unix_time), false,
            [](const std::string& trouble) { log_warning("{}", trouble); }) {
  file_.append(event_record(version_event(unix_time)) + event_record(start_event(unix_time, completed + 1)));
}

void EventFile::append(const nlohmann::ordered_json& line) {
  static const std::set<std::string> time = {"step", "tokens_so_far", "unix_time", "seconds_since_start"};
  std::vector<std::pair<std::string, double>> values;
  for (const auto& [key, value] : line.items())
    if (!time.contains(key)) add_numbers(values, key, value);
  file_.append(event_record(scalars_event(line.at("unix_time").get<double>(), line.at("step").get<int64_t>(), values)));
}

}  // namespace megalith
