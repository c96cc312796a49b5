// Token files as a run uses them: opened and checked against the model, and fed to the stage.
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

// The folder of data.tokenizer or, when that is empty or in the words of `prepare` (bytes, train:VOCAB), tokenizer/
// beside data.train, where prepare puts it; whether it exists or not. Of several sources, beside the first that has
// one.
std::string tokenizer_path(const DataConfig& data);

// The tokenizers in tokenizer/ beside the sources of a key, those that can be read: of what prepare makes, those that
// made it.
struct TokenizerBeside {
  std::string source;  // the first of the key that it stands beside
  std::string folder;
  std::unique_ptr<Tokenizer> tokenizer;
};
std::vector<TokenizerBeside> tokenizers_beside(const std::string& key, const std::string& sources);

// Sets config.data.masked: whether tokens of data.train or data.validation have a mask beside them, as those that
// prepare makes of conversations. Then the loss counts what the mask says, and documents are kept apart.
void find_masks(Config& config);

// The tokenizer in tokenizer_path; nothing when data.tokenizer is empty and there is no such folder. Finds masks, and
// sets config.data.tokenizer to what was found, config.model.vocab when it is 0, and config.data.end_of_text where
// documents are kept apart and it is -1; checks that the tokenizer's ids fit into it, that it is the one of the words
// of prepare, where data.tokenizer is these, and that no source of data.train or data.validation has another beside it.
std::unique_ptr<Tokenizer> open_tokenizer(Config& config);

// Opens the sources that a key names (data/samples/sources.h) as samples of batch.sequence_length, and checks that no
// token id is beyond the vocabulary and, of a file without .idx or header, that uint16 can hold the vocabulary; and
// that the end of a document is known where documents are kept apart. Rank `rank` of `ranks` scans its share of each,
// but of files that are `checked`, or of which prepare has noted the largest id (data/samples/largest_ids.h): there, as
// everywhere, each batch is looked at as it comes.
Loader open_data(const std::string& key, const std::string& sources, const Config& config, bool shuffle, int rank,
                 int ranks, const CheckedTokens& checked = {});

// The same sources for an evaluation: all of each once, whatever their weights.
Windows open_windows(const std::string& key, const std::string& sources, const Config& config, int rank, int ranks);

// A line for each source: its format, files, documents and tokens, how many epochs the first `samples` samples of the
// run are, what a pattern leaves out, and how many tokens an epoch does.
std::vector<std::string> describe_data(const std::string& key, const Loader& data, int64_t samples);

// Feeds sequences of `loader`, counted from `first`; `vocab` is checked again for every batch.
Feed feed_from(const Loader& loader, int64_t first, int64_t vocab);
Feed feed_from(const Windows& windows, int64_t vocab);

// The held-out text: always the same first sequences of data.validation, whatever the layout.
struct HeldOut {
  Loader loader;
  int64_t sequences = 0;  // train.evaluate_batches global batches, or all there are
  int64_t bytes = 0;      // of text under their targets; 0 without a tokenizer
  // Returns the number of targets that count.
  int64_t targets() const { return loader.counted(0, sequences); }
};

// Counts the documents that begin within the first 4 Mi tokens of each stream, as the format says or behind a token
// that ends one, and these tokens.
struct DocumentCount {
  int64_t begins = 0, tokens = 0;
};
DocumentCount count_documents(const std::vector<TokenStream>& streams, int64_t end_of_text);

// Says how much of data.validation is evaluated, and how much is not.
std::string describe_held_out(const HeldOut& held);

// Nothing when data.validation is empty.
std::optional<HeldOut> open_held_out(const Config& config, const Tokenizer* tokenizer, int rank, int ranks,
                                     const CheckedTokens& checked = {});

// Bytes of text that the targets of samples [0, sequences), or of so many windows, stand for.
int64_t target_bytes(const Loader& loader, int64_t sequences, const Tokenizer& tokenizer);
int64_t target_bytes(const Windows& windows, int64_t count, const Tokenizer& tokenizer);

}  // namespace megalith
