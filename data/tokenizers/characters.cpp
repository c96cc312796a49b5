#include "data/tokenizers/characters.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>

namespace megalith {

namespace {

// Assigned by Unicode 15, 15.1 and 16. An older utf8proc does not know them, and tokens would depend on the machine.
constexpr CodePoints new_letters[] = {
    {0x1c89, 0x1c8a},   {0xa7cb, 0xa7cd},   {0xa7da, 0xa7dc},   {0x105c0, 0x105f3}, {0x10d4a, 0x10d65},
    {0x10d6f, 0x10d85}, {0x10ec2, 0x10ec4}, {0x1123f, 0x11240}, {0x11380, 0x11389}, {0x1138b, 0x1138b},
    {0x1138e, 0x1138e}, {0x11390, 0x113b5}, {0x113b7, 0x113b7}, {0x113d1, 0x113d1}, {0x113d3, 0x113d3},
    {0x11bc0, 0x11be0}, {0x11f02, 0x11f02}, {0x11f04, 0x11f10}, {0x11f12, 0x11f33}, {0x1342f, 0x1342f},
    {0x13441, 0x13446}, {0x13460, 0x143fa}, {0x16100, 0x1611d}, {0x16d40, 0x16d6c}, {0x18cff, 0x18cff},
    {0x1b132, 0x1b132}, {0x1b155, 0x1b155}, {0x1df25, 0x1df2a}, {0x1e030, 0x1e06d}, {0x1e4d0, 0x1e4eb},
    {0x1e5d0, 0x1e5ed}, {0x1e5f0, 0x1e5f0}, {0x2b739, 0x2b739}, {0x2ebf0, 0x2ee5d}, {0x31350, 0x323af}};
constexpr CodePoints new_numbers[] = {{0x10d40, 0x10d49}, {0x116d0, 0x116e3}, {0x11bf0, 0x11bf9}, {0x11f50, 0x11f59},
                                      {0x16130, 0x16139}, {0x16d70, 0x16d79}, {0x1ccf0, 0x1ccf9}, {0x1d2c0, 0x1d2d3},
                                      {0x1e4f0, 0x1e4f9}, {0x1e5f1, 0x1e5fa}};

constexpr CodePoints new_capitals[] = {
    {0x1c89, 0x1c89}, {0xa7cb, 0xa7cc}, {0xa7da, 0xa7da}, {0xa7dc, 0xa7dc}, {0x10d50, 0x10d65}};
constexpr CodePoints new_small_letters[] = {{0x1c8a, 0x1c8a}, {0xa7cd, 0xa7cd}, {0xa7db, 0xa7db}, {0x10d70, 0x10d85}};
constexpr CodePoints new_modifiers[] = {{0x10d4e, 0x10d4e}, {0x10d6f, 0x10d6f}, {0x16d40, 0x16d42}, {0x16d6b, 0x16d6c}};
constexpr CodePoints new_marks[] = {{0x897, 0x897},     {0x10d69, 0x10d6d}, {0x10efc, 0x10efc}, {0x113bb, 0x113c0},
                                    {0x113ce, 0x113ce}, {0x113d0, 0x113d0}, {0x113d2, 0x113d2}, {0x113e1, 0x113e2},
                                    {0x11f5a, 0x11f5a}, {0x1611e, 0x16129}, {0x1612d, 0x1612f}, {0x1e5ee, 0x1e5ef}};
constexpr CodePoints new_spacing_marks[] = {{0x113b8, 0x113ba}, {0x113c2, 0x113c2}, {0x113c5, 0x113c5},
                                            {0x113c7, 0x113ca}, {0x113cc, 0x113cd}, {0x113cf, 0x113cf},
                                            {0x1612a, 0x1612c}};
constexpr CodePoints new_punctuation[] = {{0x1b4e, 0x1b4f},   {0x1b7f, 0x1b7f},   {0x10d6e, 0x10d6e},
                                          {0x113d4, 0x113d5}, {0x113d7, 0x113d8}, {0x11be1, 0x11be1},
                                          {0x16d6d, 0x16d6f}, {0x1e5ff, 0x1e5ff}};
constexpr CodePoints new_symbols[] = {{0x2427, 0x2429},   {0x2ffc, 0x2fff},   {0x31e4, 0x31e5},   {0x31ef, 0x31ef},
                                      {0x10d8e, 0x10d8f}, {0x1cc00, 0x1ccef}, {0x1cd00, 0x1ceb3}, {0x1f8b2, 0x1f8bb},
                                      {0x1f8c0, 0x1f8c1}, {0x1fa89, 0x1fa89}, {0x1fa8f, 0x1fa8f}, {0x1fabe, 0x1fabe},
                                      {0x1fac6, 0x1fac6}, {0x1fadc, 0x1fadc}, {0x1fadf, 0x1fadf}, {0x1fae9, 0x1fae9},
                                      {0x1fbcb, 0x1fbef}};

std::vector<uint8_t> all_categories() {
  std::vector<uint8_t> categories(num_code_points);
  for (char32_t c = 0; c < num_code_points; c++)
    categories[c] = static_cast<uint8_t>(utf8proc_category(static_cast<utf8proc_int32_t>(c)));
  const auto assign = [&](const auto& ranges, uint8_t category) {
    for (const CodePoints& range : ranges)
      for (char32_t c = range.first; c <= range.last; c++)
        if (categories[c] == UTF8PROC_CATEGORY_CN) categories[c] = category;
  };
  assign(new_capitals, UTF8PROC_CATEGORY_LU);
  assign(new_small_letters, UTF8PROC_CATEGORY_LL);
  assign(new_modifiers, UTF8PROC_CATEGORY_LM);
  assign(new_letters, UTF8PROC_CATEGORY_LO);
  assign(new_numbers, UTF8PROC_CATEGORY_ND);
  assign(new_marks, UTF8PROC_CATEGORY_MN);
  assign(new_spacing_marks, UTF8PROC_CATEGORY_MC);
  assign(new_punctuation, UTF8PROC_CATEGORY_PO);
  assign(new_symbols, UTF8PROC_CATEGORY_SO);
  return categories;
}

// Abbreviations of the categories, in utf8proc's order.
constexpr std::array<std::string_view, 30> category_names = {
    "Cn", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps",
    "Pe", "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co"};

}  // namespace

bool is_letter(uint8_t category) { return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO; }
bool is_number(uint8_t category) { return category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO; }

uint8_t category_of(char32_t code_point) {
  static const std::vector<uint8_t> categories = all_categories();
  return categories[code_point];
}

CharacterSet::CharacterSet(std::vector<CodePoints> ranges) {
  std::sort(ranges.begin(), ranges.end(), [](const CodePoints& a, const CodePoints& b) { return a.first < b.first; });
  for (const CodePoints& range : ranges)
    if (!ranges_.empty() && range.first <= ranges_.back().last + 1)
      ranges_.back().last = std::max(ranges_.back().last, range.last);
    else
      ranges_.push_back(range);
}

CharacterSet CharacterSet::of_category(std::string_view name) {
  std::array<bool, category_names.size()> wanted{};
  for (size_t i = 0; i < category_names.size(); i++)
    wanted[i] = category_names[i] == name || (name.size() == 1 && category_names[i][0] == name[0]);
  std::vector<CodePoints> ranges;
  for (char32_t c = 0; c < num_code_points; c++) {
    if (!wanted[category_of(c)]) continue;
    if (!ranges.empty() && ranges.back().last + 1 == c)
      ranges.back().last = c;
    else
      ranges.push_back({c, c});
  }
  return CharacterSet(std::move(ranges));
}

// From PropList.txt, complete since Unicode 6.3.
const CharacterSet& CharacterSet::white_space() {
  static const CharacterSet set({{0x9, 0xd},
                                 {0x20, 0x20},
                                 {0x85, 0x85},
                                 {0xa0, 0xa0},
                                 {0x1680, 0x1680},
                                 {0x2000, 0x200a},
                                 {0x2028, 0x2029},
                                 {0x202f, 0x202f},
                                 {0x205f, 0x205f},
                                 {0x3000, 0x3000}});
  return set;
}

// Alphabetic characters are letters, marks, letterlike numbers and, in addition, circled and squared letters
// (PropList.txt, Other_Alphabetic).
const CharacterSet& CharacterSet::word() {
  static const CharacterSet set = [] {
    CharacterSet all({{0x200c, 0x200d}, {0x24b6, 0x24e9}, {0x1f130, 0x1f149}, {0x1f150, 0x1f169}, {0x1f170, 0x1f189}});
    for (const char* category : {"L", "M", "Nd", "Nl", "Pc"}) all.add(of_category(category));
    return all;
  }();
  return set;
}

void CharacterSet::add(const CharacterSet& other) {
  std::vector<CodePoints> all = ranges_;
  all.insert(all.end(), other.ranges_.begin(), other.ranges_.end());
  *this = CharacterSet(std::move(all));
}

CharacterSet CharacterSet::complement() const {
  CharacterSet rest;
  char32_t next = 0;
  for (const CodePoints& range : ranges_) {
    if (range.first > next) rest.ranges_.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= stray_byte) rest.ranges_.push_back({next, stray_byte});
  return rest;
}

bool CharacterSet::contains(char32_t code_point) const {
  const auto after = std::upper_bound(ranges_.begin(), ranges_.end(), code_point,
                                      [](char32_t c, const CodePoints& range) { return c < range.first; });
  return after != ranges_.begin() && code_point <= std::prev(after)->last;
}

namespace {
bool is_stripped(char32_t c) {
  return (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

}  // namespace

std::string_view stripped(std::string_view text) {
  const uint8_t *begin = bytes_of(text), *end = begin + text.size();
  while (begin < end && is_stripped(character_at(begin, end).code_point)) begin += character_at(begin, end).bytes;
  while (begin < end && is_stripped(character_before(begin, end).code_point)) end -= character_before(begin, end).bytes;
  return {reinterpret_cast<const char*>(begin), static_cast<size_t>(end - begin)};
}

}  // namespace megalith
