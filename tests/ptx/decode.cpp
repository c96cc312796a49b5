// A kernel's text to code (PTX ISA, "Directives", "Instruction operands").
#include <algorithm>
#include <charconv>
#include <map>

#include "kernels/system/check.h"
#include "tests/ptx/code.h"
#include "tests/ptx/operands.h"
#include "tests/ptx/reader.h"

namespace megalith::ptx {

namespace {
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

std::shared_ptr<const Code> decode(const Kernel& kernel) { return Decoder(kernel).decode(); }

const Operations& operations() {
  static const Operations all = [] {
    Operations made;
    add_arithmetic(made);
    add_conversions(made);
    add_exchanges(made);
    add_memory(made);
    add_matrices(made);
    return made;
  }();
  return all;
}

}  // namespace megalith::ptx
