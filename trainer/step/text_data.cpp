#include "trainer/step/text_data.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <vector>

#include "data/sources.h"
#include "data/token_stream.h"
#include "data/tokenizer_spec.h"
#include "kernels/base/counted.h"

namespace megalith {

namespace {

// Where prepare puts the tokenizer of what it makes; of a glob, beside the first file that it matches.
std::string tokenizer_beside(const std::string& source) {
  const std::vector<std::string> files = matches_of(source);
  return (std::filesystem::path(files.empty() ? source : files.front()).parent_path() / "tokenizer").string();
}

// The tokenizers of the other sources of a blend are this one, if they are known.
void check_same_beside(const DataConfig& data, const std::string& path, const Tokenizer& tokenizer) {
  for (const DataSource& source : parse_sources("data.train", data.train)) {
    const std::string other = tokenizer_beside(source.name);
    if (other == path || !std::filesystem::is_directory(other)) continue;
    CHECK(load_tokenizer(other)->content() == tokenizer.content(),
          "data.train: {} was prepared with the tokenizer in {}, which is another than that in {}; prepare all sources "
          "with one, as in `megalith prepare --tokenizer {}`",
          source.name, other, path, path);
  }
}

// Whether the tokenizer in a folder, which made the data beside it, is the one of these words of prepare.
void check_as_prepared(const std::string& words, const std::string& folder, const Tokenizer& tokenizer) {
  const bool of_bytes = std::filesystem::exists(std::filesystem::path(folder) / byte_tokenizer_file);
  const bool same = words == "bytes" ? of_bytes : !of_bytes && tokenizer.vocab_size() == vocab_to_train(words);
  CHECK(same,
        "data.tokenizer = {}, but {}, with which data.train was prepared, {} {} ids; leave data.tokenizer empty to use "
        "it, or run `megalith prepare` again with {}",
        words, folder, of_bytes ? "is that of bytes, with" : "is a BPE of", tokenizer.vocab_size(), words);
}

}  // namespace

std::string tokenizer_path(const DataConfig& data) {
  if (names_folder(data.tokenizer)) return data.tokenizer;
  if (data.train.empty()) return "";
  std::string first;
  for (const DataSource& source : parse_sources("data.train", data.train)) {
    const std::string beside = tokenizer_beside(source.name);
    if (std::filesystem::is_directory(beside)) return beside;
    if (first.empty()) first = beside;
  }
  return first;
}

std::unique_ptr<Tokenizer> open_tokenizer(Config& config) {
  const std::string wanted = config.data.tokenizer, path = tokenizer_path(config.data);
  vocab_to_train(wanted);
  if (!std::filesystem::is_directory(path)) {
    if (wanted.empty() && config.model.vocab > 0) return nullptr;
    if (!config.data.train.empty())
      for (const DataSource& source : parse_sources("data.train", config.data.train))
        for (const std::string& file : files_of("data.train", source.name))
          TokenStream::open(file);  // what is wrong with it is said before what is missing beside it
    CHECK(
        wanted.empty() || names_folder(wanted),
        "data.tokenizer = {}, but no tokenizer/ stands beside data.train = \"{}\"; run `megalith prepare` with it, or "
        "name a tokenizer's folder",
        wanted, config.data.train);
    CHECK(!wanted.empty(),
          "model.vocab = 0, data.tokenizer is empty, and no tokenizer/ stands beside data.train = \"{}\"; set one of "
          "them",
          config.data.train);
  }
  auto tokenizer = load_tokenizer(path);
  if (!wanted.empty() && !names_folder(wanted)) check_as_prepared(wanted, path, *tokenizer);
  if (!names_folder(wanted)) check_same_beside(config.data, path, *tokenizer);
  config.data.tokenizer = path;
  if (config.model.vocab == 0) config.model.vocab = tokenizer->vocab_size();
  if (config.data.isolate_documents && config.data.end_of_text < 0) config.data.end_of_text = tokenizer->end_of_text();
  CHECK(tokenizer->vocab_size() <= config.model.vocab,
        "the tokenizer in {} has {} ids, but model.vocab = {}; raise model.vocab or leave it at 0", path,
        tokenizer->vocab_size(), config.model.vocab);
  return tokenizer;
}

namespace {

void check_end_of_text(const Config& config) {
  const DataConfig& data = config.data;
  if (!data.isolate_documents) return;
  CHECK(data.end_of_text >= 0,
        "data.isolate_documents = true, but no tokenizer says which token ends a document; name its folder in "
        "data.tokenizer, or the token in data.end_of_text (in GPT-2's vocabulary 50256)");
  CHECK(data.end_of_text < config.model.vocab,
        "data.end_of_text = {} is beyond the vocabulary of {}; set the token that ends a document, or -1 for the "
        "tokenizer's",
        data.end_of_text, config.model.vocab);
}

TokenStream open_source(const std::string& key, const std::string& name, int64_t vocab, int rank, int ranks) {
  TokenStream stream = TokenStream::open(name, files_of(key, name));
  constexpr int64_t most = std::numeric_limits<uint16_t>::max() + 1;
  CHECK(!stream.is_raw() || vocab <= most,
        "{} = {} has no .idx beside it and is taken for raw uint16 tokens, which are too narrow for model.vocab = {}; "
        "put back the .idx that `megalith prepare` made with it, or set model.vocab to {} or less",
        key, name, vocab, most);
  const Interval share = part_of({0, stream.size()}, rank, ranks);
  if (stream.max_possible_token() >= vocab && share.size() > 0) {
    const int32_t largest = stream.max_token(share.begin, share.end);
    CHECK(
        largest < vocab,
        "{} = {} holds token {}, beyond the vocabulary of {}; use the tokenizer that made it, or set model.vocab to at "
        "least {}",
        key, name, largest, vocab, int64_t{largest} + 1);
  }
  return stream;
}

// A text that is shorter than one sample, said with the keys that help.
void check_length(const std::string& key, const TokenStream& stream, int64_t sequence_length) {
  const bool of_command = key.starts_with("--");
  CHECK(
      stream.size() > sequence_length,
      "{} = {} holds {}, but one sample of sequence length {} takes {}; give more text, or {}{} or less{}", key,
      stream.path(), counted(stream.size(), "token"), sequence_length, sequence_length + 1,
      of_command ? "--sequence-length " : "batch.sequence_length=", std::max<int64_t>(stream.size() - 1, 1),
      key == "data.validation" ? ", or train without held-out text: data.validation= and train.evaluate_every=0" : "");
}

}  // namespace

Loader open_data(const std::string& key, const std::string& sources, const Config& config, bool shuffle, int rank,
                 int ranks) {
  CHECK(!sources.empty(), "{} is empty; name a token file made by `megalith prepare`, e.g. {}=runs/text/train.bin", key,
        key);
  check_end_of_text(config);
  std::vector<TokenStream> streams;
  std::vector<int64_t> shares;
  for (const DataSource& source : parse_sources(key, sources)) {
    streams.push_back(open_source(key, source.name, config.model.vocab, rank, ranks));
    check_length(key, streams.back(), config.batch.sequence_length);
    shares.push_back(source.share);
  }
  return Loader(std::move(streams), Blend(std::move(shares)), config.batch.sequence_length, shuffle,
                static_cast<uint64_t>(config.data.seed));
}

std::vector<std::string> describe_data(const std::string& key, const Loader& data, int64_t samples) {
  const SampleOrder& order = data.order();
  const std::vector<TokenStream>& streams = data.streams();
  std::vector<std::string> lines;
  for (size_t i = 0; i < streams.size(); i++) {
    const TokenStream& s = streams[i];
    const double epochs = static_cast<double>(order.blend().count(i, samples)) / static_cast<double>(order.sizes()[i]);
    lines.push_back(
        fmt::format("{} {}{}: {}, {}, {}, {}; the run makes {:.3g} epochs of it", key, s.path(),
                    streams.size() == 1
                        ? ""
                        : fmt::format(" ({:.4g} % of samples)", 100.0 * static_cast<double>(order.blend().shares()[i]) /
                                                                    static_cast<double>(order.blend().cycle())),
                    s.format(), counted(s.files().size(), "file"),
                    s.documents() == unknown_documents ? "documents unknown" : counted(s.documents(), "document"),
                    counted(s.size(), "token"), epochs));
  }
  return lines;
}

Feed feed_from(const Loader& loader, int64_t first, int64_t vocab) {
  return [&loader, first, vocab](Interval sequences, Tensor tokens, Tensor targets) {
    const int64_t T = loader.sequence_length(), n = sequences.size() * T, N = tokens.numel();
    int32_t* in = tokens.data<int32_t>();
    int32_t* out = targets.data<int32_t>();
    loader.fill(first + sequences.begin, sequences.size(), {in, static_cast<size_t>(n)}, {out, static_cast<size_t>(n)});
    for (int64_t i = 0; i < n; i++)
      CHECK(in[i] >= 0 && in[i] < vocab && out[i] >= 0 && out[i] < vocab,
            "a token of sequence {} is beyond the vocabulary of {}", first + sequences.begin + i / T, vocab);
    std::fill(in + n, in + N, 0);
    std::fill(out + n, out + N, -1);
  };
}

std::optional<HeldOut> open_held_out(const Config& config, const Tokenizer* tokenizer, int rank, int ranks) {
  if (config.data.validation.empty()) return std::nullopt;
  HeldOut held{open_data("data.validation", config.data.validation, config, false, rank, ranks)};
  held.sequences = std::min(held.loader.num_samples(), config.train.evaluate_batches * config.batch.global_batch_size);
  if (tokenizer) held.bytes = target_bytes(held.loader, held.sequences, *tokenizer);
  return held;
}

int64_t target_bytes(const Loader& loader, int64_t sequences, const Tokenizer& tokenizer) {
  const auto T = static_cast<size_t>(loader.sequence_length());
  std::vector<int32_t> inputs(T), targets(T);
  int64_t bytes = 0;
  for (int64_t i = 0; i < sequences; i++) {
    loader.fill(i, 1, inputs, targets);
    for (int32_t id : targets) bytes += static_cast<int64_t>(tokenizer.token_bytes(id).size());
  }
  return bytes;
}

}  // namespace megalith
