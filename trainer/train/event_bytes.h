// TensorBoard's event files, as bytes: records of TensorFlow's TFRecord format, each a message Event of
// tensorflow/core/util/event.proto in protobuf's wire format. Sources: tensorflow/core/lib/io/record_writer.h (the
// record: length, masked CRC32C of it, data, masked CRC32C of that), tensorflow/core/lib/hash/crc32c.h (the mask),
// tensorflow/core/util/event.proto and tensorflow/core/framework/summary.proto (the fields). CRC32C is RFC 3720's.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace megalith {

uint32_t crc32c(std::string_view bytes);

std::string event_record(std::string_view event);

// Events; wall_time in seconds since 1970.
std::string version_event(double wall_time);  // the first of a file
// Whoever reads it forgets what earlier files say of `step` and later ones.
std::string start_event(double wall_time, int64_t step);
std::string scalars_event(double wall_time, int64_t step, const std::vector<std::pair<std::string, double>>& values);

}  // namespace megalith
