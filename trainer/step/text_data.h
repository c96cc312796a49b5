// Token files of a run: opened and checked against the model, and fed to the stage.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "configs/config.h"
#include "data/samples/loader.h"
#include "data/samples/token_stream.h"
#include "data/samples/windows.h"
#include "data/tokenizers/tokenizer.h"
#include "trainer/parallel/stage.h"
#include "trainer/step/checked_tokens.h"

namespace megalith {

// Returns the folder of data.tokenizer. If that is empty or in the form of `prepare` (bytes, train:VOCAB), returns
// tokenizer/ next to data.train, where prepare puts it, whether it exists or not; for several sources, the first that
// exists.
std::string tokenizer_path(const DataConfig& data);

// A readable tokenizer in tokenizer/ next to a source: if prepare made the source, the tokenizer that it used.
struct SourceTokenizer {
  std::string source;  // the first source of the key with this tokenizer
  std::string folder;
  std::unique_ptr<Tokenizer> tokenizer;
};
std::vector<SourceTokenizer> tokenizers_of_sources(const std::string& key, const std::string& sources);

// Sets config.data.masked: whether tokens of data.train or data.validation have a mask, as those that prepare makes of
// conversations. The loss then counts only tokens that the mask marks, and documents are isolated.
void find_masks(Config& config);

// Returns the tokenizer in tokenizer_path, or null if data.tokenizer is empty and that folder does not exist. Finds
// masks. Sets config.data.tokenizer to the folder, config.model.vocab if it is 0, and config.data.end_of_text if
// documents are isolated and it is -1. Checks that the tokenizer's ids fit into model.vocab, that it fits
// data.tokenizer if that is in the form of prepare, and that no source of data.train or data.validation has a different
// tokenizer.
std::unique_ptr<Tokenizer> open_tokenizer(Config& config);

// Opens the sources that a key names (data/samples/sources.h) as samples of batch.sequence_length. Checks that token
// ids are below the vocabulary; for a file without .idx or header, that uint16 can hold the vocabulary; and, if
// documents are isolated, that their end is known. Rank `rank` of `ranks` scans its share of each file, except files
// that are `checked` or whose largest id prepare has noted (data/samples/largest_ids.h). In any case every batch is
// checked when it is read.
Loader open_data(const std::string& key, const std::string& sources, const Config& config, bool shuffle, int rank,
                 int ranks, const CheckedTokens& checked = {});

// Opens the same sources for an evaluation: each completely and once, whatever the weights.
Windows open_windows(const std::string& key, const std::string& sources, const Config& config, int rank, int ranks);

// Returns a line for each source: its format, files, documents and tokens, how many epochs the run's first `samples`
// samples are, what a pattern leaves out, and how many tokens an epoch leaves out.
std::vector<std::string> describe_data(const std::string& key, const Loader& data, int64_t samples);

// Feeds sequences of `loader`, counted from `first`; `vocab` is checked again for every batch.
Feed feed_from(const Loader& loader, int64_t first, int64_t vocab);
Feed feed_from(const Windows& windows, int64_t vocab);

// A set of data.validation: always the same first sequences of its source, whatever the layout.
struct ValidationSet {
  std::string name;  // empty for an only set
  Loader loader;
  int64_t sequences = 0;  // train.evaluate_batches global batches, or all of them
  int64_t bytes = 0;      // of text of their targets; 0 without a tokenizer
  // Returns the number of targets that count.
  int64_t targets() const { return loader.counted(0, sequences); }
};

// Counts the documents that begin within the first 4 Mi tokens of each stream, by the format or by the token that ends
// a document, and these tokens.
struct DocumentCount {
  int64_t begins = 0, tokens = 0;
};
DocumentCount count_documents(const std::vector<TokenStream>& streams, int64_t end_of_text);

// Describes how much of a set is evaluated, and how much is not.
std::string describe_validation(const ValidationSet& set);

// Opens the sets of data.validation, in their order.
std::vector<ValidationSet> open_validation(const Config& config, const Tokenizer* tokenizer, int rank, int ranks,
                                           const CheckedTokens& checked = {});

// Returns the bytes of text of the targets of samples [0, sequences), or of this many windows.
int64_t target_bytes(const Loader& loader, int64_t sequences, const Tokenizer& tokenizer);
int64_t target_bytes(const Windows& windows, int64_t count, const Tokenizer& tokenizer);

}  // namespace megalith
