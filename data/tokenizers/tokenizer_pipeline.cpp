#include "data/tokenizers/tokenizer_pipeline.h"

#include <algorithm>

#include "data/tokenizers/bpe_names.h"
#include "data/tokenizers/tokenizer_parts.h"
#include "kernels/system/check.h"

namespace megalith {

namespace {

using Json = nlohmann::json;

std::string_view without_cut_character(std::string_view text) {
  const auto* p = bytes_of(text);
  for (size_t back = 1; back < 4 && back <= text.size(); back++) {
    const uint8_t lead = p[text.size() - back];
    if (is_continuation(lead)) continue;
    if (lead >= 0xc0 && character_at(p + text.size() - back, p + text.size()).bytes != back) text.remove_suffix(back);
    break;
  }
  return text;
}

// Returns the part of a text after its last added token that certainly contains no added token, whatever follows; it
// begins at `begin`.
std::string_view without_added(const AddedTokenFinder& finder, std::string_view text, bool with_specials,
                               size_t& begin) {
  begin = 0;
  if (finder.is_empty()) return text;
  const size_t known = text.size() - std::min(text.size(), finder.longest() - 1);
  for (AddedTokenFinder::Match match = finder.next_in(text, 0, 0, with_specials); match.id >= 0 && match.begin < known;
       match = finder.next_in(text, begin, begin, with_specials)) {
    begin = match.end;
    if (begin >= known) return {};
  }
  return without_cut_character(text.substr(begin, known - begin));
}

// `transformers` finds the end token in texts even if the file does not add it.
std::vector<AddedToken> with_end(std::vector<AddedToken> added, const std::unordered_map<std::string, int32_t>& ids,
                                 const std::optional<std::string>& named_end, bool is_gpt2) {
  if (!named_end && !is_gpt2) return added;
  const std::string end = named_end.value_or(std::string(end_of_text_name));
  const auto known = ids.find(end);
  if (known != ids.end() && std::ranges::find(added, end, &AddedToken::content) == added.end())
    added.push_back({.content = end, .id = known->second, .is_special = true});
  return added;
}

bool makes_ids_as_gpt2(const Json& file) {
  return normalizes_as_gpt2(json_member(file, "normalizer")) &&
         pre_tokenizes_as_gpt2(json_member(file, "pre_tokenizer")) &&
         adds_nothing(json_member(file, "post_processor")) && decodes_as_gpt2(json_member(file, "decoder")) &&
         std::ranges::all_of(json_member(file, "added_tokens"), [](const Json& token) {
           return json_member(token, "special") == true && json_member(token, "lstrip") != true &&
                  json_member(token, "rstrip") != true && json_member(token, "single_word") != true;
         });
}

}  // namespace

TokenizerPipeline::TokenizerPipeline(const Json& file, const std::string& path,
                                     const std::optional<std::string>& named_end)
    : normalizer(json_member(file, "normalizer"), path),
      cutter(json_member(file, "pre_tokenizer"), path),
      model(json_member(file, "model"), cutter.gives_bytes(), path),
      decoder(json_member(file, "decoder"), cutter.gives_bytes(), path),
      added(with_end(read_added_tokens(json_member(file, "added_tokens"), path), model.ids(), named_end,
                     makes_ids_as_gpt2(file))),
      raw(added, false, normalizer),
      normalized(added, true, normalizer),
      frame(read_text_frame(json_member(file, "post_processor"), path)) {
  name_tokens(path);
  find_end(named_end, path);
  is_gpt2_ = makes_ids_as_gpt2(file) && merges_make_whole_pieces();
  if (is_gpt2_) check_bytes(path);
  for (const auto* ids : {&frame.beginning, &frame.ending})
    for (const int32_t id : *ids)
      CHECK(id >= 0 && id < size(), "{}: the post_processor adds the id {}, but {} tokens have the ids 0 to {}", path,
            id, size(), size() - 1);
  for (size_t id = 0; id < names.size(); id++) bytes.push_back(decoder.bytes_inside(written[id]));
  bytes[static_cast<size_t>(end_of_text)].clear();
  for (const auto* ids : {&frame.beginning, &frame.ending})
    for (const int32_t id : *ids) bytes[static_cast<size_t>(id)].clear();
}

// Error: bytes without a token, which a text would lose.
void TokenizerPipeline::check_bytes(const std::string& path) const {
  for (const auto& [name, id] : model.ids())
    CHECK(bytes_of_name(name) || is_added(id),
          "{}: the token \"{}\" has a character that does not stand for a byte; is it the vocabulary of a byte-level "
          "BPE?",
          path, name);
  const std::optional<int> without = model.byte_without_token();
  CHECK(!without, "{} has no token for the byte {}; is it the vocabulary of a byte-level BPE?", path, *without);
}

// A token that the cutter cuts is never a piece.
bool TokenizerPipeline::merges_make_whole_pieces() const {
  return std::ranges::all_of(model.whole_pieces(), [&](const auto& piece) {
    const auto& [text, id] = piece;
    return is_added(id) || TextCutter::pretokenizer().first_pretoken(text) < text.size();
  });
}

void TokenizerPipeline::name_tokens(const std::string& path) {
  size_t count = model.ids().size();
  for (const AddedToken& token : added) count += !model.ids().contains(token.content);
  names.resize(count);
  is_special.resize(count);
  std::vector<bool> is_known(count);
  const auto take = [&](const std::string& name, int64_t id) {
    CHECK(id >= 0 && id < size(), "{}: the token \"{}\" has the id {}, but {} tokens need the ids 0 to {}", path, name,
          id, size(), size() - 1);
    const auto at = static_cast<size_t>(id);
    CHECK(!is_known[at] || names[at] == name, "{}: the tokens \"{}\" and \"{}\" have the same id {}", path, names[at],
          name, id);
    is_known[at] = true;
    names[at] = name;
  };
  for (const auto& [name, id] : model.ids()) take(name, id);
  for (const AddedToken& token : added) {
    const auto known = model.ids().find(token.content);
    CHECK(known == model.ids().end() || known->second == token.id, "{}: the token \"{}\" has the ids {} and {}", path,
          token.content, known->second, token.id);
    take(token.content, token.id);
    is_special[static_cast<size_t>(token.id)] = token.is_special;
  }
  // As in `tokenizers`, a token that is looked for in normalized texts decodes to its normalized spelling.
  written = names;
  TextNormalizer::Scratch scratch;
  for (const AddedToken& token : added)
    if (token.is_normalized) written[static_cast<size_t>(token.id)] = normalizer.apply(token.content, false, scratch);
  const auto is_special_text = [&](const std::string& text) {
    return std::ranges::any_of(added,
                               [&](const AddedToken& token) { return token.is_special && token.content == text; });
  };
  for (const std::string& name : written) is_left_out.push_back(is_special_text(name));
}

void TokenizerPipeline::find_end(const std::optional<std::string>& named_end, const std::string& path) {
  const auto id_of = [&](const std::string& name) {
    return static_cast<int32_t>(std::find(names.begin(), names.end(), name) - names.begin());
  };
  end_name = named_end.value_or(std::string(end_of_text_name));
  const auto specials = std::count(is_special.begin(), is_special.end(), true);
  if (!named_end && id_of(end_name) == size() && specials == 1)
    end_name = names[static_cast<size_t>(std::find(is_special.begin(), is_special.end(), true) - is_special.begin())];
  end_of_text = id_of(end_name);
  CHECK(!named_end || end_of_text < size(),
        "{} has no token {}, the eos_token of the other files; add it, or name another", path, end_name);
  CHECK(end_of_text < size(),
        "{} has no token {}, and {}; name the one that ends texts as \"eos_token\" in tokenizer_config.json", path,
        end_name, specials == 0 ? "no other special tokens" : fmt::format("{} other special ones", specials));
}

size_t TokenizerPipeline::characters_that_become(std::string_view text, size_t wanted) const {
  const uint8_t *begin = bytes_of(text), *end = begin + text.size(), *p = begin;
  for (size_t made = 0; p < end && made < wanted;) {
    const Character c = character_at(p, end);
    made += normalizer.replaced({reinterpret_cast<const char*>(p), c.bytes}).size();
    p += c.bytes;
  }
  return static_cast<size_t>(p - begin);
}

// A text that continues after a cut is not normalized from its beginning, and no prefix is added to it. So a cut may be
// anywhere inside a piece of the model, but not between an added token and the text after it, nor after a blank that a
// later token may take.
size_t TokenizerPipeline::last_cut(std::string_view text, bool with_specials) const {
  if (raw.looks_around() || normalized.looks_around()) return 0;
  text = without_cut_character(text);
  size_t begin = 0;
  std::string_view rest = without_added(raw, text, with_specials, begin);
  for (int tries = 0; tries < 100 && !rest.empty(); tries++) {
    const size_t cut =
        cutter.leaves_whole() ? cut_of_characters(rest, with_specials) : cut_of_pieces(rest, with_specials);
    if (cut == 0) return 0;
    const Character before = character_before(bytes_of(rest), bytes_of(rest) + cut);
    const bool may_be_taken = raw.takes_left() || normalized.takes_left();
    if (!may_be_taken || !CharacterSet::white_space().contains(before.code_point)) return begin + cut;
    rest = rest.substr(0, cut - before.bytes);
  }
  return 0;
}

// Returns the last place between two characters that are encoded alike alone and together.
size_t TokenizerPipeline::cut_of_characters(std::string_view text, bool with_specials) const {
  if (!normalizer.replaces_characters() || !model.knows_joints()) return 0;
  size_t least = 0;
  if (!normalized.is_empty()) {
    TextNormalizer::Scratch normalizing;
    const std::string_view now = normalizer.apply(text, true, normalizing);
    size_t from = 0;
    const size_t to = without_added(normalized, now, with_specials, from).size() + from;
    // The prefix that the normalizer adds can become one token with the text's first characters.
    least = std::max(characters_that_become(text, from), normalized.longest());
    text = text.substr(0, characters_that_become(text, to));
  }
  const auto* begin = bytes_of(text);
  const uint8_t* end = begin + text.size();
  const auto becomes = [&](const uint8_t* p, const Character& c) {
    std::string_view now = normalizer.replaced({reinterpret_cast<const char*>(p), c.bytes});
    if (now == " ") now = cutter.blank();
    return now;
  };
  if (text.empty()) return 0;
  for (const uint8_t* p = end - character_before(begin, end).bytes; p > begin;) {
    const Character c = character_at(p, end), b = character_before(begin, p);
    const std::string_view before = becomes(p - b.bytes, b), after = becomes(p, c);
    if (before.empty() || after.empty()) return 0;
    const auto* last = bytes_of(before);
    const auto* first = bytes_of(after);
    const auto cut = static_cast<size_t>(p - begin);
    if (cut <= least) return 0;
    if (model.stays_apart(character_before(last, last + before.size()).code_point,
                          character_at(first, first + after.size()).code_point))
      return cut;
    p -= b.bytes;
  }
  return 0;
}

// Returns the last place between two pieces of the normalized text, mapped back to the text.
size_t TokenizerPipeline::cut_of_pieces(std::string_view text, bool with_specials) const {
  if (!normalizer.only_composes()) return 0;
  TextNormalizer::Scratch normalizing;
  std::vector<TextNormalizer::Change> changes;
  const std::string_view now = normalizer.apply(text, true, normalizing, &changes);
  size_t begin = 0;
  TextCutter::Scratch cutting;
  const std::string_view rest = without_added(normalized, now, with_specials, begin);
  size_t end = rest.size();
  // The last character may combine with the next one.
  if (!normalizer.changes_nothing() && begin + end == now.size() && end > 0) {
    const auto* first = bytes_of(rest);
    end -= character_before(first, first + end).bytes;
    if (!changes.empty() && changes.back().new_end == now.size())
      end = std::min(end, std::max(changes.back().new_begin, begin) - begin);
  }
  for (int tries = 0; tries < 3 && end > 0; tries++) {
    const size_t inside = cutter.last_cut(rest.substr(0, end), cutting);
    if (inside == 0) {
      const size_t in_run = is_gpt2_ ? cut_of_run(rest.substr(0, end)) : 0;
      return in_run > 0 ? begin + in_run : 0;
    }
    const size_t cut = begin + inside;
    const auto change = std::find_if(changes.rbegin(), changes.rend(),
                                     [&](const TextNormalizer::Change& c) { return c.new_begin < cut; });
    if (change == changes.rend()) return cut;
    if (cut >= change->new_end) return change->end + (cut - change->new_end);
    end = change->new_begin > begin ? change->new_begin - begin : 0;
  }
  return 0;
}

// Returns a cut of a long pre-token, perhaps after a few short ones whose ends do not depend on the following text.
size_t TokenizerPipeline::cut_of_run(std::string_view text) const {
  const Pretokenizer& pretokenizer = TextCutter::pretokenizer();
  size_t cut = 0, begin = 0, before = 0;
  for (std::string_view rest = text; !rest.empty(); rest = text.substr(begin)) {
    const size_t length = pretokenizer.first_pretoken(rest);
    if (length + RunCut::end_known_late >= rest.size()) break;
    // Trailing blanks are one pre-token; it may become two when more text follows.
    const size_t end = begin + length;
    if (begin == 0 || pretokenizer.first_pretoken(text.substr(before, end - before)) == begin - before) cut = end;
    before = begin;
    begin = end;
  }
  if (cut > 0) return cut;
  const size_t in_run = model.cut_in(text.substr(begin));
  return in_run > 0 ? begin + in_run : 0;
}

}  // namespace megalith
