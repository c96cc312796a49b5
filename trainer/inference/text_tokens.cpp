#include "trainer/inference/text_tokens.h"

#include <cstring>
#include <utility>

#include "data/corpus/corpus.h"
#include "data/corpus/encode_corpus.h"
#include "trainer/job/agreement.h"

namespace megalith {

namespace {

struct NamedText {
  std::string name;
  EncodedTexts tokens;
};

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

template <class T>
std::vector<T> values_of(const std::string& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

// Errors of these readers suggest options of `megalith prepare`.
std::string about_this_command(std::string message) {
  const std::string prepare = "megalith prepare --text", evaluate = "megalith evaluate --text";
  for (size_t at = 0; (at = message.find(prepare, at)) != std::string::npos; at += evaluate.size())
    message.replace(at, prepare.size(), evaluate);
  return message;
}

std::vector<NamedText> read_texts(const std::vector<std::string>& names, const Tokenizer& tokenizer,
                                  SpecialTexts special_texts) {
  std::vector<NamedText> texts;
  const CorpusOptions options{.texts = names, .validation_fraction = 0};
  try {
    for (const TextInput& input : find_texts(names, false)) {
      const Corpus corpus = reopen_corpus(options, {input}, ValidationSplit::Rule::nothing, {});
      texts.push_back({input.name(), encode_texts(corpus, tokenizer, special_texts)});
    }
  } catch (const Error& e) {
    FAIL("{}", about_this_command(e.what()));
  }
  return texts;
}

}  // namespace

std::vector<TokenStream> tokens_of_texts(const std::vector<std::string>& names, const Tokenizer& tokenizer,
                                         SpecialTexts special_texts, const Session& session) {
  std::vector<NamedText> texts;
  together(session, [&] {
    if (session.rank() == 0) texts = read_texts(names, tokenizer, special_texts);
  });
  const int count = std::stoi(session.broadcast_text(std::to_string(texts.size())));
  texts.resize(static_cast<size_t>(count));
  for (auto& [name, tokens] : texts) {
    name = session.broadcast_text(name);
    if (session.size() == 1) continue;
    tokens.ids = values_of<int32_t>(session.broadcast_text(bytes_of(tokens.ids)));
    tokens.begins = values_of<int64_t>(session.broadcast_text(bytes_of(tokens.begins)));
  }
  std::vector<TokenStream> streams;
  together(session, [&] {
    for (auto& [name, tokens] : texts) {
      CHECK(!tokens.ids.empty(), "{} has no text; leave it out", name);
      streams.push_back(TokenStream::of(name, std::move(tokens.ids), std::move(tokens.begins)));
    }
  });
  return streams;
}

}  // namespace megalith
