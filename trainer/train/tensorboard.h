// Writes a run's measurements as TensorBoard's event files: TFRecords, each an Event message in protobuf's wire format.
// Sources: tensorflow/core/lib/io/record_writer.h (record: length, masked CRC32C of it, data, masked CRC32C of that),
// tensorflow/core/lib/hash/crc32c.h (mask), tensorflow/core/util/event.proto and
// tensorflow/core/framework/summary.proto (fields), RFC 3720 (CRC32C).
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trainer/log/retrying_file.h"

namespace megalith {

uint32_t crc32c(std::string_view bytes);

std::string event_record(std::string_view event);

// wall_time is in seconds since 1970.
std::string version_event(double wall_time);  // begins a file
// Makes readers drop `step` and later steps of earlier files.
std::string start_event(double wall_time, int64_t step);
std::string scalars_event(double wall_time, int64_t step, const std::vector<std::pair<std::string, double>>& values);

// The event file of one start of a run. Its tags are the keys of metrics.jsonl, or KEY/NAME for the numbers of an
// object.
class EventFile {
 public:
  // Begins a file in `folder`. TensorBoard then shows only steps up to `completed` from earlier files.
  EventFile(const std::string& folder, int64_t completed, double unix_time);

  // Writes the numbers of a line of metrics.jsonl at its "step" and "unix_time".
  void append(const nlohmann::ordered_json& line);
  std::string sync() { return file_.sync(); }

 private:
  RetryingFile file_;
};

}  // namespace megalith
