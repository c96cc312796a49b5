// Exports of conversational models, of each family, whole, as adapters and merged, are opened by `transformers` and
// PEFT: they have our ids, write conversations as we do, and stop where an answer ends.
#include <fmt/format.h>

#include <cstring>
#include <filesystem>

#include "tests/end_to_end/helpers.h"
#include "tests/python.h"

namespace megalith::e2e {
namespace {

using Json = nlohmann::json;

struct ExportedFamily {
  std::string name;  // the model_type of its exports
  Args choices;
};

std::vector<ExportedFamily> families() {
  const Args modern{"model.norm=rms", "model.bias=false", "model.positions=rotary", "model.activation=swiglu",
                    "model.feed_forward=48"};
  const auto with = [](Args all, const Args& more) {
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  return {{"gpt2", {}},
          {"llama", with(modern, {"model.qkv_bias=false", "model.tied_head=false"})},
          {"qwen2", with(modern, {"model.qkv_bias=true"})},
          {"qwen3", with(modern, {"model.qkv_bias=false", "model.query_key_norm=true", "model.head_size=20"})},
          {"gpt_neox",
           {"model.positions=rotary", "model.rotary_share=0.25", "model.activation=gelu_erf", "model.tied_head=false",
            "model.parallel_residual=true"}}};
}

class ExportsOpen : public testing::Test {
 protected:
  // Returns the ids of the first document of a file.
  Json ids_in(const std::string& folder) const {
    const std::string bytes = read_file(s_ / folder + "/train.bin");
    std::vector<uint16_t> ids(bytes.size() / 2);
    std::memcpy(ids.data(), bytes.data(), 2 * ids.size());
    return ids;
  }
  void prepare(const std::string& text, const std::string& tokenizer, const std::string& out, const Args& more) {
    Args command{"prepare", "--text", text, "--tokenizer", tokenizer, "--validation", "0", "--out", out};
    command.insert(command.end(), more.begin(), more.end());
    succeed(megalith(command), s_);
  }
  void train_in(const std::string& data, const std::string& out, Args more) {
    more.insert(more.begin(), {"train", "data.train=" + data, "run.output=" + out, "model.layers=1", "model.hidden=32",
                               "model.heads=2", "model.context=160", "batch.sequence_length=160", "train.steps=1"});
    succeed(megalith(more), s_);
  }
  // Exports a run, and says what is expected of the folder. `chat`: the data of its conversations; empty: it had none.
  void add(const std::string& run, const std::string& folder, const std::string& base, const std::string& chat,
           const Args& more = {}) {
    Args command{"checkpoint", "export", run, "--out", folder};
    command.insert(command.end(), more.begin(), more.end());
    const std::string said = succeed(megalith(command), s_).out;
    const bool several = said.find("is several tokens") != std::string::npos;
    EXPECT_EQ(several, chat.ends_with("chatml") && !is_special_) << said;
    Json ends = Json::array({end_});
    if (is_special_ && !chat.empty()) ends.insert(ends.begin(), 258);  // <|im_end|>
    cases_.push_back({{"folder", s_ / folder},
                      {"base", base.empty() ? Json() : Json(s_ / base)},
                      {"loader", said.find("PreTrainedTokenizerFast.from_pretrained opens it") != std::string::npos
                                     ? "PreTrainedTokenizerFast"
                                     : "AutoTokenizer"},
                      {"text", text_},
                      {"ids", ids_},
                      {"messages", messages_},
                      {"chat", chat.empty() ? Json() : ids_in(chat)},
                      {"ends", ends},
                      {"stop", several ? Json("<|im_end|>") : Json()}});
  }

  const Scratch s_;
  const std::string text_ =
      "It's 12 o'clock, said the old king:\n  nobody sold 3.5 stones\xe2\x80\xa6 \xc3\xa9t\xc3\xa9";
  const Json messages_ = {{{"role", "user"}, {"content", "How many are 2 and 3?"}},
                          {{"role", "assistant"}, {"content", "5 of them."}}};
  Json ids_, cases_ = Json::array();
  bool is_special_ = false;  // the tokenizer has chatml's control words
  int32_t end_ = 0;          // of a text
};

TEST_F(ExportsOpen, WithTheirIdsTheirTemplateAndTheirEnds) {
  const std::string python = python_with("torch, transformers, peft");
  if (python.empty()) GTEST_SKIP() << "MEGALITH_PYTHON does not name a Python with torch, transformers and peft";
  write_file(s_ / "one.txt", text_);
  write_file(s_ / "book.txt", read_file(MEGALITH_SOURCE_DIR "/data/README.md"));
  std::string chats;
  for (int i = 0; i < 20; i++) chats += Json{{"messages", messages_}}.dump() + "\n";
  write_file(s_ / "chats.jsonl", chats);
  write_file(s_ / "chat.jsonl", chats.substr(0, chats.find('\n') + 1));
  for (const std::string kind : {"bytes", "train:300", "special"}) {
    const std::string t = kind.substr(0, 5);
    is_special_ = kind == "special";
    if (is_special_) {
      std::filesystem::copy(s_ / "bytes-gpt2-base", s_ / "special");
      Json file = Json::parse(read_file(s_ / "special/tokenizer.json"));
      for (const auto& [id, text] : {std::pair(257, "<|im_start|>"), {258, "<|im_end|>"}}) {
        Json token = file["added_tokens"][0];
        token.update({{"id", id}, {"content", text}});
        file["added_tokens"].push_back(token);
      }
      write_file(s_ / "special/tokenizer.json", file.dump());
    }
    prepare("book.txt", kind, t + "-book", {});
    const std::string tokenizer = t + "-book/tokenizer";
    prepare("one.txt", tokenizer, t + "-one", {"--separator", "none"});
    ids_ = ids_in(t + "-one");
    end_ = ids_.back();
    ids_.erase(ids_.size() - 1);  // the end of the document
    for (const std::string chat : {"plain", "chatml"}) {
      prepare("chats.jsonl", tokenizer, t + "-many-" + chat, {"--template", chat});
      prepare("chat.jsonl", tokenizer, t + "-" + chat, {"--template", chat});
    }
    for (const auto& [family, choices] : families()) {
      const std::string name = t + "-" + family, chat = t + (family == "llama" || is_special_ ? "-chatml" : "-plain"),
                        many = t + "-many-" + chat.substr(t.size() + 1);
      train_in(t + "-book", name, choices);
      add(name, name + "-base", "", "");
      const Args from{"checkpoint.init_from=" + name + "-base"};
      succeed(megalith({"train", from[0], "data.train=" + many, "run.output=" + name + "-tuned", "train.steps=1",
                        "batch.sequence_length=160"}),
              s_);
      add(name + "-tuned", name + "-whole", "", chat);
      succeed(megalith({"train", from[0], "data.train=" + many, "run.output=" + name + "-adapted", "train.steps=1",
                        "batch.sequence_length=160", "adapter.rank=2"}),
              s_);
      add(name + "-adapted", name + "-peft", name + "-base", chat);
      add(name + "-adapted", name + "-merged", "", chat, {"--merged"});
    }
  }
  write_file(s_ / "cases.json", cases_.dump());
  const Result result =
      run({"env", "HF_HUB_OFFLINE=1", python, MEGALITH_SOURCE_DIR "/tests/end_to_end/exports_open.py", "cases.json"},
          s_.folder(), 300);
  EXPECT_EQ(result.status, 0) << result.text();
}

}  // namespace
}  // namespace megalith::e2e
