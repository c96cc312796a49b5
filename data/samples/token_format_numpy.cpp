// numpy's .npy files (numpy.lib.format, versions 1 to 3): a magic, a version, a header that is a Python dictionary
// {'descr': '<u2', 'fortran_order': False, 'shape': (4000,), }, then the array, here of integers, read row after row.
#include <map>

#include "data/samples/token_formats.h"

namespace megalith {

namespace {

constexpr std::string_view npy_magic = "\x93NUMPY";

struct ArrayHeader {
  std::string type;  // "<u2"
  bool by_columns = false;
  uint64_t elements = 0;
  size_t dims = 0;
  size_t bytes = 0;  // before the array
};

// Returns the text after `'key':` up to the next comma or bracket.
std::string value_of(std::string_view header, std::string_view key) {
  const size_t at = header.find(fmt::format("'{}':", key));
  if (at == std::string_view::npos) return "";
  std::string_view rest = header.substr(at + key.size() + 3);
  rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
  const char end = rest.starts_with('(') ? ')' : ',';
  return std::string(rest.substr(0, std::min(rest.find(end), rest.size())));
}

ArrayHeader header_of(const MappedFile& file) {
  const std::string& path = file.path();
  const size_t size = file.bytes().size();
  const auto check_has = [&](uint64_t bytes) {
    CHECK(size >= bytes, "{} has {} bytes; its header is {}: it is truncated", path, size, bytes);
  };
  check_has(12);
  std::array<uint8_t, 12> begin;
  file.read(0, begin.data(), begin.size());
  const int version = begin[6];
  CHECK(version >= 1 && version <= 3, "{} is a numpy file of version {}; supported are 1 to 3", path, version);
  const auto byte = [&](size_t i) { return size_t{begin[i]}; };
  ArrayHeader header;
  const size_t at = version == 1 ? 10 : 12;
  const size_t length = byte(8) | byte(9) << 8 | (version == 1 ? 0 : byte(10) << 16 | byte(11) << 24);
  header.bytes = at + length;
  check_has(header.bytes);
  std::string text(length, '\0');
  file.read(static_cast<int64_t>(at), text.data(), static_cast<int64_t>(length));
  std::string type = value_of(text, "descr");
  if (type.size() > 2 && type.front() == '\'' && type.back() == '\'') type = type.substr(1, type.size() - 2);
  header.type = type;
  header.by_columns = value_of(text, "fortran_order") != "False";
  const std::string shape = value_of(text, "shape");
  CHECK(shape.starts_with('('), "{}: the header of the array is damaged: {}", path, text);
  header.elements = 1;
  for (size_t i = 1; i < shape.size();) {
    const size_t end = std::min(shape.find(',', i), shape.size());
    const std::string_view word = std::string_view(shape).substr(i, end - i);
    i = end + 1;
    uint64_t n = 0;
    bool is_number = false;
    for (const char c : word) {
      if (c == ' ') continue;
      is_number = c >= '0' && c <= '9' && n < (uint64_t{1} << 56);
      if (!is_number) break;
      n = n * 10 + static_cast<uint64_t>(c - '0');
    }
    if (word.find_first_not_of(' ') == std::string_view::npos) continue;
    CHECK(is_number && (n == 0 || header.elements <= (uint64_t{1} << 56) / n),
          "{}: an array of the shape {}); it is damaged", path, shape);
    header.elements *= n;
    header.dims++;
  }
  return header;
}

template <class T>
std::unique_ptr<TokenSource> packed(std::unique_ptr<MappedFile> file, size_t offset) {
  return std::make_unique<PackedTokens<T>>(std::move(file), offset);
}

}  // namespace

bool has_npy_magic(const std::string& path) {
  const MappedFile file(path);
  std::string begin(npy_magic.size(), '\0');
  if (file.bytes().size() < begin.size()) return false;
  file.read(0, begin.data(), static_cast<int64_t>(begin.size()));
  return begin == npy_magic;
}

std::unique_ptr<TokenSource> open_npy(const std::string& path) {
  using Make = std::unique_ptr<TokenSource> (*)(std::unique_ptr<MappedFile>, size_t);
  static const std::map<std::string, std::pair<Make, size_t>> types = {
      {"|u1", {packed<uint8_t>, 1}},  {"<u2", {packed<uint16_t>, 2}}, {"<u4", {packed<uint32_t>, 4}},
      {"<u8", {packed<uint64_t>, 8}}, {"|i1", {packed<int8_t>, 1}},   {"<i2", {packed<int16_t>, 2}},
      {"<i4", {packed<int32_t>, 4}},  {"<i8", {packed<int64_t>, 8}}};
  auto file = std::make_unique<MappedFile>(path);
  const ArrayHeader header = header_of(*file);
  const auto type = types.find(header.type);
  CHECK(
      type != types.end(),
      "{} is an array of {}, but tokens are little-endian integers; save it with numpy.save(name, array.astype('<u4'))",
      path, header.type.empty() ? "an unknown type" : header.type);
  CHECK(!header.by_columns || header.dims < 2,
        "{} is an array in column order (fortran_order); save it with numpy.save(name, numpy.ascontiguousarray(array))",
        path);
  CHECK(header.elements > 0, "{} is an array without elements; leave it out", path);
  const uint64_t want = header.bytes + header.elements * type->second.second;
  CHECK(file->bytes().size() == want,
        "{} has a header for {} tokens, {} bytes in all, but the file has {}; it is truncated or damaged", path,
        header.elements, want, file->bytes().size());
  return type->second.first(std::move(file), header.bytes);
}

}  // namespace megalith
