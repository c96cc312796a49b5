#include "trainer/step/text_data.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <vector>

#include "data/corpus/tokenizer_spec.h"
#include "data/samples/largest_ids.h"
#include "data/samples/sources.h"
#include "data/samples/token_stream.h"
#include "kernels/system/counted.h"
#include "kernels/system/long_work.h"

namespace megalith {

namespace {

// Returns where prepare puts the tokenizer of its output; for a glob, in the folder of the first file that matches.
std::string tokenizer_folder_of(const std::string& source) {
  const std::vector<std::string> files = matches_of(source);
  return (std::filesystem::path(files.empty() ? source : files.front()).parent_path() / "tokenizer").string();
}

// Error: the known tokenizer of a source is a different one.
void check_same_tokenizer(const std::string& key, const std::string& sources, const std::string& path,
                          const Tokenizer& tokenizer) {
  for (const auto& [source, other, made_by] : tokenizers_of_sources(key, sources))
    CHECK(made_by->content() == tokenizer.content(),
          "{}: {} was prepared with the tokenizer in {}, which differs from that in {}; prepare all sources with one, "
          "as in `megalith prepare --tokenizer {}`",
          key, source, other, path, path);
}

// Error: the tokenizer in a folder, which made the data there, is not the one that `words`, in the form of prepare,
// name.
void check_as_prepared(const std::string& words, const std::string& folder, const Tokenizer& tokenizer) {
  const bool of_bytes = std::filesystem::exists(std::filesystem::path(folder) / byte_tokenizer_file);
  const bool same = words == "bytes" ? of_bytes : !of_bytes && tokenizer.vocab_size() == vocab_to_train(words);
  CHECK(same,
        "data.tokenizer = {}, but {}, with which data.train was prepared, {} {} ids; leave data.tokenizer empty to use "
        "it, or run `megalith prepare` again with {}",
        words, folder, of_bytes ? "is that of bytes, with" : "is a BPE of", tokenizer.vocab_size(), words);
}

}  // namespace

std::vector<SourceTokenizer> tokenizers_of_sources(const std::string& key, const std::string& sources) {
  std::vector<SourceTokenizer> found;
  for (const std::string& source : names_of_sources(key, sources)) {
    const std::string folder = tokenizer_folder_of(source);
    const auto is_it = [&](const SourceTokenizer& other) { return other.folder == folder; };
    if (std::ranges::any_of(found, is_it)) continue;
    try {
      found.push_back({source, folder, load_tokenizer(folder)});
    } catch (const Error&) {
      // The folder has no tokenizer, or one that prepare has not written.
    }
  }
  return found;
}

std::string tokenizer_path(const DataConfig& data) {
  if (names_folder(data.tokenizer)) return data.tokenizer;
  if (data.train.empty()) return "";
  std::string first;
  for (const DataSource& source : parse_sources("data.train", data.train)) {
    std::string folder = tokenizer_folder_of(source.name);
    if (std::filesystem::is_directory(folder)) return folder;
    if (first.empty()) first = folder;
  }
  return first;
}

void find_masks(Config& config) {
  size_t files = 0, masks = 0;
  for (const auto& [key, sources] :
       {std::pair("data.train", config.data.train), std::pair("data.validation", config.data.validation)})
    for (const std::string& source : names_of_sources(key, sources))
      for (const std::string& file : matches_of(source, key)) {
        files++;
        masks += mask_path_of(file).empty() ? 0 : 1;
      }
  if (files > 0) config.data.masked = masks > 0;
}

std::unique_ptr<Tokenizer> open_tokenizer(Config& config) {
  find_masks(config);
  const std::string wanted = config.data.tokenizer, path = tokenizer_path(config.data);
  vocab_to_train(wanted);
  if (!std::filesystem::is_directory(path)) {
    if (wanted.empty() && config.model.vocab > 0) return nullptr;
    if (!config.data.train.empty())
      for (const DataSource& source : parse_sources("data.train", config.data.train))
        for (const std::string& file : files_of("data.train", source.name))
          TokenStream::open(file);  // errors in the file come before errors in its folder
    CHECK(wanted.empty() || names_folder(wanted),
          "data.tokenizer = {}, but the folder of data.train = \"{}\" has no tokenizer/; run `megalith prepare` with "
          "it, or name a tokenizer's folder",
          wanted, config.data.train);
    CHECK(!wanted.empty(),
          "model.vocab = 0, data.tokenizer is empty, and the folder of data.train = \"{}\" has no tokenizer/; set one "
          "of them",
          config.data.train);
  }
  auto tokenizer = load_tokenizer(path);
  if (!wanted.empty() && !names_folder(wanted)) check_as_prepared(wanted, path, *tokenizer);
  check_same_tokenizer("data.train", config.data.train, path, *tokenizer);
  check_same_tokenizer("data.validation", config.data.validation, path, *tokenizer);
  config.data.tokenizer = path;
  if (config.model.vocab == 0) config.model.vocab = tokenizer->vocab_size();
  if (config.data.isolate_documents && config.data.end_of_text < 0) config.data.end_of_text = tokenizer->end_of_text();
  CHECK(
      tokenizer->vocab_size() <= config.model.vocab,
      "the tokenizer in {} has {} ids, but model.vocab = {}; set model.vocab={}{}", path, tokenizer->vocab_size(),
      config.model.vocab, tokenizer->vocab_size(),
      config.checkpoint.init_from.empty() ? ", or leave it at 0" : ", which adds rows to the embedding of the weights");
  return tokenizer;
}

namespace {

void check_end_of_text(const Config& config) {
  const DataConfig& data = config.data;
  if (!data.isolate_documents || data.masked) return;
  CHECK(data.end_of_text >= 0,
        "data.isolate_documents = true, but the token that ends a document is unknown without a tokenizer; name its "
        "folder in data.tokenizer, or the token in data.end_of_text (in GPT-2's vocabulary 50256)");
  CHECK(data.end_of_text < config.model.vocab,
        "data.end_of_text = {} is beyond the vocabulary of {}; set the token that ends a document, or -1 for the "
        "tokenizer's",
        data.end_of_text, config.model.vocab);
}

// Returns whether prepare has noted that all ids of these files are in the vocabulary.
bool prepared_below(const TokenStream& stream, int64_t vocab) {
  return std::ranges::all_of(stream.files(), [&](const std::string& file) {
    const std::optional<int32_t> largest = noted_largest_id(file);
    return largest && *largest < vocab;
  });
}

int32_t largest_token(const TokenStream& stream, Interval range) {
  constexpr int64_t block = int64_t{64} << 20;  // tokens
  LongWork work("checking the tokens of " + stream.path(), range.size());
  int32_t largest = 0;
  for (int64_t begin = range.begin; begin < range.end; begin += block) {
    const int64_t end = std::min(begin + block, range.end);
    largest = std::max(largest, stream.max_token(begin, end));
    work.advance(end - begin);
  }
  return largest;
}

TokenStream open_source(const std::string& key, const std::string& name, int64_t vocab, int rank, int ranks,
                        const CheckedTokens& checked) {
  TokenStream stream = TokenStream::open(name, files_of(key, name));
  constexpr int64_t most = std::numeric_limits<uint16_t>::max() + 1;
  CHECK(!stream.is_raw() || vocab <= most,
        "{} = {} has no .idx and is read as raw uint16 tokens, which are too narrow for model.vocab = {}; restore the "
        ".idx that `megalith prepare` made with it, or set model.vocab to {} or less",
        key, name, vocab, most);
  const Interval share = part_of({0, stream.size()}, rank, ranks);
  if (stream.max_possible_token() >= vocab && share.size() > 0 && !checked.below(stream.files(), vocab) &&
      !prepared_below(stream, vocab)) {
    const int32_t largest = largest_token(stream, share);
    CHECK(largest < vocab,
          "{} = {} has token {}, beyond the vocabulary of {}; use the tokenizer that made it, or set model.vocab to at "
          "least {}",
          key, name, largest, vocab, int64_t{largest} + 1);
  }
  return stream;
}

// Error: a text shorter than one sample, with the keys that help.
void check_length(const std::string& key, const TokenStream& stream, int64_t sequence_length) {
  CHECK(stream.size() > sequence_length,
        "{} = {} has {}, but one sample of sequence length {} takes {}; give more text, or batch.sequence_length={} or "
        "less{}",
        key, stream.path(), counted(stream.size(), "token"), sequence_length, sequence_length + 1,
        std::max<int64_t>(stream.size() - 1, 1),
        key == "data.validation" ? ", or train without a validation set: data.validation= and train.evaluate_every=0"
                                 : "");
}

struct Opened {
  std::vector<TokenStream> streams;
  std::vector<int64_t> shares;
};

Opened open_sources(const std::string& key, const std::string& sources, const Config& config, int rank, int ranks,
                    const CheckedTokens& checked) {
  CHECK(!sources.empty(), "{} is empty; name a token file made by `megalith prepare`, e.g. {}=runs/text/train.bin", key,
        key);
  check_end_of_text(config);
  Opened opened;
  for (const DataSource& source : parse_sources(key, sources)) {
    opened.streams.push_back(open_source(key, source.name, config.model.vocab, rank, ranks, checked));
    opened.shares.push_back(source.share);
  }
  return opened;
}

void check_tokens(int64_t sequence, std::span<const int32_t> tokens, int32_t least, int64_t vocab) {
  for (const int32_t token : tokens)
    CHECK(token >= least && token < vocab, "a token of sequence {} is beyond the vocabulary of {}", sequence, vocab);
}

// fill(i, inputs, targets) makes sequence i; `least` is the smallest valid target.
template <class Fill>
Feed::Fill fill_by(const Fill& fill, int64_t first, int64_t T, int32_t least, int64_t vocab) {
  return [=](Interval sequences, Tensor tokens, Tensor targets) {
    const std::span in(tokens.data<int32_t>(), static_cast<size_t>(tokens.numel()));
    const std::span out(targets.data<int32_t>(), static_cast<size_t>(targets.numel()));
    const auto length = static_cast<size_t>(T), n = static_cast<size_t>(sequences.size()) * length;
    for (size_t at = 0; at < n; at += length) {
      const int64_t sequence = first + sequences.begin + static_cast<int64_t>(at / length);
      fill(sequence, in.subspan(at, length), out.subspan(at, length));
      check_tokens(sequence, in.subspan(at, length), 0, vocab);
      check_tokens(sequence, out.subspan(at, length), least, vocab);
    }
    std::ranges::fill(in.subspan(n), 0);
    std::ranges::fill(out.subspan(n), -1);
  };
}

template <class Fill>
int64_t bytes_by(const Fill& fill, int64_t T, int64_t sequences, const Tokenizer& tokenizer) {
  std::vector<int32_t> inputs(static_cast<size_t>(T)), targets(inputs.size());
  int64_t bytes = 0;
  for (int64_t i = 0; i < sequences; i++) {
    fill(i, std::span(inputs), std::span(targets));
    for (const int32_t id : targets)
      if (id >= 0) bytes += static_cast<int64_t>(tokenizer.token_bytes(id).size());
  }
  return bytes;
}

}  // namespace

namespace {

// Error: tokens without a mask, used together with masked ones, that do not contain document boundaries.
void check_begins(const std::string& key, const std::vector<TokenStream>& streams) {
  if (std::ranges::none_of(streams, &TokenStream::is_masked)) return;
  for (const TokenStream& stream : streams)
    CHECK(stream.is_masked() || stream.documents() != unknown_documents,
          "{} = {} has no document boundaries, which are needed together with tokens that have a mask; make it with "
          "`megalith prepare`, or train on it separately",
          key, stream.path());
}

// Error: no token of a source counts, so that it has no mean loss.
void check_counts(const std::string& key, const Loader& loader) {
  for (size_t i = 0; i < loader.streams().size(); i++) {
    const Packs* packs = loader.packs(i);
    if (!packs) continue;
    int64_t counted = 0;
    for (int64_t sequence = 0; sequence < packs->size() && counted == 0; sequence++)
      counted += packs->counted(sequence);
    CHECK(counted > 0,
          "{} = {}: by its mask none of its {} counts in the loss; prepare conversations with answers, or leave it out",
          key, loader.streams()[i].path(), megalith::counted(loader.streams()[i].size(), "token"));
  }
}

}  // namespace

Loader open_data(const std::string& key, const std::string& sources, const Config& config, bool shuffle, int rank,
                 int ranks, const CheckedTokens& checked) {
  Opened opened = open_sources(key, sources, config, rank, ranks, checked);
  for (const TokenStream& stream : opened.streams)
    if (!stream.is_masked()) check_length(key, stream, config.batch.sequence_length);
  check_begins(key, opened.streams);
  Loader loader(std::move(opened.streams), Blend(std::move(opened.shares)), config.batch.sequence_length, shuffle,
                static_cast<uint64_t>(config.data.seed), config.data.pack);
  check_counts(key, loader);
  return loader;
}

Windows open_windows(const std::string& key, const std::string& sources, const Config& config, int rank, int ranks) {
  std::vector<TokenStream> streams = open_sources(key, sources, config, rank, ranks, {}).streams;
  check_begins(key, streams);
  return {std::move(streams), config.batch.sequence_length};
}

namespace {

// Describes how full the sequences of examples are, and the share of tokens that count.
std::string describe_packs(const Packs& packs) {
  const int64_t T = packs.sequence_length(), room = packs.size() * T;
  int64_t targets = 0;
  for (int64_t i = 0; i < packs.size(); i++) targets += packs.counted(i);
  return fmt::format("; {} in {} of {}, {:.1f} % full; {} ({:.1f} %) count", counted(packs.examples(), "example"),
                     counted(packs.size(), "sequence"), T,
                     100 * static_cast<double>(packs.places()) / static_cast<double>(room), counted(targets, "token"),
                     100 * static_cast<double>(targets) / static_cast<double>(room));
}

}  // namespace

std::vector<std::string> describe_data(const std::string& key, const Loader& data, int64_t samples) {
  const SampleOrder& order = data.order();
  const std::vector<TokenStream>& streams = data.streams();
  std::vector<std::string> lines;
  for (size_t i = 0; i < streams.size(); i++) {
    const TokenStream& s = streams[i];
    const double epochs = order.epochs(i, std::max(samples, order.first()));
    lines.push_back(
        fmt::format("{} {}{}: {}, {}, {}, {}; the run makes {:.3g} epochs of it", key, s.path(),
                    streams.size() == 1
                        ? ""
                        : fmt::format(" ({:.4g} % of samples)", 100.0 * static_cast<double>(order.blend().shares()[i]) /
                                                                    static_cast<double>(order.blend().cycle())),
                    s.format(), counted(s.files().size(), "file"),
                    s.documents() == unknown_documents ? "documents unknown" : counted(s.documents(), "document"),
                    counted(s.size(), "token"), epochs));
    if (const Packs* packs = data.packs(i)) lines.back() += describe_packs(*packs);
    if (const LeftOut others = left_out_of(s.path()); !others.empty())
      lines.back() += fmt::format("; the pattern leaves out {}", to_text(others));
    if (const int64_t rest = data.left_out(i); rest > 0)
      lines.back() += fmt::format("; an epoch leaves out {} at the end, which {} no sequence of {}",
                                  counted(rest, "token"), rest == 1 ? "fills" : "fill", data.sequence_length());
  }
  return lines;
}

Feed feed_from(const Loader& loader, int64_t first, int64_t vocab) {
  const auto fill = [&loader](int64_t i, auto in, auto out) { loader.fill(i, 1, in, out); };
  return {fill_by(fill, first, loader.sequence_length(), loader.is_masked() ? -1 : 0, vocab),
          [&loader, first](int64_t sequence) { return loader.document_begins(first + sequence); },
          [&loader, first](Interval sequences) { return loader.counted(first + sequences.begin, sequences.size()); }};
}

Feed feed_from(const Windows& windows, int64_t vocab) {
  const auto fill = [&windows](int64_t i, auto in, auto out) { windows.fill(i, in, out); };
  return {fill_by(fill, 0, windows.length(), -1, vocab),
          [&windows](int64_t sequence) { return windows.document_begins(sequence); }};
}

std::string describe_validation(const ValidationSet& set) {
  const int64_t T = set.loader.sequence_length();
  std::string name = set.name.empty() ? "" : set.name + ", ", path;
  int64_t targets = 0;
  for (const TokenStream& stream : set.loader.streams()) {
    path += (path.empty() ? "" : " and ") + stream.path();
    targets += stream.size() - 1;
  }
  name += path;
  if (set.loader.is_masked())
    return fmt::format("data.validation {}: evaluated on {} of {}, in which {}; {} left out", name,
                       counted(set.sequences, "sequence"), T,
                       counted(set.loader.counted(0, set.sequences), "token counts", "tokens count"),
                       counted(set.loader.num_samples() - set.sequences, "sequence"));
  return fmt::format("data.validation {}: evaluated on {} of {}; {} left out", name, counted(set.sequences, "sequence"),
                     T, counted(targets - set.sequences * T, "token"));
}

DocumentCount count_documents(const std::vector<TokenStream>& streams, int64_t end_of_text) {
  constexpr int64_t most = int64_t{1} << 22;
  DocumentCount found;
  for (const TokenStream& stream : streams) {
    const int64_t size = std::min(stream.size(), most);
    std::vector<int32_t> tokens(static_cast<size_t>(size));
    stream.read(0, tokens);
    std::vector<bool> begins(tokens.size());
    for (const int64_t place : stream.document_begins(0, size)) begins[static_cast<size_t>(place)] = true;
    for (size_t i = 1; i < tokens.size(); i++) found.begins += begins[i] || tokens[i - 1] == end_of_text;
    found.tokens += size;
  }
  return found;
}

namespace {
ValidationSet open_set(const ValidationSource& named, const Config& config, const Tokenizer* tokenizer, int rank,
                       int ranks, const CheckedTokens& checked) {
  ValidationSet set{named.name, open_data("data.validation", named.source, config, false, rank, ranks, checked)};
  set.sequences = std::min(set.loader.num_samples(), config.train.evaluate_batches * config.batch.global_batch_size);
  CHECK(set.targets() > 0,
        "data.validation = {}: none of the tokens of its first {} counts in the loss; evaluate more of it with "
        "train.evaluate_batches",
        named.source, counted(set.sequences, "sequence"));
  if (tokenizer) set.bytes = target_bytes(set.loader, set.sequences, *tokenizer);
  return set;
}
}  // namespace

std::vector<ValidationSet> open_validation(const Config& config, const Tokenizer* tokenizer, int rank, int ranks,
                                           const CheckedTokens& checked) {
  std::vector<ValidationSet> sets;
  for (const ValidationSource& named : parse_validation(config.data.validation))
    sets.push_back(open_set(named, config, tokenizer, rank, ranks, checked));
  return sets;
}

int64_t target_bytes(const Loader& loader, int64_t sequences, const Tokenizer& tokenizer) {
  const auto fill = [&loader](int64_t i, auto in, auto out) { loader.fill(i, 1, in, out); };
  return bytes_by(fill, loader.sequence_length(), sequences, tokenizer);
}

int64_t target_bytes(const Windows& windows, int64_t count, const Tokenizer& tokenizer) {
  const auto fill = [&windows](int64_t i, auto in, auto out) { windows.fill(i, in, out); };
  return bytes_by(fill, windows.length(), count, tokenizer);
}

}  // namespace megalith
