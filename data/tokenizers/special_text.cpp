#include "data/tokenizers/special_text.h"

#include <algorithm>

#include "kernels/system/check.h"

namespace megalith {

SpecialText::SpecialText(const Tokenizer& tokenizer) : names_(tokenizer.special_tokens()) {
  for (const SpecialToken& special : names_)
    if (first_bytes_.find(special.text[0]) == std::string::npos) first_bytes_ += special.text[0];
}

SpecialText::Match SpecialText::first_in(std::string_view text) const {
  const auto next = [&](size_t from) {
    return first_bytes_.size() == 1 ? text.find(first_bytes_[0], from) : text.find_first_of(first_bytes_, from);
  };
  for (size_t at = next(0); at < text.size(); at = next(at + 1)) {
    Match longest{at, 0, -1};
    for (const SpecialToken& special : names_)
      if (special.text.size() > longest.size && text.substr(at).starts_with(special.text))
        longest = {at, special.text.size(), special.id};
    if (longest.size > 0) return longest;
  }
  return {text.size(), 0, -1};
}

namespace {

class SpecialEncoder final : public Encoder {
 public:
  SpecialEncoder(const SpecialText& special, std::unique_ptr<Encoder> of_text)
      : special_(special), of_text_(std::move(of_text)) {}

  void encode(std::string_view text, std::vector<int32_t>& out) override {
    while (!text.empty()) {
      const SpecialText::Match match = special_.first_in(text);
      of_text_->encode(text.substr(0, match.begin), out);
      if (match.size == 0) return;
      out.push_back(match.id);
      text.remove_prefix(match.begin + match.size);
    }
  }

  void encode_places(std::string_view text, std::vector<int32_t>& out, std::vector<TextRange>& places) override {
    for (size_t at = 0; at < text.size();) {
      const SpecialText::Match match = special_.first_in(text.substr(at));
      const size_t first = places.size();
      of_text_->encode_places(text.substr(at, match.begin), out, places);
      for (size_t i = first; i < places.size(); i++) places[i] = {at + places[i].begin, at + places[i].end};
      if (match.size == 0) return;
      out.push_back(match.id);
      places.push_back({at + match.begin, at + match.begin + match.size});
      at = places.back().end;
    }
  }

 private:
  const SpecialText& special_;
  std::unique_ptr<Encoder> of_text_;
};

}  // namespace

std::unique_ptr<Encoder> SpecialText::encoder(const Tokenizer& tokenizer) const {
  if (const Tokenizer* own = tokenizer.with_specials()) return own->encoder();
  return std::make_unique<SpecialEncoder>(*this, tokenizer.encoder());
}

size_t SpecialText::last_cut(const Tokenizer& tokenizer, std::string_view text) const {
  if (const Tokenizer* own = tokenizer.with_specials()) return own->last_cut(text);
  size_t cut = tokenizer.last_cut(text);
  for (bool moved = true; moved && cut > 0;) {
    moved = false;
    for (const SpecialToken& special : names_)
      for (size_t before = std::min(cut, special.text.size() - 1); before > 0 && !moved; before--) {
        const size_t begin = cut - before;
        const std::string_view there = text.substr(begin, special.text.size());
        moved = std::string_view(special.text).starts_with(there);
        if (moved) cut = tokenizer.last_cut(text.substr(0, begin));
      }
  }
  return cut;
}

void encode_with_specials(const Tokenizer& tokenizer, std::string_view text, std::vector<int32_t>& out,
                          SpecialTexts how, const std::string& what) {
  if (how == SpecialTexts::text) return tokenizer.encode(text, out);
  const SpecialText special(tokenizer);
  const std::string refused = how == SpecialTexts::refuse ? why_refused(special, text) : "";
  CHECK(refused.empty(), "{} has {}", what, refused);
  special.encoder(tokenizer)->encode(text, out);
}

std::string why_refused(const SpecialText& special, std::string_view text, std::optional<int64_t> behind) {
  const SpecialText::Match found = special.first_in(text);
  if (found.size == 0) return {};
  const size_t shown = std::min<size_t>(found.begin, 20);
  return fmt::format(
      "the special token {} written in the text, after byte {} and `{}`; --special-tokens ids encodes it as token {}, "
      "and text as plain text",
      text.substr(found.begin, found.size), behind.value_or(static_cast<int64_t>(found.begin)),
      text.substr(found.begin - shown, shown), found.id);
}

}  // namespace megalith
