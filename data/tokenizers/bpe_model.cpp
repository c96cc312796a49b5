#include "data/tokenizers/bpe_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "data/tokenizers/characters.h"
#include "data/tokenizers/tokenizer_parts.h"
#include "kernels/system/check.h"
#include "kernels/system/json.h"

namespace megalith {

namespace {

using Json = nlohmann::json;

constexpr size_t longest_at_once = 256 << 10;

// Refuses a model of another kind before its parts are read.
const Json& known(const Json& model, const std::string& path) {
  if (const std::string other = other_model(model); !other.empty()) FAIL("{}: {}, which is not supported", path, other);
  return model;
}

BpeNames names_in(const Json& model, const std::string& path) {
  BpeNames names(json_member(known(model, path), "vocab"), path, "model.vocab");
  add_merges(json_member(model, "merges"), names, path);
  return names;
}

BpeVocabulary with_merges(const std::vector<BpeVocabulary::Merge>& merges) {
  BpeVocabulary vocabulary;
  vocabulary.merges = merges;
  return vocabulary;
}

}  // namespace

BpeModel::BpeModel(const Json& model, bool of_bytes, const std::string& path)
    : BpeModel(names_in(model, path), model, of_bytes, path) {}

BpeModel::BpeModel(const BpeNames& names, const Json& model, bool of_bytes, const std::string& path)
    : of_bytes_(of_bytes), ids_(names.ids()), vocabulary_(with_merges(names.merges())), table_(vocabulary_) {
  ignores_merges_ = flag_member(model, "ignore_merges", false, "model", path);
  fuses_unknown_ = flag_member(model, "fuse_unk", false, "model", path);
  falls_back_ = flag_member(model, "byte_fallback", false, "model", path);
  if (const Json& unknown = json_member(model, "unk_token"); !unknown.is_null()) {
    const std::string name = text_member(model, "unk_token", "model", path);
    const auto found = ids_.find(name);
    // The unknown token may be absent if it is never needed.
    CHECK(found != ids_.end() || of_bytes_, "{}: model.unk_token = {} is not in model.vocab", path, json_text(unknown));
    if (found != ids_.end()) unknown_ = found->second;
  }
  find_symbols();
  table_ = MergeTable(vocabulary_);
  if (has_all_bytes_) run_cut_ = std::make_unique<RunCut>(vocabulary_, table_);
  find_joints();
  if (ignores_merges_) find_whole();
}

void BpeModel::find_symbols() {
  for (int byte = 0; byte < 256; byte++) {
    const auto found = ids_.find(fmt::format("<0x{:02X}>", byte));
    fallback_[static_cast<size_t>(byte)] = found == ids_.end() ? -1 : found->second;
  }
  if (of_bytes_) {
    for (int byte = 0; byte < 256; byte++) {
      const auto found = ids_.find(name_of_byte(static_cast<char>(byte)));
      vocabulary_.byte_ids[static_cast<size_t>(byte)] = found == ids_.end() ? -1 : found->second;
    }
    has_all_bytes_ = !byte_without_token();
    for (const auto& [name, id] : ids_) {
      if (static_cast<size_t>(id) >= vocabulary_.tokens.size()) vocabulary_.tokens.resize(static_cast<size_t>(id) + 1);
      vocabulary_.tokens[static_cast<size_t>(id)] = bytes_of_name(name).value_or(name);
    }
  } else {
    character_ids_.assign(num_code_points + 1, -1);
  }
  for (const auto& [name, id] : ids_) {
    if (!of_bytes_ && !name.empty()) {
      const Character c = character_at(bytes_of(name), bytes_of(name) + name.size());
      if (c.bytes == name.size() && c.code_point != stray_byte) character_ids_[c.code_point] = id;
    }
  }
}

// Collects the pieces that are tokens but are not made by merges. There are few.
void BpeModel::find_whole() {
  std::unordered_map<std::string, int32_t> whole;
  Scratch scratch(*this);
  std::vector<int32_t> merged;
  for (const auto& [name, id] : ids_) {
    const std::optional<std::string> piece = of_bytes_ ? bytes_of_name(name) : name;
    if (!piece || piece->empty()) continue;
    merged.clear();
    merge(*piece, scratch, merged);
    if (merged == std::vector{id}) continue;
    longest_whole_ = std::max(longest_whole_, piece->size());
    whole.emplace(*piece, id);
  }
  whole_ = std::move(whole);
}

// A merge joins the last character of its left part and the first of its right part. If each character has tokens of
// its own, whatever its neighbours, no token crosses a border that no merge joins.
void BpeModel::find_joints() {
  const bool all_fall_back = falls_back_ && std::ranges::find(fallback_, -1) == fallback_.end();
  if (of_bytes_ || !all_fall_back) return;
  std::unordered_map<int32_t, std::string_view> names;
  for (const auto& [name, id] : ids_) names[id] = name;
  std::vector<bool> joints(size_t{1} << 17);
  for (const BpeVocabulary::Merge& merge : vocabulary_.merges) {
    for (const int32_t id : {merge.left, merge.right})
      if (std::ranges::find(fallback_, id) != fallback_.end()) return;  // it does not join whole characters
    const std::string_view left = names[merge.left], right = names[merge.right];
    if (left.empty() || right.empty()) return;
    joints[joint_of(character_before(bytes_of(left), bytes_of(left) + left.size()).code_point,
                    character_at(bytes_of(right), bytes_of(right) + right.size()).code_point)] = true;
  }
  joints_ = std::move(joints);
}

size_t BpeModel::joint_of(char32_t before, char32_t after) {
  return (before * 0x9e3779b1u ^ after * 0x85ebca6bu) >> (32 - 17);
}

bool BpeModel::stays_apart(char32_t before, char32_t after) const {
  return !joints_.empty() && !joints_[joint_of(before, after)];
}

void BpeModel::encode_characters(std::string_view piece, Scratch& scratch, std::vector<int32_t>& out) const {
  if (piece.size() <= longest_whole_)
    if (const auto found = whole_.find(std::string(piece)); found != whole_.end()) return out.push_back(found->second);
  if (joints_.empty()) return encode_part(piece, scratch, out);
  const uint8_t *p = bytes_of(piece), *end = p + piece.size(), *begin = p;
  Character before = character_at(p, end);
  for (p += before.bytes; p < end;) {
    const Character c = character_at(p, end);
    if (stays_apart(before.code_point, c.code_point)) {
      encode_part({reinterpret_cast<const char*>(begin), static_cast<size_t>(p - begin)}, scratch, out);
      begin = p;
    }
    before = c;
    p += c.bytes;
  }
  encode_part({reinterpret_cast<const char*>(begin), static_cast<size_t>(end - begin)}, scratch, out);
}

std::optional<int> BpeModel::byte_without_token() const {
  const auto found = std::ranges::find(vocabulary_.byte_ids, -1);
  if (!of_bytes_ || found == vocabulary_.byte_ids.end()) return {};
  return static_cast<int>(found - vocabulary_.byte_ids.begin());
}

size_t BpeModel::cut_in(std::string_view run) const {
  std::vector<int32_t> ids;
  return run_cut_ ? run_cut_->find(run, ids) : 0;
}

// Cuts a long piece of bytes where possible, so that it takes little memory.
void BpeModel::encode_long(std::string_view part, Scratch& scratch, std::vector<int32_t>& out) const {
  if (!run_cut_ || part.size() <= longest_at_once) return merge(part, scratch, out);
  std::vector<int32_t> ids;
  for (size_t window = longest_at_once; part.size() > window;) {
    const size_t cut = run_cut_->find(part.substr(0, window), ids);
    if (cut == 0) {
      window *= 2;
      continue;
    }
    out.insert(out.end(), ids.begin(), ids.end());
    part.remove_prefix(cut);
    window = longest_at_once;
  }
  scratch.merger.merge(part, out);
}

void BpeModel::merge(std::string_view part, Scratch& scratch, std::vector<int32_t>& out) const {
  if (of_bytes_ && part.size() <= longest_whole_)
    if (const auto found = whole_.find(std::string(part)); found != whole_.end()) return out.push_back(found->second);
  if (has_all_bytes_) return scratch.merger.merge(part, out);
  scratch.symbols.clear();
  add_symbols(part, scratch.symbols);
  if (!scratch.symbols.empty()) scratch.merger.merge(scratch.symbols, out);
}

// As in `tokenizers`, an unknown token is added only before the next character that has a token or byte tokens.
void BpeModel::add_symbols(std::string_view part, std::vector<int32_t>& symbols) const {
  bool waits = false;
  const auto add = [&](int32_t id) {
    if (waits) symbols.push_back(unknown_);
    waits = false;
    symbols.push_back(id);
  };
  const uint8_t *p = bytes_of(part), *end = p + part.size();
  while (p < end) {
    const Character c = of_bytes_ ? Character{*p, 1} : character_at(p, end);
    const int32_t id = of_bytes_ ? vocabulary_.byte_ids[*p] : character_ids_[c.code_point];
    const std::string_view bytes = of_bytes_ ? std::string_view(name_of_byte(static_cast<char>(*p)))
                                             : std::string_view(reinterpret_cast<const char*>(p), c.bytes);
    p += c.bytes;
    if (id >= 0) {
      add(id);
      continue;
    }
    const auto has_token = [&](char byte) { return fallback_[static_cast<uint8_t>(byte)] >= 0; };
    if (falls_back_ && std::all_of(bytes.begin(), bytes.end(), has_token)) {
      for (const char byte : bytes) symbols.push_back(fallback_[static_cast<uint8_t>(byte)]);
      continue;
    }
    if (unknown_ < 0) continue;
    if (waits && !fuses_unknown_) symbols.push_back(unknown_);
    waits = true;
  }
  if (waits) symbols.push_back(unknown_);
}

}  // namespace megalith
