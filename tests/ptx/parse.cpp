// Text to modules, and a kernel's text to code (PTX ISA, "Syntax", "Directives", "Instruction operands").
#include <cxxabi.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <map>
#include <optional>

#include "kernels/base/check.h"
#include "tests/ptx/code.h"

namespace megalith::ptx {

namespace {
bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
bool in_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$' || c == '%'; }

// Reads words and signs from left to right, and counts lines.
class Reader {
 public:
  Reader(std::string_view file, std::string_view text, int line) : file_(file), text_(text), line_(line) {}
  bool done() {
    skip();
    return at_ == text_.size();
  }
  char peek() {
    skip();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool take(char c) {
    if (peek() != c) return false;
    at_++;
    return true;
  }
  void expect(char c) {
    if (!take(c)) fail_here(fmt::format("expected '{}'", c));
  }
  // Letters, digits, _ $ %, and with `dotted` also '.' and "::".
  std::string_view word(bool dotted = false) {
    skip();
    const size_t begin = at_;
    while (at_ < text_.size() && (in_word(text_[at_]) || (dotted && text_[at_] == '.'))) {
      at_++;
      if (dotted && text_.substr(at_, 2) == "::") at_ += 2;
    }
    if (begin == at_) fail_here("expected a word");
    return text_.substr(begin, at_ - begin);
  }
  int64_t integer() {
    const bool negative = take('-');
    std::string_view digits = word();
    int base = 10;
    if (digits.starts_with("0x") || digits.starts_with("0X")) digits.remove_prefix(2), base = 16;
    if (digits.ends_with('U')) digits.remove_suffix(1);
    uint64_t value = 0;
    const auto end = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
    if (end.ec != std::errc() || end.ptr != digits.data() + digits.size()) fail_here("expected an integer");
    return static_cast<int64_t>(negative ? 0 - value : value);
  }
  std::string_view until(char c) {
    skip();
    const size_t begin = at_, end = text_.find(c, at_);
    if (end == std::string_view::npos) fail_here(fmt::format("expected a '{}'", c));
    for (; at_ < end; at_++) line_ += text_[at_] == '\n';
    return text_.substr(begin, at_ - begin);
  }
  // What is between this brace and its partner.
  std::string_view braced() {
    expect('{');
    const size_t begin = at_;
    for (int depth = 1; depth > 0;) {
      if (done()) fail_here("a brace is not closed");
      depth += text_[at_] == '{' ? 1 : text_[at_] == '}' ? -1 : 0;
      at_++;
    }
    return text_.substr(begin, at_ - 1 - begin);
  }
  int line() {
    skip();
    return line_;
  }
  size_t at() const { return at_; }
  std::string_view from(size_t begin) const { return text_.substr(begin, at_ - begin); }
  [[noreturn]] void fail_here(const std::string& what) const {
    const size_t begin = std::min(text_.rfind('\n', at_ ? at_ - 1 : 0) + 1, at_);
    FAIL("{}:{}: {}: {}", file_, line_, what,
         text_.substr(begin, std::min<size_t>(text_.find('\n', at_), begin + 300) - begin));
  }

 private:
  void skip() {
    while (at_ < text_.size()) {
      if (is_space(text_[at_])) {
        line_ += text_[at_++] == '\n';
      } else if (text_.substr(at_, 2) == "//") {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else {
        return;
      }
    }
  }
  std::string_view file_, text_;
  size_t at_ = 0;
  int line_;
};

// "u32" to 4 bytes.
std::optional<int64_t> bytes_of_type(std::string_view type) {
  static const std::map<std::string_view, int64_t> bytes{{"b8", 1},  {"u8", 1},  {"s8", 1},  {"b16", 2}, {"u16", 2},
                                                         {"s16", 2}, {"b32", 4}, {"u32", 4}, {"s32", 4}, {"f32", 4},
                                                         {"b64", 8}, {"u64", 8}, {"s64", 8}, {"f64", 8}};
  const auto at = bytes.find(type);
  return at == bytes.end() ? std::nullopt : std::optional(at->second);
}

using Named = std::vector<std::pair<std::string, Module::Symbol>>;

// [.align N] .TYPE NAME [[COUNT]], behind the word for the space.
Named::value_type declaration(Reader& r, std::string_view space) {
  Module::Symbol s{.space = std::string(space)};
  std::string_view type = r.word(true);
  const bool aligned = type == ".align";
  if (aligned) s.align = r.integer(), type = r.word(true);
  const auto bytes = bytes_of_type(type.substr(1));
  if (!bytes) r.fail_here(fmt::format("unknown type {}", type));
  if (!aligned) s.align = *bytes;
  s.bytes = s.element = *bytes;
  const std::string name(r.word());
  if (r.take('[')) {
    s.dynamic = r.peek() == ']';
    if (!s.dynamic) s.bytes *= r.integer();
    r.expect(']');
  }
  return {name, s};
}
Named parameters(Reader& r) {
  Named all;
  r.expect('(');
  while (!r.take(')')) {
    if (r.word(true) != ".param") r.fail_here("expected a .param");
    all.push_back(declaration(r, "param"));
    r.take(',');
  }
  return all;
}
std::vector<std::string> names(const Named& all) {
  std::vector<std::string> only;
  for (const auto& [name, symbol] : all) only.push_back(name);
  return only;
}
uint64_t aligned_up(uint64_t n, int64_t to) {
  return (n + static_cast<uint64_t>(to) - 1) / static_cast<uint64_t>(to) * static_cast<uint64_t>(to);
}
}  // namespace

Module::Module(std::string name, const std::string& text) : name_(std::move(name)) {
  Reader r(name_, text, 1);
  while (!r.done()) {
    std::string_view word = r.word(true);
    if (word == ".version" || word == ".target" || word == ".address_size") {
      const std::string_view value = r.word(true);
      if (word == ".address_size" && value != "64") r.fail_here("addresses of other than 64 bits");
      continue;
    }
    while (word == ".visible" || word == ".extern" || word == ".weak") word = r.word(true);
    if (word == ".entry") {
      Kernel k;
      k.name = demangled(std::string(r.word()));
      k.line = r.line();
      k.module = this;
      const size_t begin = r.at();
      r.until('{');
      k.header = r.from(begin);
      k.body = r.braced();
      kernels_.push_back(std::move(k));
    } else if (word == ".func") {
      Function f;
      if (r.peek() == '(') f.results = names(parameters(r));
      const std::string function_name(r.word());
      f.parameters = names(parameters(r));
      if (r.take(';')) continue;
      f.line = r.line();
      f.body = r.braced();
      functions_.emplace_back(function_name, std::move(f));
    } else if (word == ".shared" || word == ".global") {
      auto [symbol_name, symbol] = declaration(r, word.substr(1));
      if (word == ".global") {
        memory_.push_back(std::make_unique<uint64_t[]>(static_cast<size_t>(symbol.bytes) / 8 + 3));
        symbol.address = aligned_up(reinterpret_cast<uint64_t>(memory_.back().get()), symbol.align);
        if (symbol.align > 16) r.fail_here("a variable of more than 16 bytes' alignment");
        if (r.take('=')) {
          r.expect('{');
          auto* to = reinterpret_cast<unsigned char*>(symbol.address);
          for (int64_t i = 0; !r.take('}'); i++) {
            if (symbol.element != 1 || i == symbol.bytes) r.fail_here("unknown form of values");
            to[i] = static_cast<unsigned char>(r.integer());
            r.take(',');
          }
        }
        symbol.placed = true;
      }
      r.expect(';');
      symbols_.emplace_back(symbol_name, symbol);
    } else {
      r.fail_here(fmt::format("unknown directive {}", word));
    }
  }
}
Module::~Module() = default;

const Module::Function* Module::function(const std::string& name) const {
  for (const auto& [of, f] : functions_)
    if (of == name) return &f;
  return nullptr;
}
bool Module::holds(uint64_t address, int64_t bytes) const {
  return std::any_of(symbols_.begin(), symbols_.end(), [&](const auto& named) {
    const Symbol& s = named.second;
    return s.space == "global" && address >= s.address &&
           address + static_cast<uint64_t>(bytes) <= s.address + static_cast<uint64_t>(s.bytes);
  });
}

namespace {
struct Operand {
  // As in Operation::form; '#' an integer, 'f' and 'd' numbers of 32 and 64 bits, 'A' an address of 64 bits, 'S' that
  // of a shared variable, 'G' of another.
  char kind;
  int slot = -1;
  uint64_t value = 0;                // of a number, or the address's offset
  Module::Symbol* symbol = nullptr;  // of an address or an address's base
  std::string label;
};
struct Group {
  bool vector = false;
  std::vector<Operand> operands;
};

class Decoder {
 public:
  explicit Decoder(const Kernel& k) : kernel_(k), code_(std::make_shared<Code>()) {}

  std::shared_ptr<const Code> decode() {
    code_->text = kernel_.body;
    scopes_.emplace_back();
    for (const auto& [name, symbol] : kernel_.module->symbols()) scopes_.back().symbols[name] = add(symbol);
    Reader header(kernel_.module->name(), kernel_.header, kernel_.line);
    scopes_.emplace_back();
    int64_t begin = 0;
    for (auto [name, s] : parameters(header)) {
      s.address = aligned_up(static_cast<uint64_t>(begin), s.align);
      s.placed = true;
      begin = static_cast<int64_t>(s.address) + s.bytes;
      scopes_.back().symbols[name] = add(s);
    }
    code_->parameter_bytes = begin;
    while (!header.done()) {
      const std::string_view word = header.word(true);
      if (word == ".maxntid") {
        code_->max_threads = static_cast<int>(header.integer());
        while (header.take(',')) code_->max_threads *= static_cast<int>(header.integer());
      } else if (word == ".minnctapersm" || word == ".maxnreg") {
        header.integer();  // for ptxas
      } else {
        header.fail_here(fmt::format("unknown directive {}", word));
      }
    }
    shared_ = shared_start;
    body(code_->text, kernel_.line + static_cast<int>(std::count(kernel_.header.begin(), kernel_.header.end(), '\n')),
         -1);
    finish();
    return code_;
  }

 private:
  struct Register {
    int slot;
    char kind;
  };
  struct Scope {
    std::map<std::string, Register, std::less<>> registers;
    std::map<std::string, Module::Symbol*, std::less<>> symbols;
  };

  Module::Symbol* add(const Module::Symbol& s) {
    return symbols_.emplace_back(std::make_unique<Module::Symbol>(s)).get();
  }
  int new_slot(char kind) {
    const int slot = code_->units;
    code_->units += kind == 'l' ? 2 : 1;
    return slot;
  }

  // The instructions of a body: of the call with that number, or -1, the kernel itself. Labels are each body's own.
  void body(std::string_view text, int line, int call) {
    Reader r(kernel_.module->name(), text, line);
    const int outer = call_;
    call_ = call;
    scopes_.emplace_back();
    size_t depth = 1;
    while (!r.done()) {
      if (r.take('{')) {
        scopes_.emplace_back();
        depth++;
      } else if (r.take('}')) {
        if (depth-- == 1) r.fail_here("one brace too many");
        scopes_.pop_back();
      } else if (r.peek() == '.') {
        directive(r);
      } else {
        statement(r);
      }
    }
    if (depth != 1) r.fail_here("a brace is not closed");
    scopes_.pop_back();
    call_ = outer;
  }

  void directive(Reader& r) {
    const std::string_view word = r.word(true);
    if (word == ".reg") {
      const std::string_view type = r.word(true);
      const auto bytes = bytes_of_type(type.substr(1));
      if (!bytes && type != ".pred") r.fail_here(fmt::format("registers of unknown type {}", type));
      const char kind = type == ".pred" ? 'p' : *bytes == 8 ? 'l' : 'w';
      do {
        const std::string name(r.word());
        if (r.take('<')) {
          const int64_t count = r.integer();
          r.expect('>');
          for (int64_t i = 0; i < count; i++)
            scopes_.back().registers[name + std::to_string(i)] = {new_slot(kind), kind};
        } else {
          scopes_.back().registers[name] = {new_slot(kind), kind};
        }
      } while (r.take(','));
    } else if (word == ".shared" || word == ".local" || word == ".param") {
      auto [name, symbol] = declaration(r, word.substr(1));
      if (word != ".shared") place_in_local(symbol);
      scopes_.back().symbols[name] = add(symbol);
    } else if (word == ".pragma") {
      if (const std::string_view hint = r.until(';'); hint != "\"nounroll\"")
        r.fail_here(fmt::format("unknown pragma {}", hint));
    } else {
      r.fail_here(fmt::format("unknown directive {}", word));
    }
    r.expect(';');
  }
  void place_in_local(Module::Symbol& s) {
    code_->local_bytes =
        static_cast<int64_t>(aligned_up(static_cast<uint64_t>(code_->local_bytes), std::max<int64_t>(s.align, 8)));
    s.address = local_start + static_cast<uint64_t>(code_->local_bytes);
    s.placed = true;
    code_->local_bytes += s.bytes;
  }

  std::string label_of(std::string_view name) const { return fmt::format("{}@{}", name, call_); }

  void statement(Reader& r) {
    const int line = r.line();
    const size_t begin = r.at();
    Instruction i;
    i.line = line;
    if (r.take('@')) {
      i.negated = r.take('!');
      const Register guard = find_register(r, r.word());
      if (guard.kind != 'p') r.fail_here("a guard that is no predicate");
      i.guard = guard.slot;
    }
    const std::string opcode(r.word(true));
    if (i.guard < 0 && r.take(':')) {
      labels_[label_of(opcode)] = static_cast<int>(code_->instructions.size());
      return;
    }
    if (opcode == "call.uni") {
      if (i.guard >= 0) r.fail_here("a call with a guard");
      return call(r);
    }
    std::vector<Group> groups;
    while (!r.take(';')) {
      groups.push_back(group(r));
      if (r.peek() != ';' && !r.take(',') && !r.take('|')) r.fail_here("unknown form of operands");
    }
    i.text = r.from(begin);
    const auto [first, last] = operations().equal_range(opcode);
    if (first == last) r.fail_here(fmt::format("unknown instruction {}", opcode));
    for (auto at = first; at != last; ++at)
      if (matches(at->second.form, groups)) {
        i.operation = &at->second;
        return append(i, groups);
      }
    r.fail_here(fmt::format("unknown operands of {}", opcode));
  }

  Register find_register(Reader& r, std::string_view name) {
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope)
      if (const auto at = scope->registers.find(name); at != scope->registers.end()) return at->second;
    r.fail_here(fmt::format("unknown register {}", name));
  }
  Module::Symbol* find_symbol(std::string_view name) {
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope)
      if (const auto at = scope->symbols.find(name); at != scope->symbols.end()) return at->second;
    return nullptr;
  }

  Group group(Reader& r) {
    Group g;
    if (r.take('{')) {
      g.vector = true;
      do g.operands.push_back(operand(r));
      while (r.take(','));
      r.expect('}');
    } else if (r.take('[')) {
      Operand a = operand(r);
      a.kind = a.symbol || a.kind == 'w' || a.kind == 'l' ? (a.kind == 'w' ? 'a' : 'A') : '?';
      if (r.take('+')) a.value = static_cast<uint64_t>(r.integer());
      r.expect(']');
      g.operands.push_back(a);
    } else {
      g.operands.push_back(operand(r));
    }
    return g;
  }

  Operand operand(Reader& r) {
    const char c = r.peek();
    if (c == '-' || std::isdigit(static_cast<unsigned char>(c))) {
      if (c == '0') {  // 0f3F800000, 0d..., or an integer
        Reader ahead = r;
        const std::string_view word = ahead.word();
        if (word.size() > 2 && (word[1] == 'f' || word[1] == 'F' || word[1] == 'd' || word[1] == 'D')) {
          uint64_t bits = 0;
          const bool wide = word[1] == 'd' || word[1] == 'D';
          if (word.size() != (wide ? 18 : 10)) r.fail_here("an unknown number");
          std::from_chars(word.data() + 2, word.data() + word.size(), bits, 16);
          r = ahead;
          return {.kind = wide ? 'd' : 'f', .value = bits, .label = {}};
        }
      }
      return {.kind = '#', .value = static_cast<uint64_t>(r.integer()), .label = {}};
    }
    const std::string_view name = r.word(true);
    if (name.starts_with("%") && name.find('.') != std::string_view::npos) return special(r, name);
    if (name == "%laneid") return special(r, "%laneid.x");
    if (Module::Symbol* s = find_symbol(name))
      return {.kind = s->space == "shared" ? 'S' : 'G', .symbol = s, .label = {}};
    if (name.starts_with("$")) return {.kind = 'L', .label = label_of(name)};
    const Register found = find_register(r, name);
    return {.kind = found.kind, .slot = found.slot, .label = {}};
  }

  Operand special(Reader& r, std::string_view name) {
    static const std::map<std::string_view, Special> known{{"%tid", Special::tid},
                                                           {"%ntid", Special::ntid},
                                                           {"%ctaid", Special::ctaid},
                                                           {"%nctaid", Special::nctaid},
                                                           {"%laneid", Special::laneid}};
    const size_t dot = name.find('.');
    const auto at = known.find(name.substr(0, dot));
    const size_t axis = std::string_view("xyz").find(name.substr(dot + 1));
    if (at == known.end() || axis == std::string_view::npos || name.size() != dot + 2)
      r.fail_here(fmt::format("unknown special register {}", name));
    for (const Constant& c : code_->constants)
      if (c.special == at->second && c.axis == static_cast<int>(axis))
        return {.kind = 'w', .slot = c.slot, .label = {}};
    code_->constants.push_back({.slot = new_slot('w'), .special = at->second, .axis = static_cast<int>(axis)});
    return {.kind = 'w', .slot = code_->constants.back().slot, .label = {}};
  }

  // Letter by letter; a digit stands for a vector of so many.
  static bool matches(std::string_view form, const std::vector<Group>& groups) {
    size_t g = 0;
    bool written = form.find('=') != std::string_view::npos;
    for (size_t f = 0; f < form.size(); f++) {
      if (form[f] == '=') {
        written = false;
        continue;
      }
      size_t count = 0;
      while (std::isdigit(static_cast<unsigned char>(form[f])))
        count = count * 10 + static_cast<size_t>(form[f++] - '0');
      if (g == groups.size() || groups[g].vector != (count > 0)) return false;
      if (groups[g].operands.size() != std::max<size_t>(count, 1)) return false;
      for (const Operand& o : groups[g].operands)
        if (!matches(form[f], o.kind, written)) return false;
      g++;
    }
    return g == groups.size();
  }
  static bool matches(char wanted, char given, bool written) {
    if (wanted == given) return true;
    if (written) return false;
    switch (wanted) {
      case 'w': return given == '#' || given == 'f' || given == 'S';
      case 'l': return given == '#' || given == 'd' || given == 'S' || given == 'G';
      case 'p': return given == '#';
      case 'a': return given == 'A';
      case 'n': return given == '#';
      default: return false;
    }
  }

  void append(Instruction i, const std::vector<Group>& groups) {
    const size_t first = code_->slots.size();
    std::string_view form = i.operation->form;
    size_t g = 0, numbers = 0;
    for (const char f : form) {
      if (f == '=') i.num_written = static_cast<int>(code_->slots.size() - first);
      if (f == '=' || std::isdigit(static_cast<unsigned char>(f))) continue;
      for (const Operand& o : groups[g].operands) {
        if (f == 'L') {
          targets_.emplace_back(code_->instructions.size(), o.label);
        } else if (f == 'n') {
          i.numbers[numbers++] = static_cast<int64_t>(o.value);
        } else if (f == 'a') {
          i.wide[numbers] = o.kind == 'A';
          i.numbers[numbers++] = static_cast<int64_t>(o.value);
          code_->slots.push_back(o.symbol ? constant('l', 0, o.symbol) : o.slot);
        } else {
          code_->slots.push_back(o.slot >= 0 ? o.slot : constant(f, o.value, o.symbol));
        }
      }
      g++;
    }
    i.num_slots = static_cast<int>(code_->slots.size() - first);
    code_->has_products |= i.operation->kind == Kind::group;
    code_->instructions.push_back(i);
  }

  // A register that holds a number, or a variable's address.
  int constant(char kind, uint64_t value, Module::Symbol* symbol) {
    if (symbol && !symbol->placed && !symbol->dynamic && symbol->space == "shared") {
      symbol->address = aligned_up(shared_, symbol->align);
      shared_ = symbol->address + static_cast<uint64_t>(symbol->bytes);
      symbol->placed = true;
    }
    if (kind == 'p') value = value ? 1 : 0;
    const auto [at, is_new] = constants_.try_emplace({kind, value, symbol}, 0);
    if (is_new) at->second = new_slot(kind);
    return at->second;
  }

  // call.uni (results), function, (parameters): the function's body, in which its parameters are the caller's.
  void call(Reader& r) {
    const auto list = [&] {
      std::vector<Module::Symbol*> all;
      r.expect('(');
      while (!r.take(')')) {
        Module::Symbol* s = find_symbol(r.word());
        if (!s || s->space != "param") r.fail_here("an unknown parameter of a call");
        all.push_back(s);
        r.take(',');
      }
      return all;
    };
    std::vector<Module::Symbol*> results;
    if (r.peek() == '(') results = list(), r.expect(',');
    const std::string name(r.word());
    const Module::Function* f = kernel_.module->function(name);
    if (!f) r.fail_here(fmt::format("a call of {}, which is not there", name));
    std::vector<Module::Symbol*> given;
    if (r.take(',')) given = list();
    r.expect(';');
    if (given.size() != f->parameters.size() || results.size() != f->results.size())
      r.fail_here("a call with other parameters than the function has");
    if (call_ > 100) r.fail_here("calls within calls");
    std::vector<Scope> outer = std::move(scopes_);
    scopes_ = {outer.front(), Scope{}};
    for (size_t p = 0; p < given.size(); p++) scopes_.back().symbols[f->parameters[p]] = given[p];
    for (size_t p = 0; p < results.size(); p++) scopes_.back().symbols[f->results[p]] = results[p];
    const size_t begin = code_->instructions.size();
    const int number = calls_++;
    body(f->body, f->line, number);
    // Its ends go on behind it.
    static const Operation jump{.form = "L", .execute = nullptr, .kind = Kind::branch};
    for (size_t i = begin; i < code_->instructions.size(); i++)
      if (code_->instructions[i].operation->kind == Kind::end) {
        code_->instructions[i].operation = &jump;
        targets_.emplace_back(i, fmt::format("end of call {}", number));
      }
    labels_[fmt::format("end of call {}", number)] = static_cast<int>(code_->instructions.size());
    scopes_ = std::move(outer);
  }

  void finish() {
    Code& c = *code_;
    const int* slot = c.slots.data();
    for (Instruction& i : c.instructions) {
      i.slots = slot;
      slot += i.num_slots;
    }
    for (const auto& [at, label] : targets_) {
      const auto found = labels_.find(label);
      CHECK(found != labels_.end() && found->second < static_cast<int>(c.instructions.size()), "{}:{}: no label {}",
            kernel_.module->name(), c.instructions[at].line, label);
      c.instructions[at].target = found->second;
    }
    int64_t align = 16;
    for (const auto& s : symbols_)
      if (s->dynamic) align = std::max(align, s->align);
    c.shared_begin = static_cast<int64_t>(aligned_up(shared_, align));
    c.shared_bytes = static_cast<int64_t>(shared_ - shared_start);
    for (const auto& [key, at] : constants_) {
      const auto& [kind, value, symbol] = key;
      const uint64_t base = !symbol ? 0 : symbol->dynamic ? static_cast<uint64_t>(c.shared_begin) : symbol->address;
      c.constants.push_back(
          {.slot = at, .wide = kind == 'l', .value = kind == 'p' ? value * 0xffffffff : value + base});
    }
    CHECK(!c.instructions.empty() && (c.instructions.back().operation->kind == Kind::end ||
                                      c.instructions.back().operation->kind == Kind::branch),
          "{}: {} goes on behind its last instruction", kernel_.module->name(), kernel_.name);
  }

  const Kernel& kernel_;
  std::shared_ptr<Code> code_;
  std::vector<std::unique_ptr<Module::Symbol>> symbols_;
  std::vector<Scope> scopes_;
  std::map<std::tuple<char, uint64_t, Module::Symbol*>, int> constants_;
  std::unordered_map<std::string, int> labels_;
  std::vector<std::pair<size_t, std::string>> targets_;
  uint64_t shared_ = 0;
  int call_ = -1, calls_ = 0;
};
}  // namespace

std::string demangled(const std::string& name) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status),
                                                         std::free);
  return status == 0 ? text.get() : name;
}

std::shared_ptr<const Code> decode(const Kernel& kernel) { return Decoder(kernel).decode(); }

const Operations& operations() {
  static const Operations all = [] {
    Operations made;
    add_arithmetic(made);
    add_memory(made);
    add_matrices(made);
    return made;
  }();
  return all;
}

}  // namespace megalith::ptx
