#include "data/tokenizers/split_pattern.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace megalith {

namespace {

// The alternatives of a pattern, in order, in one notation: \L a letter, \N a number, \O no letter, number or space, \s
// and \S, other characters as themselves.
using Ways = std::vector<std::string>;

// Thrown for syntax that is not known here, which makes the pattern unknown.
struct UnknownPattern {};

class PatternReader {
 public:
  explicit PatternReader(std::string_view pattern) : rest_(pattern) {}

  Ways read() {
    Ways ways = alternatives();
    if (!rest_.empty()) throw UnknownPattern();
    return ways;
  }

 private:
  static constexpr size_t most_ways = 64;
  static constexpr int deepest_group = 16;

  bool take(std::string_view what) {
    if (!rest_.starts_with(what)) return false;
    rest_.remove_prefix(what.size());
    return true;
  }

  char next() {
    if (rest_.empty()) throw UnknownPattern();
    const char c = rest_.front();
    rest_.remove_prefix(1);
    return c;
  }

  Ways alternatives() {
    if (++depth_ > deepest_group) throw UnknownPattern();
    Ways ways;
    do {
      const Ways more = sequence();
      ways.insert(ways.end(), more.begin(), more.end());
      if (ways.size() > most_ways) throw UnknownPattern();
    } while (take("|"));
    depth_--;
    return ways;
  }

  Ways sequence() {
    Ways ways{""};
    while (!rest_.empty() && rest_.front() != '|' && rest_.front() != ')') {
      const Ways atom = this->atom();
      const std::string quantifier = this->quantifier(atom);
      Ways longer;
      for (const std::string& before : ways)
        for (const std::string& after : atom) longer.push_back(before + after + quantifier);
      if (longer.size() > most_ways) throw UnknownPattern();
      ways = longer;
    }
    return ways;
  }

  // A possessive quantifier gives nothing back. That makes no difference for letters, numbers and others, which nothing
  // follows, and for the space before them.
  std::string quantifier(const Ways& atom) {
    if (rest_.empty() || (rest_.front() != '?' && rest_.front() != '+')) return "";
    const bool is_character = atom.size() == 1 && (atom[0].size() == 1 || (atom[0].size() == 2 && atom[0][0] == '\\'));
    if (!is_character) throw UnknownPattern();
    const std::string found(1, next());
    if (take("?")) throw UnknownPattern();
    const bool is_possessive = take("+");
    return is_possessive && atom[0] == "\\s" ? found + "+" : found;
  }

  Ways atom() {
    if (take("(?!")) {
      const Ways inside = alternatives();
      if (!take(")") || inside.size() != 1) throw UnknownPattern();
      return {"(?!" + inside[0] + ")"};
    }
    if (take("(?:") || take("(")) {
      if (rest_.starts_with("?")) throw UnknownPattern();
      Ways inside = alternatives();
      if (!take(")")) throw UnknownPattern();
      return inside;
    }
    if (take("[")) return one_of_class();
    return {character()};
  }

  // A set of plain characters becomes as many alternatives.
  Ways one_of_class() {
    const bool is_negated = take("^");
    std::set<std::string> members;
    while (!take("]")) {
      if (rest_.starts_with("[") || rest_.starts_with("-")) throw UnknownPattern();
      members.insert(character());
    }
    if (members.empty()) throw UnknownPattern();
    if (!is_negated) return {members.begin(), members.end()};
    if (members == std::set<std::string>{"\\L", "\\N", "\\s"}) return {"\\O"};
    if (members == std::set<std::string>{"\\s"}) return {"\\S"};
    throw UnknownPattern();
  }

  std::string character() {
    const char c = next();
    if (c != '\\') {
      if (std::string_view(".*+?{}()").find(c) != std::string_view::npos) throw UnknownPattern();
      return std::string(1, c);
    }
    static const std::map<std::string_view, std::string> escapes = {
        {"s", "\\s"}, {"S", "\\S"},   {"p{L}", "\\L"}, {"p{Letter}", "\\L"}, {"p{N}", "\\N"}, {"p{Number}", "\\N"},
        {"x20", " "}, {"x{20}", " "}, {"u0020", " "},  {" ", " "},           {"'", "'"}};
    for (const auto& [name, meaning] : escapes)
      if (take(name)) return meaning;
    throw UnknownPattern();
  }

  std::string_view rest_;
  int depth_ = 0;
};

}  // namespace

bool cuts_as_gpt2(std::string_view pattern) {
  Ways ways;
  try {
    ways = PatternReader(pattern).read();
  } catch (const UnknownPattern&) {
    return false;
  }
  // Where the previous alternative fails, only one space is left, and nothing follows it to give it back for.
  if (ways.back() == "\\s" || ways.back() == "\\s++") ways.back() = "\\s+";
  const std::set<std::string> contractions = {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"};
  std::set<std::string> wanted = {" ?\\L+", " ?\\N+", " ?\\O+", "\\s+(?!\\S)", "\\s+"};
  wanted.insert(contractions.begin(), contractions.end());
  std::set<std::string> found(ways.begin(), ways.end());
  found.erase("\\s++$");  // spaces to the end of a text, which no \S follows
  if (found != wanted || ways.back() != "\\s+") return false;
  // The others begin with different characters, but for an apostrophe.
  const auto place_of = [&](const std::string& way) { return std::find(ways.begin(), ways.end(), way); };
  return std::all_of(contractions.begin(), contractions.end(),
                     [&](const std::string& way) { return place_of(way) < place_of(" ?\\O+"); }) &&
         place_of("\\s+") == ways.end() - 1;
}

}  // namespace megalith
