#include "data/tokenizers/pipeline_tokenizer.h"

#include <algorithm>
#include <filesystem>

#include "data/tokenizers/token_places.h"
#include "data/tokenizers/tokenizer_config.h"
#include "data/tokenizers/tokenizer_json.h"
#include "data/tokenizers/tokenizer_parts.h"
#include "data/tokenizers/tokenizer_pipeline.h"
#include "kernels/system/check.h"
#include "kernels/system/files.h"
#include "kernels/system/json.h"

namespace megalith {

namespace {

using Json = nlohmann::json;

class PipelineEncoder final : public Encoder {
 public:
  PipelineEncoder(const TokenizerPipeline& pipeline, bool with_specials)
      : pipeline_(pipeline), with_specials_(with_specials), model_scratch_(pipeline.model) {}

  void encode(std::string_view text, std::vector<int32_t>& out) override { encode(text, Begin::text, out, nullptr); }
  void encode_rest(std::string_view text, std::vector<int32_t>& out) override {
    encode(text, Begin::cut, out, nullptr);
  }
  void encode_places(std::string_view text, std::vector<int32_t>& out, std::vector<TextRange>& places) override {
    encode(text, Begin::text, out, &places);
  }
  void encode_places_inside(std::string_view text, std::vector<int32_t>& out, std::vector<TextRange>& places) override {
    encode(text, Begin::piece, out, &places);
  }

 private:
  struct Encoded final : TextCutter::Pieces {
    void take(std::string_view piece) override { model.encode(piece, scratch, out); }
    Encoded(const BpeModel& model_of, BpeModel::Scratch& memory, std::vector<int32_t>& ids)
        : model(model_of), scratch(memory), out(ids) {}
    const BpeModel& model;
    BpeModel::Scratch& scratch;
    std::vector<int32_t>& out;
  };

  using Places = std::vector<TextRange>;  // null: not wanted

  // What precedes the text here: nothing, an added token, or a cut.
  enum class Begin { text, piece, cut };

  void encode(std::string_view text, Begin begins, std::vector<int32_t>& out, Places* places) {
    const auto piece = [&](size_t begin, size_t end) {
      const size_t first = places ? places->size() : 0;
      encode_piece(text.substr(begin, end - begin), begin == 0 && begins != Begin::piece,
                   begins == Begin::cut && begin == 0, out, places);
      for (size_t i = first; places && i < places->size(); i++)
        (*places)[i] = {begin + (*places)[i].begin, begin + (*places)[i].end};
    };
    for_each_part(pipeline_.raw, text, piece, out, places);
  }

  void encode_piece(std::string_view original, bool is_first, bool continues, std::vector<int32_t>& out,
                    Places* places) {
    changes_.clear();
    const std::string_view text =
        pipeline_.normalizer.apply(original, continues, normalizing_, places ? &changes_ : nullptr);
    Encoded pieces(pipeline_.model, model_scratch_, out);
    const size_t first = places ? places->size() : 0;
    const auto piece = [&](size_t begin, size_t end) {
      const bool begins = is_first && begin == 0;
      const size_t first_id = out.size();
      const std::string_view part = text.substr(begin, end - begin);
      pipeline_.cutter.cut(part, {.begins = begins && !continues, .continues = begins && continues}, pieces, cutting_);
      if (places) TokenWalk(pipeline_.bytes, part, begin).places_of(std::span(out).subspan(first_id), *places);
    };
    for_each_part(pipeline_.normalized, text, piece, out, places);
    if (places && text != original)
      places_before(pipeline_.normalizer, changes_, original, text, std::span(*places).subspan(first));
  }

  // Appends the ids of added tokens, and calls `piece` with the text between them.
  template <class Piece>
  void for_each_part(const AddedTokenFinder& finder, std::string_view text, Piece piece, std::vector<int32_t>& out,
                     Places* places) {
    size_t done = 0;
    for (size_t from = 0; from < text.size();) {
      const AddedTokenFinder::Match match = finder.next_in(text, from, done, with_specials_);
      if (match.begin > done) piece(done, match.begin);
      if (match.id >= 0 && match.begin < match.end) {
        out.push_back(match.id);
        if (places) places->push_back({match.begin, match.end});
      }
      done = match.end;
      from = match.next;
    }
    if (done < text.size()) piece(done, text.size());
  }

  const TokenizerPipeline& pipeline_;
  const bool with_specials_;
  TextNormalizer::Scratch normalizing_;
  TextCutter::Scratch cutting_;
  BpeModel::Scratch model_scratch_;
  std::vector<TextNormalizer::Change> changes_;
};

class PipelineTokenizer final : public Tokenizer {
 public:
  PipelineTokenizer(std::shared_ptr<const TokenizerPipeline> pipeline, std::map<std::string, std::string> files,
                    SpecialTokens special, bool with_specials)
      : pipeline_(std::move(pipeline)),
        files_(std::move(files)),
        special_(std::move(special)),
        finds_specials_(with_specials) {
    if (!with_specials)
      with_specials_ =
          std::make_unique<PipelineTokenizer>(pipeline_, std::map<std::string, std::string>(), SpecialTokens(), true);
  }

  int32_t vocab_size() const override { return pipeline_->size(); }
  int32_t end_of_text() const override { return pipeline_->end_of_text; }
  std::unique_ptr<Encoder> encoder() const override {
    return std::make_unique<PipelineEncoder>(*pipeline_, finds_specials_);
  }
  const Tokenizer* with_specials() const override { return with_specials_.get(); }
  std::string_view token_bytes(int32_t id) const override { return pipeline_->bytes[checked(id)]; }
  std::string token_name(int32_t id) const override {
    const bool stands_for_none = token_bytes(id).empty() || is_special(id);
    return stands_for_none ? pipeline_->names[checked(id)] : std::string(token_bytes(id));
  }
  size_t last_cut(std::string_view text) const override { return pipeline_->last_cut(text, finds_specials_); }
  std::vector<int32_t> beginning() const override { return pipeline_->frame.beginning; }
  std::vector<int32_t> ending() const override { return pipeline_->frame.ending; }

  std::string decode(std::span<const int32_t> ids, bool with_specials) const override {
    if (pipeline_->is_gpt2()) return Tokenizer::decode(ids, with_specials);  // keeps invalid UTF-8
    std::vector<std::string> names;
    for (const int32_t id : ids)
      if (with_specials || !pipeline_->is_left_out[checked(id)]) names.push_back(pipeline_->written[checked(id)]);
    return pipeline_->decoder.text_of(std::move(names));
  }

  void save(const std::string& folder) const override {
    for (const auto& [name, text] : files_) write_file((std::filesystem::path(folder) / name).string(), text);
  }
  void save_for_transformers(const std::string& folder, int64_t context, const std::string& jinja) const override {
    std::map<std::string, std::string> files = with_chat_template(files_, jinja);
    if (pipeline_->is_gpt2()) add_for_transformers(files, special_, pipeline_->end_name, context);
    for (const auto& [name, text] : files) write_file((std::filesystem::path(folder) / name).string(), text);
  }
  const TokenUse& use() const override { return special_.use; }

  std::string content() const override {
    if (pipeline_->is_gpt2()) return content_of_gpt2();
    Json file = parse_json(files_.at(tokenizer_json_file));
    for (const char* key : {"version", "truncation", "padding", "decoder"}) file.erase(key);
    for (Json& merge : file["model"]["merges"])
      if (merge.is_array()) merge = merge[0].get<std::string>() + " " + merge[1].get<std::string>();
    return fmt::format("{}\ntexts end with {}\n", json_text(file), pipeline_->end_name);
  }

  std::vector<SpecialToken> special_tokens() const override {
    std::vector<SpecialToken> all{{pipeline_->end_name, pipeline_->end_of_text}};
    for (int32_t id = 0; id < vocab_size(); id++)
      if (is_special(id) && id != pipeline_->end_of_text) all.push_back({pipeline_->names[checked(id)], id});
    return all;
  }

 private:
  // Returns the same content for the same tokens and merges, from vocab.json and merges.txt or from any spelling of
  // tokenizer.json.
  std::string content_of_gpt2() const {
    const TokenizerPipeline& all = *pipeline_;
    std::vector<SpecialToken> specials = special_tokens();
    specials.erase(specials.begin());  // end_of_text
    std::string content = fmt::format("BPE of {} tokens, {} ends a text\n", all.size(), all.end_of_text);
    bool are_bytes = all.size() == 257 && all.end_of_text == 256 && all.end_name == end_of_text_name;
    for (int32_t id = 0; id < all.size(); id++) {
      const std::string& token = is_special(id) ? all.names[checked(id)] : all.bytes[checked(id)];
      are_bytes = are_bytes && (id == 256 || token == std::string(1, static_cast<char>(id)));
      content += id == all.end_of_text ? "0 \n" : fmt::format("{} {}\n", token.size(), token);
    }
    if (are_bytes) return make_byte_tokenizer()->content();
    for (const BpeVocabulary::Merge& merge : all.model.merges())
      content += fmt::format("{} {} {}\n", merge.left, merge.right, merge.result);
    if (all.end_name != end_of_text_name) content += fmt::format("texts end with {}\n", all.end_name);
    for (const SpecialToken& special : specials) content += fmt::format("{} is special\n", special.id);
    return content;
  }

  bool is_special(int32_t id) const { return pipeline_->is_special[checked(id)]; }

  size_t checked(int32_t id) const {
    CHECK(id >= 0 && id < vocab_size(), "token {} of a vocabulary of {}", id, vocab_size());
    return static_cast<size_t>(id);
  }

  std::shared_ptr<const TokenizerPipeline> pipeline_;
  std::map<std::string, std::string> files_;  // by name
  SpecialTokens special_;
  std::unique_ptr<Tokenizer> with_specials_;
  const bool finds_specials_;
};

}  // namespace

std::unique_ptr<Tokenizer> make_pipeline_tokenizer(const Json& file, const std::string& path,
                                                   std::map<std::string, std::string> files,
                                                   const SpecialTokens& special) {
  CHECK(json_member(file, "model").is_object(), "{} has no model", path);
  return std::make_unique<PipelineTokenizer>(std::make_shared<TokenizerPipeline>(file, path, special.end),
                                             std::move(files), special, false);
}

}  // namespace megalith
