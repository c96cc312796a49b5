#include "tests/fuzz/targets.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>

#include "checkpoints/checksum.h"
#include "checkpoints/generation_config.h"
#include "checkpoints/hdf5_file.h"
#include "checkpoints/hugging_face.h"
#include "checkpoints/manifest.h"
#include "checkpoints/peft_folder.h"
#include "checkpoints/safetensors_folder.h"
#include "configs/config.h"
#include "configs/hardware.h"
#include "data/conversations/chat_template.h"
#include "data/conversations/jinja.h"
#include "data/samples/token_formats.h"
#include "data/tokenizers/bpe_names.h"
#include "data/tokenizers/tokenizer_json.h"
#include "kernels/system/files.h"
#include "kernels/system/json.h"

namespace megalith::fuzz {

namespace {

const std::string seeds = MEGALITH_SOURCE_DIR "/tests/fuzz/seeds/";

// A file in memory that holds the bytes put last.
class MemoryFile {
 public:
  const std::string& put(std::string_view bytes) {
    file_.write(0, bytes.data(), static_cast<int64_t>(bytes.size()));
    file_.resize(static_cast<int64_t>(bytes.size()));
    return file_.path();
  }
  const File& file() const { return file_; }

 private:
  File file_ = File::in_memory();
};

bool refused_or(const std::function<void()>& read) {
  try {
    read();
    return true;
  } catch (const Error&) {
    return false;
  }
}

void expect(bool right, const char* what) {
  if (!right) throw std::logic_error(what);
}

bool read_config(std::string_view bytes) {
  return refused_or([&] {
    const Config config = parse_config(bytes, "fuzz");
    expect(parse_config(to_toml(config), "printed") == config, "a config that was printed reads as another");
  });
}

bool read_hardware(std::string_view bytes) {
  return refused_or([&] { parse_hardware(bytes, "fuzz"); });
}

bool read_hugging_face_config(std::string_view bytes) {
  return refused_or([&] {
    const ModelConfig model = hugging_face_shape(bytes, "config.json");
    const auto end = hugging_face_end_of_documents(bytes, "config.json");
    expect(!end || (0 <= *end && *end < model.vocab), "a token that is none ends documents");
    const auto dropout = hugging_face_dropout(bytes, "config.json");
    expect(!dropout || (0 <= *dropout && *dropout < 1), "a dropout that is no probability");
  });
}

bool read_chat_template(std::string_view bytes) {
  static MemoryFile memory;
  return refused_or([&] {
    const ChatTemplate chat = chat_template(memory.put(bytes));
    ChatTemplate again = chat_template(memory.put(chat_template_file(chat)));
    expect(again == chat, "a template that was written reads as another");
    const std::vector<ChatMessage> messages{{"user", "a"}, {"assistant", "b"}};
    const RenderedChat rendered = render_chat(chat, messages);
    expect(rendered.counts.size() == 1 && rendered.counts[0].end <= rendered.text.size(),
           "an answer that is not there");
  });
}

// A template of somebody else, over a conversation; and what it writes is a text.
bool read_jinja(std::string_view bytes) {
  static const nlohmann::ordered_json variables = {
      {"messages", {{{"role", "system"}, {"content", "s"}}, {{"role", "user"}, {"content", "q"}}}},
      {"add_generation_prompt", true},
      {"bos_token", "<s>"}};
  return refused_or([&] {
    const std::string text = JinjaTemplate(std::string(bytes)).render(variables);
    const std::string literal = JinjaTemplate("{{ " + jinja_literal(text) + " }}").render(variables);
    expect(literal == text || text.find('\r') != std::string::npos, "a literal of a text is another text");
  });
}

bool read_generation(std::string_view bytes) {
  return refused_or([&] {
    const GenerationConfig read = generation_config(bytes, "generation_config.json");
    expect(!read.temperature || *read.temperature >= 0, "a temperature below 0");
    expect(!read.top_p || (0 <= *read.top_p && *read.top_p <= 1), "a share that is none");
  });
}

bool read_adapter_config(std::string_view bytes) {
  AdapterConfig here;
  here.rank = 8;
  return refused_or([&] { check_peft_config(bytes, "adapter_config.json", here); });
}

bool read_safetensors(std::string_view bytes) {
  static MemoryFile memory;
  const std::string& path = memory.put(bytes);
  return refused_or([&] {
    const SafeTensors file(path);
    for (const auto& named : file.entries()) {
      const int64_t numel = named.second.numel, count = std::min<int64_t>(numel, 64),
                    last = std::max<int64_t>(numel - 1, 1);
      std::vector<float> out(static_cast<size_t>(count));
      const auto read = [&](int64_t first, int64_t stride, int64_t n) {
        refused_or([&] { file.read(named.first, first, stride, n, out.data()); });
      };
      read(0, 1, count);
      read(numel - count, 1, count);
      read(0, last, std::min<int64_t>(count, 2));
    }
  });
}

bool read_safetensors_index(std::string_view bytes) {
  return refused_or([&] {
    for (const auto& [name, file] : safetensors_index(bytes, "index.json"))
      expect(file.find('/') == std::string::npos, "a file outside of the folder is listed");
  });
}

// With the checksum made right, or nothing but the checksum would be tried.
bool read_manifest_text(std::string_view bytes) {
  std::string text(bytes);
  constexpr size_t begin = 16, digits = 16;  // after {\n "checksum": "
  if (text.size() > begin + digits) {
    text.replace(begin, digits, digits, '0');
    text.replace(begin, digits, hex(checksum_of(text.data(), static_cast<int64_t>(text.size()))));
  }
  return refused_or([&] {
    const Manifest manifest = manifest_from_text(text, "manifest.json");
    expect(!manifest.files.empty() && manifest.step >= 0, "a manifest of nothing is read");
    int64_t bytes_in_all = 0;
    for (const FileRecord& f : manifest.files)
      for (const DatasetRecord& d : f.datasets) bytes_in_all = std::min<int64_t>(bytes_in_all + d.bytes(), 1 << 20);
    if (bytes_in_all < 1 << 20) check_complete(manifest);  // files of that size are there when it is asked for
    manifest_from_text(to_text(manifest), "printed");
  });
}

void read_all(const TokenSource& tokens) {
  std::vector<int32_t> some(static_cast<size_t>(std::min<int64_t>(tokens.size(), 100)));
  const auto count = static_cast<int64_t>(some.size());
  for (const int64_t begin : {int64_t{0}, tokens.size() - count}) {
    tokens.read(begin, some);
    if (count > 0)
      expect(tokens.max_token(begin, begin + count) <= tokens.max_possible_token(), "a token is too large");
  }
}

// The index of a token file of this many bytes.
bool read_index(std::string_view bytes) {
  static MemoryFile index, tokens;
  static const std::string tokens_path = tokens.put(std::string(48, '\1'));
  const std::string& path = index.put(bytes);
  return refused_or([&] {
    int64_t documents = 0;
    const auto source = open_megatron(tokens_path, path, documents);
    expect(documents >= 0, "an index of less than no documents");
    read_all(*source);
  });
}

bool read_tokens(std::string_view bytes) {
  static MemoryFile memory;
  const std::string& path = memory.put(bytes);
  return refused_or([&] {
    read_all(has_llmc_header(path) ? *open_llmc(path) : has_npy_magic(path) ? *open_npy(path) : *open_raw(path));
  });
}

// Making a tokenizer takes ten times as long as reading one, so some are tried.
bool is_tried(std::string_view bytes) { return bytes.size() % 16 == 0; }

// A text comes back from its tokens.
void try_gpt2(const std::string& vocab, const std::string& merges) {
  const auto tokenizer = tokenizer_of_files({{vocab_file, vocab}, {merges_file, merges}}, "fuzz", {});
  const std::string text = "What is read, comes back: \xc3\xa4\xff\n\n  12 ab.";
  std::vector<int32_t> ids;
  tokenizer->encode(text, ids);
  expect(tokenizer->decode(ids) == text, "a text comes back from its tokens as another");
}

// A tokenizer may change a text, but takes every one, and its ids are its own.
void try_any(const Tokenizer& tokenizer) {
  const std::string text = "What is read: \xc3\xa4\xff e\xcc\x81\n\n  12 ab <|endoftext|> they're.";
  for (const Tokenizer* one : {&tokenizer, tokenizer.with_specials()}) {
    if (!one) continue;
    std::vector<int32_t> ids;
    one->encode(text, ids);
    for (const int32_t id : ids) expect(id >= 0 && id < one->vocab_size(), "an id is none of the vocabulary");
    tokenizer.decode(ids);
    expect(one->last_cut(text) <= text.size(), "a cut is behind the text");
  }
}

bool read_vocab_json(std::string_view bytes) {
  return refused_or([&] { try_gpt2(std::string(bytes), ""); });
}

// The tokens of the merges come from a vocab.json that is read once.
bool read_merges_txt(std::string_view bytes) {
  static const std::string vocab = read_file(seeds + "beside_merges/vocab.json");
  return refused_or([&] { try_gpt2(vocab, std::string(bytes)); });
}

bool read_tokenizer(std::string_view bytes) {
  return refused_or([&] {
    const auto tokenizer = tokenizer_of_files({{tokenizer_json_file, std::string(bytes)}}, "fuzz", {});
    if (is_tried(bytes)) try_any(*tokenizer);
  });
}

// HDF5's library is given what a manifest says of a file, and lays it out.
bool read_layout(std::string_view bytes) {
  return refused_or([&] {
    const FileRecord record = file_record_from_text(std::string(bytes));
    const HDF5Layout layout(record.datasets);
    for (size_t i = 0; i < record.datasets.size(); i++)
      expect(layout.offsets()[i] == record.datasets[i].offset, "elements lie elsewhere than the record says");
    layout.structure(std::vector<uint64_t>(record.datasets.size()));
  });
}

}  // namespace

const std::vector<Target>& targets() {
  static const std::vector<Target> all = {{"config", read_config},
                                          {"hardware", read_hardware},
                                          {"config_json", read_hugging_face_config},
                                          {"adapter_config_json", read_adapter_config},
                                          {"safetensors", read_safetensors},
                                          {"safetensors_index", read_safetensors_index},
                                          {"manifest", read_manifest_text},
                                          {"idx", read_index},
                                          {"tokens", read_tokens},
                                          {"vocab_json", read_vocab_json},
                                          {"merges_txt", read_merges_txt},
                                          {"tokenizer_json", read_tokenizer},
                                          {"layout", read_layout},
                                          {"chat_template", read_chat_template},
                                          {"jinja", read_jinja},
                                          {"generation_config_json", read_generation}};
  return all;
}

const Target& target(std::string_view name) {
  for (const Target& one : targets())
    if (one.name == name) return one;
  std::string names;
  for (const Target& one : targets()) names += " " + one.name;
  FAIL("there is no fuzz target {}; there are{}", name, names);
}

std::vector<std::string> seeds_of(const Target& target) {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(seeds + target.name))
    paths.push_back(entry.path().string());
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace megalith::fuzz
