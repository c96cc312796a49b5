#include "checkpoints/hdf5_structure.h"

#include <map>
#include <optional>

#include "checkpoints/checksum.h"

namespace megalith {
namespace {

constexpr uint64_t undefined = ~uint64_t{0};                   // an address that leads nowhere
constexpr uint64_t most_symbols = 8, most_children = 32;       // of a node: twice the K of the superblock
constexpr uint64_t largest_block = 1 << 16, most_blocks = 64;  // of an object header; ours has one or two
constexpr uint64_t largest_heap = uint64_t{1} << 32;           // of the names of a group

// --- Bytes ----------------------------------------------------------------------------------------------------------

// Some of the file, taken from front to back.
class Bytes {
 public:
  explicit Bytes(std::string bytes) : bytes_(std::move(bytes)) {}

  size_t left() const { return bytes_.size() - at_; }
  std::string take(size_t count) {
    CHECK_INTACT(count <= left(), "{} bytes are taken from a part that has {} left", count, left());
    at_ += count;
    return bytes_.substr(at_ - count, count);
  }
  uint64_t number(size_t width) {
    const std::string bytes = take(width);
    uint64_t value = 0;
    for (size_t i = width; i-- > 0;) value = value << 8 | static_cast<uint8_t>(bytes[i]);
    return value;
  }
  // As the parts of an attribute are stored.
  std::string take_padded(size_t count) {
    std::string bytes = take(count);
    take((8 - count % 8) % 8);
    return bytes;
  }

 private:
  std::string bytes_;
  size_t at_ = 0;
};

std::string bytes_of(std::initializer_list<int> values) {
  std::string bytes;
  for (const int value : values) bytes += static_cast<char>(value);
  return bytes;
}

std::string little_endian(int64_t value, size_t width) {
  std::string bytes;
  for (size_t i = 0; i < width; i++) bytes += static_cast<char>(static_cast<uint64_t>(value) >> 8 * i);
  return bytes;
}

// --- Messages of object headers -------------------------------------------------------------------------------------

enum MessageType : uint64_t {
  no_message = 0x00,
  dataspace_message = 0x01,
  datatype_message = 0x03,
  fill_value_message = 0x05,
  layout_message = 0x08,
  attribute_message = 0x0c,
  continuation_message = 0x10,
  symbol_table_message = 0x11,
};

struct Message {
  uint64_t type;
  Bytes data;
};

// Datatypes: class and version, bits of the class, size; then the first bit and how many, and of floats where exponent
// and mantissa lie, and the bias.
std::string f32_type() { return bytes_of({0x11, 0x20, 0x1f, 0, 4, 0, 0, 0, 0, 0, 32, 0, 23, 8, 0, 23, 127, 0, 0, 0}); }
std::string u16_type() { return bytes_of({0x10, 0, 0, 0, 2, 0, 0, 0, 0, 0, 16, 0}); }
std::string i64_type() { return bytes_of({0x10, 8, 0, 0, 8, 0, 0, 0, 0, 0, 64, 0}); }
std::string text_type(size_t length) {
  return bytes_of({0x13, 0, 0, 0}) + little_endian(static_cast<int64_t>(length), 4);
}

struct Attribute {
  std::string type;
  std::optional<uint64_t> length;  // none: a scalar
  std::string data;
  bool operator==(const Attribute&) const = default;
};
using Attributes = std::map<std::string, Attribute>;

Attribute attribute_of(const std::string& text) { return {text_type(text.size()), {}, text}; }
Attribute attribute_of(const std::vector<int64_t>& values) {
  std::string data;
  for (const int64_t value : values) data += little_endian(value, 8);
  return {i64_type(), values.size(), data};
}

Attributes attributes_of(const DatasetRecord& d) {
  return {{"tensor", attribute_of(d.piece.name)},
          {"shape", attribute_of(d.piece.shape)},
          {"columns", attribute_of(std::vector{d.piece.col_begin, d.piece.col_end})},
          {"elements", attribute_of(std::vector{d.piece.begin, d.piece.end})},
          {"xxh3_64", attribute_of(hex(d.checksum))}};
}
Attributes attributes_of_root() {
  return {{"format", attribute_of("megalith checkpoint")}, {"version", attribute_of(std::vector<int64_t>{1})}};
}

// The elements of a dataspace of one dimension; none: it has no dimension.
std::optional<uint64_t> length_of(Bytes space) {
  CHECK_INTACT(space.number(1) == 1, "a dataspace is of another version than 1");
  const uint64_t dims = space.number(1), limits = space.number(1);
  space.take(5);
  CHECK_INTACT(dims <= 1 && limits <= dims, "a dataspace has {} dimensions, and the flags {}", dims, limits);
  if (dims == 0) return {};
  const uint64_t length = space.number(8);
  CHECK_INTACT(limits == 0 || space.number(8) == length, "a dataspace of {} elements can grow", length);
  return length;
}

void add_attribute(Bytes data, Attributes& attributes) {
  CHECK_INTACT(data.number(2) == 1, "an attribute is of another version than 1");
  const uint64_t name_bytes = data.number(2), type_bytes = data.number(2), space_bytes = data.number(2);
  const std::string name = data.take_padded(name_bytes);
  Attribute attribute;
  attribute.type = data.take_padded(type_bytes);
  attribute.length = length_of(Bytes(data.take_padded(space_bytes)));
  // What follows the elements only fills the message.
  const uint64_t size = attribute.type.size() < 8 ? 0 : Bytes(attribute.type.substr(4)).number(4);
  attribute.data =
      data.take(attribute.length.value_or(1) <= largest_block ? size * attribute.length.value_or(1) : size);
  CHECK_INTACT(name_bytes > 0 && name.find('\0') == name.size() - 1,
               "the name of an attribute does not end where it has to");
  CHECK_INTACT(attributes.emplace(name.substr(0, name.size() - 1), attribute).second,
               "an attribute has the name of another");
}

// --- The file -------------------------------------------------------------------------------------------------------

class Structure {
 public:
  Structure(const File& file, const FileRecord& record) : file_(file), bytes_(static_cast<uint64_t>(file.size())) {
    for (const DatasetRecord& d : record.datasets) {
      CHECK_INTACT(missing_.emplace(d.dataset, &d).second, "the manifest lists dataset {} twice", d.dataset);
      longest_name_ = std::max<uint64_t>(longest_name_, d.dataset.size());
    }
  }

  void compare(std::vector<std::string>& differences) {
    Bytes superblock = read(0, 96);
    CHECK_INTACT(superblock.take(8) == "\x89HDF\r\n\x1a\n", "it does not begin as HDF5 does");
    CHECK_INTACT(superblock.take(8) == bytes_of({0, 0, 0, 0, 0, 8, 8, 0}),
                 "the superblock is of other versions, or of other sizes of addresses and lengths");
    CHECK_INTACT(superblock.number(2) * 2 == most_symbols && superblock.number(2) * 2 == most_children,
                 "the superblock has groups with nodes of another size");
    CHECK_INTACT(superblock.number(4) == 0 && superblock.number(8) == 0 && superblock.number(8) == undefined,
                 "the superblock has flags, a block of a user before it, or a list of free space");
    CHECK_INTACT(superblock.number(8) == bytes_ && superblock.number(8) == undefined,
                 "the superblock names another end of the file, or a driver");
    superblock.number(8);  // the name of the root, which has none
    const uint64_t header = superblock.number(8);
    CHECK_INTACT(superblock.number(8) == 1, "the root is not told to be a group");
    read_group("", header, superblock.take(16), differences);
    for (const auto& [name, d] : missing_) differences.push_back("no dataset " + name + " is there");
  }

 private:
  Bytes read(uint64_t address, uint64_t count) const {
    CHECK_INTACT(address <= bytes_ && count <= bytes_ - address, "{} bytes at {} are outside of its {}", count, address,
                 bytes_);
    std::string bytes(count, '\0');
    file_.read(static_cast<int64_t>(address), bytes.data(), static_cast<int64_t>(count));
    return Bytes(std::move(bytes));
  }

  // Those that say something, with the attributes apart.
  std::vector<Message> messages(uint64_t header, Attributes& attributes) const {
    Bytes prefix = read(header, 16);
    CHECK_INTACT(prefix.number(2) == 1, "the object header at {} is of another version than 1", header);
    const uint64_t count = prefix.number(2);
    CHECK_INTACT(prefix.number(4) == 1, "what lies at {} has other names as well", header);
    std::vector<std::pair<uint64_t, uint64_t>> blocks = {{header + 16, prefix.number(4)}};
    std::vector<Message> found;
    uint64_t num_messages = 0;
    for (size_t i = 0; i < blocks.size(); i++) {
      const auto [address, size] = blocks[i];
      CHECK_INTACT(size <= largest_block && i < most_blocks, "the object header at {} is too large", header);
      for (Bytes block = read(address, size); block.left() > 0; num_messages++) {
        const uint64_t type = block.number(2), bytes = block.number(2), flags = block.number(1);
        block.take(3);
        CHECK_INTACT(bytes % 8 == 0 && flags <= 1,
                     "the object header at {} has a message of {} bytes with the flags {}", header, bytes, flags);
        Bytes data(block.take(bytes));
        if (type == continuation_message) {
          const uint64_t more = data.number(8);
          blocks.emplace_back(more, data.number(8));
        } else if (type == attribute_message) {
          add_attribute(std::move(data), attributes);
        } else if (type != no_message) {
          found.push_back({type, std::move(data)});
        }
      }
    }
    CHECK_INTACT(num_messages == count, "the object header at {} has {} messages, and counts {}", header, num_messages,
                 count);
    return found;
  }

  struct Heap {
    uint64_t bytes, address;
  };

  Heap read_heap(uint64_t address) const {
    Bytes head = read(address, 32);
    CHECK_INTACT(head.take(4) == "HEAP" && head.number(4) == 0, "the names at {} are no heap of version 0", address);
    const uint64_t bytes = head.number(8), free = head.number(8), begin = head.number(8);
    CHECK_INTACT(0 < bytes && bytes <= largest_heap && begin <= bytes_ && bytes <= bytes_ - begin,
                 "{} bytes of names at {} are outside of its {}", bytes, begin, bytes_);
    // A free block says where the next one is, 1: nowhere, and how large it is. Ours has one, at the end.
    if (free != 1) {
      CHECK_INTACT(free < bytes && bytes - free >= 16, "the names at {} are free from byte {} on, of {}", address, free,
                   bytes);
      Bytes block = read(begin + free, 16);
      CHECK_INTACT(block.number(8) == 1 && block.number(8) == bytes - free, "the names at {} end elsewhere", address);
    }
    return {bytes, begin};
  }

  std::string name_at(const Heap& heap, uint64_t offset) const {
    CHECK_INTACT(offset < heap.bytes, "a name at {} is outside of its heap", offset);
    const uint64_t most = std::min(heap.bytes - offset, longest_name_ + 1);
    std::string name = read(heap.address + offset, most).take(most);
    const size_t end = name.find('\0');
    CHECK_INTACT(end != std::string::npos, "a name at {} of a heap is none of the manifest's", offset);
    return name.substr(0, end);
  }

  // What `path`, empty or with a slash at its end, holds. `known` is what the name of the group repeats of its header:
  // where tree and names lie.
  void read_group(const std::string& path, uint64_t header, const std::string& known,
                  std::vector<std::string>& differences) {
    Attributes attributes;
    std::vector<Message> found = messages(header, attributes);
    CHECK_INTACT(found.size() == 1 && found[0].type == symbol_table_message,
                 "group /{} is no old group: with links of its own, perhaps, which a checkpoint does not have", path);
    CHECK_INTACT(attributes == (path.empty() ? attributes_of_root() : Attributes{}), "group /{} has other attributes",
                 path);
    const std::string places = found[0].data.take(16);
    CHECK_INTACT(places == known, "group /{} has another tree than its name says", path);
    Bytes place(places);
    const uint64_t tree = place.number(8);
    const Heap names = read_heap(place.number(8));
    Walk walk{path, names, differences, {}, {}};
    read_node(walk, tree, {});
    for (const auto& [level, last] : walk.last)
      CHECK_INTACT(last.right == undefined, "a node of group /{} is followed by one that is not of it", path);
  }

  // Through the tree of a group.
  struct Walk {
    const std::string& path;
    const Heap& names;
    std::vector<std::string>& differences;
    struct Node {
      uint64_t address, right;
    };
    std::map<uint64_t, Node> last;  // of each level
    std::string name;               // the last
  };

  // `level`: what it has to be of; none: of the root, any.
  void read_node(Walk& walk, uint64_t address, std::optional<uint64_t> level) {
    Bytes node = read(address, 24 + most_children * 16 + 8);
    CHECK_INTACT(node.take(4) == "TREE" && node.number(1) == 0, "group /{} has no tree at {}", walk.path, address);
    const uint64_t mine = node.number(1), children = node.number(2), left = node.number(8), right = node.number(8);
    // Only the root of a group without members has no children: so the tree is no larger than what it holds.
    CHECK_INTACT(mine == level.value_or(mine) && children <= most_children && (children > 0 || (!level && mine == 0)),
                 "group /{} has a node of level {} with {} children at {}", walk.path, mine, children, address);
    const auto before = walk.last.find(mine);
    const bool first = before == walk.last.end();
    CHECK_INTACT(first ? left == undefined : left == before->second.address && before->second.right == address,
                 "the node of group /{} at {} has another neighbour", walk.path, address);
    walk.last.insert_or_assign(mine, Walk::Node{address, right});
    for (uint64_t i = 0; i < children; i++) {
      const std::string least = name_at(walk.names, node.number(8));
      CHECK_INTACT(least == walk.name, "the node of group /{} at {} is out of order", walk.path, address);
      const uint64_t child = node.number(8);
      if (mine == 0)
        read_symbols(walk, child);
      else
        read_node(walk, child, mine - 1);
    }
    CHECK_INTACT(name_at(walk.names, node.number(8)) == walk.name, "the node of group /{} at {} is out of order",
                 walk.path, address);
  }

  void read_symbols(Walk& walk, uint64_t address) {
    Bytes node = read(address, 8 + most_symbols * 40);
    CHECK_INTACT(node.take(4) == "SNOD" && node.number(2) == 1, "group /{} has no symbols at {}", walk.path, address);
    const uint64_t symbols = node.number(2);
    CHECK_INTACT(0 < symbols && symbols <= most_symbols, "group /{} has a node of {} symbols at {}", walk.path, symbols,
                 address);
    for (uint64_t i = 0; i < symbols; i++) {
      const std::string name = name_at(walk.names, node.number(8));
      const uint64_t header = node.number(8), kind = node.number(8);
      const std::string known = node.take(16);
      const std::string path = walk.path + name;
      CHECK_INTACT(name > walk.name && name.find('/') == std::string::npos, "{} is out of order, or there twice", path);
      walk.name = name;
      CHECK_INTACT(kind != 2, "{} is a link to something else; a checkpoint has none", path);
      CHECK_INTACT(kind <= 1, "{} is something else than a group or a dataset", path);
      read_member(path, header, known, walk.differences);
    }
  }

  // Each is in the manifest or leads to one that is, and names of a group differ: so this ends.
  void read_member(const std::string& path, uint64_t header, const std::string& known,
                   std::vector<std::string>& differences) {
    const auto next = missing_.lower_bound(path);
    if (next != missing_.end() && next->first == path) {
      const std::string wrong = difference(*next->second, header);
      if (!wrong.empty())
        differences.push_back(fmt::format("dataset {} is not what the manifest says it is: {}", path, wrong));
      missing_.erase(next);
      return;
    }
    const std::string inside = path + "/";
    const auto member = missing_.lower_bound(inside);
    CHECK_INTACT(member != missing_.end() && member->first.starts_with(inside), "{} is not in the manifest", path);
    read_group(inside, header, known, differences);
  }

  // Empty where the dataset is what its record says.
  std::string difference(const DatasetRecord& d, uint64_t header) const {
    Attributes attributes;
    std::map<uint64_t, Bytes> parts;
    for (Message& m : messages(header, attributes))
      if (!parts.emplace(m.type, std::move(m.data)).second) return "it has two of one thing";
    const auto part = [&](MessageType type) {
      const auto found = parts.find(type);
      CHECK_INTACT(found != parts.end(), "dataset {} lacks a message of type {}", d.dataset, static_cast<int>(type));
      return found->second;
    };
    if (parts.size() != 4) return "it has more than a place, an extent, a type and attributes";
    Bytes fill = part(fill_value_message), place = part(layout_message), type = part(datatype_message);
    const std::string expected_type = d.dtype == DType::bf16 ? u16_type() : f32_type();
    // Given early, written never, and none of its own.
    if (fill.take(8) != bytes_of({2, 1, 1, 1, 0, 0, 0, 0})) return "it has a fill value";
    if (place.take(2) != bytes_of({3, 1})) return "its elements do not lie in one piece";
    if (place.number(8) != static_cast<uint64_t>(d.offset)) return "its elements lie elsewhere";
    if (place.number(8) != static_cast<uint64_t>(d.bytes())) return "its elements take other space";
    if (length_of(part(dataspace_message)) != static_cast<uint64_t>(d.piece.numel())) return "its extent";
    if (type.left() < expected_type.size() || type.take(expected_type.size()) != expected_type) return "its type";
    if (attributes != attributes_of(d)) return "its attributes";
    return "";
  }

  const File& file_;
  const uint64_t bytes_;
  std::map<std::string, const DatasetRecord*> missing_;  // those not met yet
  uint64_t longest_name_ = 0;
};

}  // namespace

std::vector<std::string> compare_structure(const File& file, const FileRecord& record) {
  std::vector<std::string> differences;
  try {
    Structure(file, record).compare(differences);
  } catch (const Damage& e) {
    differences.push_back(e.what());
  }
  for (std::string& difference : differences)
    difference = fmt::format("{}: the HDF5 structure: {}", file.path(), difference);
  return differences;
}

}  // namespace megalith
