#include "checkpoints/safetensors.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "kernels/system/json.h"
#include "kernels/tensor/tensor.h"

namespace megalith {
namespace {

constexpr int64_t length_bytes = 8;              // bytes of the header's length, at the beginning of the file
constexpr int64_t largest_header = 100'000'000;  // the limit of the format's own readers
constexpr int64_t largest_tensor = int64_t{1} << 56;

// Returns the bytes of an element, or 0 for an unknown type, whose size cannot be checked.
int64_t element_bytes(const std::string& dtype) {
  if (dtype == "F64" || dtype == "I64" || dtype == "U64") return 8;
  if (dtype == "F32" || dtype == "I32" || dtype == "U32") return 4;
  if (dtype == "F16" || dtype == "BF16" || dtype == "I16" || dtype == "U16") return 2;
  if (dtype == "I8" || dtype == "U8" || dtype == "BOOL" || dtype == "F8_E4M3" || dtype == "F8_E5M2") return 1;
  return 0;
}

template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));  // the format does not align tensors
  return value;
}

template <class T>
void to_floats(const std::byte* from, int64_t first, int64_t stride, int64_t count, float* out) {
  if (std::is_same_v<T, float> && stride == 1) {
    std::memcpy(out, from + first * 4, static_cast<size_t>(count) * 4);
    return;
  }
  for (int64_t i = 0; i < count; i++)
    out[i] = static_cast<float>(load<T>(from + (first + i * stride) * static_cast<int64_t>(sizeof(T))));
}

SafeTensors::Entry entry_from(const nlohmann::json& j, const std::string& name, const std::string& path, int64_t start,
                              int64_t bytes) {
  SafeTensors::Entry e;
  e.dtype = j.at("dtype").get<std::string>();
  e.numel = 1;
  for (const auto& d : j.at("shape")) {
    CHECK(d.is_number_unsigned() && d.get<uint64_t>() <= static_cast<uint64_t>(largest_tensor),
          "{}: tensor {} has a dimension of {}", path, name, json_text(d));
    e.shape.push_back(d.get<int64_t>());
    CHECK(e.shape.back() == 0 || e.numel <= largest_tensor / e.shape.back(), "{}: the shape of tensor {} is too large",
          path, name);
    e.numel *= e.shape.back();
  }
  const auto& offsets = j.at("data_offsets");
  CHECK(offsets.is_array() && offsets.size() == 2 && offsets[0].is_number_unsigned() && offsets[1].is_number_unsigned(),
        "{}: tensor {} has offsets {}", path, name, json_text(offsets));
  const auto begin = offsets[0].get<uint64_t>(), end = offsets[1].get<uint64_t>(),
             size = static_cast<uint64_t>(bytes - start);
  CHECK(begin <= end && end <= size, "{}: tensor {} is at [{}, {}) of {} bytes: the file is truncated or damaged", path,
        name, begin, end, size);
  e.begin = start + static_cast<int64_t>(begin);
  e.end = start + static_cast<int64_t>(end);
  const int64_t element = element_bytes(e.dtype);
  CHECK(element == 0 || e.end - e.begin == e.numel * element, "{}: tensor {} has {} bytes for {} elements of {}", path,
        name, e.end - e.begin, e.numel, e.dtype);
  return e;
}

}  // namespace

SafeTensors::SafeTensors(const std::string& path) : file_(path) {
  const auto bytes = static_cast<int64_t>(file_.bytes().size());
  CHECK(bytes > length_bytes, "{} has {} bytes: it is truncated, or not a safetensors file", path, bytes);
  uint64_t length = 0;
  file_.read(0, &length, length_bytes);
  CHECK(length <= static_cast<uint64_t>(std::min(largest_header, bytes - length_bytes)),
        "{} has {} bytes, and declares a header of {}: it is truncated, or not a safetensors file", path, bytes,
        length);
  std::string header(length, '\0');
  file_.read(length_bytes, header.data(), static_cast<int64_t>(length));
  const int64_t start = length_bytes + static_cast<int64_t>(length);
  try {
    const nlohmann::json j = parse_json_of_single_names(header);
    CHECK(j.is_object(), "the header of {} is not a JSON object", path);
    for (const auto& [name, value] : j.items())
      if (name != "__metadata__") entries_.emplace(name, entry_from(value, name, path, start, bytes));
  } catch (const nlohmann::json::exception& e) {
    FAIL("the header of {} cannot be read: {}", path, e.what());
  }

  std::vector<std::pair<const Entry*, const std::string*>> order;
  for (const auto& [name, e] : entries_) order.emplace_back(&e, &name);
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first->begin, a.first->end) < std::pair(b.first->begin, b.first->end);
  });
  int64_t position = start;
  for (const auto& [e, name] : order) {
    CHECK(e->begin == position, "{}: tensor {} begins at byte {}, expected {}: tensors overlap or leave a gap", path,
          *name, e->begin, position);
    position = e->end;
  }
  CHECK(position == bytes, "{} has {} bytes, but its tensors end at {}", path, bytes, position);
}

const SafeTensors::Entry& SafeTensors::entry(const std::string& name) const {
  const auto it = entries_.find(name);
  CHECK(it != entries_.end(), "{} has no tensor {}", path(), name);
  return it->second;
}

void SafeTensors::read(const std::string& name, int64_t first, int64_t stride, int64_t count, float* out) const {
  const Entry& e = entry(name);
  if (count == 0) return;
  CHECK(count > 0 && first >= 0 && stride >= 1 && first < e.numel && count - 1 <= (e.numel - 1 - first) / stride,
        "{} elements of {} from {} at stride {}, of {}", count, name, first, stride, e.numel);
  const std::byte* from = file_.bytes().data() + e.begin;
  const auto convert = e.dtype == "F32"    ? &to_floats<float>
                       : e.dtype == "F16"  ? &to_floats<float16>
                       : e.dtype == "BF16" ? &to_floats<bfloat16>
                                           : nullptr;
  CHECK(convert, "{}: tensor {} is stored as {}; F32, F16 and BF16 can be read", path(), name, e.dtype);
  file_.reading([=] { convert(from, first, stride, count, out); });
}

SafeTensorsWriter::SafeTensorsWriter(const std::string& path, const std::vector<Declared>& tensors, DType type)
    : file_(path), type_(type) {
  CHECK(type == DType::f32 || type == DType::bf16, "{}: tensors of {}; F32 and BF16 are written", path, name_of(type));
  nlohmann::ordered_json header;
  header["__metadata__"] = {{"format", "pt"}};  // required by `transformers`
  int64_t data = 0;
  for (const Declared& t : tensors) {
    int64_t bytes = size_of(type);
    for (int64_t d : t.shape) bytes *= d;
    CHECK(!header.contains(t.name), "tensor {} is declared twice", t.name);
    header[t.name] = {
        {"dtype", type == DType::f32 ? "F32" : "BF16"}, {"shape", t.shape}, {"data_offsets", {data, data + bytes}}};
    data += bytes;
  }
  std::string text = json_text(header);
  text.resize((text.size() + 7) / 8 * 8, ' ');  // aligns the tensors
  const auto length = static_cast<uint64_t>(text.size());
  position_ = length_bytes + static_cast<int64_t>(length);
  bytes_ = position_ + data;
  file_.reserve(bytes_);
  file_.write(0, &length, length_bytes);
  file_.write(length_bytes, text.data(), static_cast<int64_t>(length));
}

void SafeTensorsWriter::append(const float* data, int64_t count) {
  const int64_t each = size_of(type_);
  CHECK(position_ + count * each <= bytes_, "{} elements more than the shapes declared for {}",
        position_ / each + count - bytes_ / each, file_.path());
  if (type_ == DType::f32) {
    file_.write(position_, data, count * each);
  } else {
    std::vector<bfloat16> rounded(static_cast<size_t>(count));
    std::transform(data, data + count, rounded.begin(), [](float value) { return bfloat16(value); });
    file_.write(position_, rounded.data(), count * each);
  }
  position_ += count * each;
}

void SafeTensorsWriter::finish() {
  CHECK(position_ == bytes_, "{}: {} bytes of tensors are missing", file_.path(), bytes_ - position_);
  file_.publish();
}

}  // namespace megalith
