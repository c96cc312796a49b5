// How a model is used: what training taught is passed on by an export, and what a folder says is obeyed; and what used
// to end in circles, in silence or not at all.
#include <fmt/format.h>

#include <filesystem>

#include "tests/end_to_end/helpers.h"
#include "tests/end_to_end/process.h"

namespace megalith::e2e {
namespace {

using Json = nlohmann::json;

Json json_in(const std::string& path) { return Json::parse(read_file(path)); }

std::string answers_of(int count) {
  std::string lines;
  for (int i = 0; i < count; i++)
    lines +=
        Json{{"messages",
              {{{"role", "user"}, {"content", fmt::format("q{}", i)}}, {{"role", "assistant"}, {"content", "yes"}}}}}
            .dump() +
        "\n";
  return lines;
}

// A Llama of 264 tokens with the tokenizer of bytes and two special tokens, with a chat template and rules of
// generation.
class UseOfModels : public testing::Test {
 protected:
  UseOfModels() {
    write_file(s_ / "text.txt", read_file(MEGALITH_SOURCE_DIR "/configs/README.md").substr(0, 6000));
    write_file(
        s_ / "llama.toml",
        "[model]\nlayers = 1\nhidden = 16\nheads = 2\nvocab = 264\ncontext = 64\nnorm = \"rms\"\nbias = false\n"
        "qkv_bias = false\nactivation = \"swiglu\"\npositions = \"rotary\"\nfeed_forward = 24\n[train]\nsteps = 2\n");
    succeed(megalith({"prepare", "--text", "text.txt", "--tokenizer", "bytes", "--out", "data", "--validation", "0"}),
            s_);
    succeed(megalith({"train", "llama.toml", "data.train=data", "run.output=first"}), s_);
    succeed(megalith({"checkpoint", "export", "first", "--out", "base", "--type", "fp32"}), s_);
    Json tokenizer = json_in(s_ / "base/tokenizer.json");
    for (const auto& [id, text] : {std::pair(257, "<|im_start|>"), {258, "<|im_end|>"}, {259, "<|begin|>"}})
      tokenizer["added_tokens"].push_back({{"id", id},
                                           {"content", text},
                                           {"special", true},
                                           {"single_word", false},
                                           {"lstrip", false},
                                           {"rstrip", false},
                                           {"normalized", false}});
    write_file(s_ / "base/tokenizer.json", tokenizer.dump());
    write_file(s_ / "base/tokenizer_config.json", Json{{"tokenizer_class", "PreTrainedTokenizerFast"},
                                                       {"eos_token", "<|endoftext|>"},
                                                       {"bos_token", "<|begin|>"},
                                                       {"chat_template", jinja_}}
                                                      .dump());
    for (const char* name : {"vocab.json", "merges.txt", "special_tokens_map.json"})
      std::filesystem::remove(s_ / "base/" + name);
    write_file(s_ / "base/generation_config.json",
               R"({"eos_token_id": [256, 97], "temperature": 0.5, "do_sample": true, "num_beams": 3, "top_p": 0.9})");
    write_file(s_ / "chat.jsonl", answers_of(40));
  }

  Result train_from(const std::string& base, const std::string& data, const std::string& out, const Args& more = {}) {
    Args command{"train", "checkpoint.init_from=" + base, "data.train=" + data, "train.steps=2", "run.output=" + out};
    command.insert(command.end(), more.begin(), more.end());
    return succeed(megalith(command), s_);
  }
  // "hello" is typed.
  Result typed(const Args& command) {
    write_file(s_ / "hello.txt", "hello\n");
    return run(megalith(command), s_.folder(), 120, "exec <hello.txt");
  }
  void prepare_chat(const std::string& chat, const std::string& out) {
    succeed(megalith({"prepare", "--text", "chat.jsonl", "--template", chat, "--tokenizer", "base", "--validation", "0",
                      "--out", out}),
            s_);
  }

  const Scratch s_;
  const std::string jinja_ =
      "{% if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nHelp.<|im_end|>\n' }}{% endif %}{% for m in "
      "messages %}"
      "{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt "
      "%}{{ '<|im_start|>assistant\n' }}{% endif %}";
};

TEST_F(UseOfModels, AnExportPassesOnWhatTrainingTaughtAndWhatTheBaseSays) {
  prepare_chat("base", "own");
  const std::string own = read_file(s_ / "own/chat_template.json");
  EXPECT_NE(own.find("\"default\": \"Help.\""), std::string::npos) << own;
  train_from("base", "own", "tuned");
  train_from("base", "own", "adapted", {"adapter.rank=2"});
  succeed(megalith({"checkpoint", "export", "tuned", "--out", "whole"}), s_);
  succeed(megalith({"checkpoint", "export", "adapted", "--out", "peft"}), s_);
  succeed(megalith({"checkpoint", "export", "adapted", "--out", "merged", "--merged"}), s_);
  for (const char* folder : {"whole", "peft", "merged"}) {
    SCOPED_TRACE(folder);
    const Json generation = json_in(s_ / folder + "/generation_config.json");
    EXPECT_EQ(generation.at("eos_token_id"), (Json{258, 256, 97})) << "the template's end, and the base's list";
    EXPECT_EQ(generation.at("bos_token_id"), 259);
    EXPECT_EQ(generation.at("num_beams"), 3) << "what is not ours to say stays";
    const std::string jinja = read_file(s_ / folder + "/chat_template.jinja");
    EXPECT_NE(jinja.find("Help."), std::string::npos) << jinja;
    const Json config = json_in(s_ / folder + "/tokenizer_config.json");
    EXPECT_FALSE(config.contains("chat_template"));
    EXPECT_EQ(config.at("bos_token"), "<|begin|>");
  }
  EXPECT_EQ(json_in(s_ / "whole/config.json").at("eos_token_id"), (Json{258, 256, 97}));
  // A model that was not trained with a template keeps the base's.
  succeed(megalith({"prepare", "--text", "text.txt", "--tokenizer", "base", "--out", "plain", "--validation", "0"}),
          s_);
  train_from("base", "plain", "read");
  succeed(megalith({"checkpoint", "export", "read", "--out", "kept"}), s_);
  EXPECT_EQ(json_in(s_ / "kept/generation_config.json").at("eos_token_id"), (Json{256, 97}));
  EXPECT_EQ(read_file(s_ / "kept/chat_template.jinja"), jinja_);
}

TEST_F(UseOfModels, AFolderIsObeyed) {
  const auto generate = [&](const Args& more) {
    Args command{"generate", "--checkpoint", "base", "--prompt", "ab", "--tokens", "30"};
    command.insert(command.end(), more.begin(), more.end());
    return succeed(megalith(command), s_);
  };
  const Result said = generate({});
  EXPECT_EQ(count(said.err, "from generation_config.json: --temperature 0.5, --top-p 0.9"), 1u) << said.err;
  EXPECT_EQ(count(said.err, "num_beams = 3"), 1u) << said.err;
  EXPECT_EQ(generate({"--temperature", "0.5", "--top-p", "0.9"}).out, said.out);
  EXPECT_EQ(generate({"--temperature", "0.7", "--top-p", "1"}).err.find("from generation_config.json: "),
            std::string::npos);
  // Every token is an end: the text ends at once, unless --min-new-tokens asks for more.
  Json all = json_in(s_ / "base/generation_config.json");
  for (int i = 0; i < 256; i++) all["eos_token_id"][static_cast<size_t>(i)] = i;
  write_file(s_ / "base/generation_config.json", all.dump());
  EXPECT_EQ(generate({}).out, "ab\n");
  EXPECT_GT(generate({"--min-new-tokens", "5", "--show-special-tokens"}).out.size(), 7u);
  // A template of a form that is not known is not a reason to take another.
  Json tokenizer_config = json_in(s_ / "base/tokenizer_config.json");
  tokenizer_config["chat_template"] = "{% for m in messages %}{{ m.content[:3] }}<|im_end|>{% endfor %}";
  write_file(s_ / "base/tokenizer_config.json", tokenizer_config.dump());
  const Result refused = typed({"chat", "base"});
  EXPECT_EQ(refused.status, 1);
  EXPECT_NE(refused.err.find("the form of the chat template of base is not supported"), std::string::npos)
      << refused.err;
  EXPECT_EQ(typed({"chat", "base", "--template", "chatml", "--tokens", "3"}).status, 0);
  tokenizer_config.erase("chat_template");
  write_file(s_ / "base/tokenizer_config.json", tokenizer_config.dump());
  EXPECT_NE(typed({"chat", "base", "--tokens", "3"}).err.find("has no chat template; using chatml"), std::string::npos);
  const Result warned = succeed(megalith({"prepare", "--text", "chat.jsonl", "--template", "plain", "--tokenizer",
                                          "base", "--validation", "0", "--out", "x"}),
                                s_);
  EXPECT_EQ(warned.out.find("has its own chat template"), std::string::npos);
}

TEST_F(UseOfModels, SpecialTokensAreLeftOutAndHalfACharacterIsMarked) {
  // 3 of 264 tokens are special and nearly as likely as any other.
  const auto text = [&](const Args& more) {
    Args command{"generate", "--checkpoint", "base", "--prompt",      "ab", "--tokens", "600", "--min-new-tokens",
                 "600",      "--top-k",      "0",    "--temperature", "5",  "--top-p",  "1"};
    command.insert(command.end(), more.begin(), more.end());
    return succeed(megalith(command), s_).out;
  };
  const std::string shown = text({"--show-special-tokens"}), hidden = text({});
  EXPECT_NE(shown.find("<|"), std::string::npos) << "a temperature of 5 draws special tokens: " << shown;
  EXPECT_EQ(hidden.find("<|"), std::string::npos);
  EXPECT_NE(hidden.find("\ufffd"), std::string::npos) << "and bytes that are no characters: " << hidden;
  EXPECT_NO_THROW(Json(hidden).dump()) << "all of it is UTF-8";
}

TEST_F(UseOfModels, EachRefusalsRemedyPassesTheNextCheck) {
  // A token more than the table has rows: the remedy adds one.
  Json tokenizer = json_in(s_ / "base/tokenizer.json");
  for (int id = 260; id < 266; id++)
    tokenizer["added_tokens"].push_back({{"id", id}, {"content", fmt::format("<|{}|>", id)}, {"special", true}});
  write_file(s_ / "base/tokenizer.json", tokenizer.dump());
  prepare_chat("chatml", "grown");
  const Args command{"train", "checkpoint.init_from=base", "data.train=grown", "train.steps=1", "run.output=g"};
  const auto with = [&](const Args& more) {
    Args all = command;
    all.insert(all.end(), more.begin(), more.end());
    return run(megalith(all), s_.folder());
  };
  const std::string first = with({}).err;
  EXPECT_NE(first.find("has 266 ids, but model.vocab = 264; set model.vocab=266, which adds rows"), std::string::npos)
      << first;
  const Result grown = with({"model.vocab=266"});
  EXPECT_EQ(grown.status, 0) << grown.err;
  EXPECT_NE(grown.text().find("2 rows are added to the embedding of base"), std::string::npos) << grown.text();
  succeed(megalith({"checkpoint", "export", "g", "--out", "exported", "--type", "fp32"}), s_);
  EXPECT_EQ(json_in(s_ / "exported/config.json").at("vocab_size"), 266);
  // Longer contexts of rotary positions.
  const std::string longer = with({"model.vocab=266", "batch.sequence_length=100"}).err;
  EXPECT_NE(longer.find("is beyond model.context = 64; shorten the one or raise the other"), std::string::npos)
      << longer;
  EXPECT_EQ(with({"model.vocab=266", "batch.sequence_length=100", "model.context=100", "run.output=longer"}).status, 0);
  // And what cannot grow is refused with what can.
  EXPECT_NE(with({"model.vocab=266", "model.hidden=32", "run.output=wide"}).err.find("Only model.vocab may be larger"),
            std::string::npos);
  EXPECT_NE(with({"model.vocab=266", "adapter.rank=2", "run.output=adapted"}).err.find("which adapters do not change"),
            std::string::npos);
}

// The added rows are the same in every layout.
TEST_F(UseOfModels, AddedRowsAreTheSameInEveryLayout) {
  succeed(megalith({"prepare", "--text", "text.txt", "--tokenizer", "base", "--out", "plain", "--validation", "0"}),
          s_);
  std::vector<std::string> weights;
  for (const auto& [ranks, layout] :
       {std::pair<int, Args>{1, {}}, {2, {"parallel.tensor_parallel_degree=2"}}, {2, {}}}) {
    const std::string out = fmt::format("layout-{}", weights.size());
    Args command{"train",         "checkpoint.init_from=base",      "data.train=plain", "model.vocab=271",
                 "train.steps=1", "optimizer.learning_rate=1e-300", "run.output=" + out};
    command.insert(command.end(), layout.begin(), layout.end());
    succeed(mpirun(ranks, command), s_);
    succeed(megalith({"checkpoint", "export", out, "--out", out + "-hf", "--type", "fp32"}), s_);
    const Weight table = read_weights(s_ / (out + "-hf/model.safetensors")).at("model.embed_tokens.weight");
    EXPECT_EQ(table.shape, (std::vector<int64_t>{271, 16}));
    weights.emplace_back(reinterpret_cast<const char*>(table.values.data()), table.values.size() * sizeof(float));
  }
  EXPECT_EQ(weights[0], weights[1]);
  EXPECT_EQ(weights[0], weights[2]);
}

TEST_F(UseOfModels, NothingHangsAndNothingIsLostWithoutAWord) {
  for (const Args& command : {Args{"generate", "--checkpoint", "base", "--interactive"},
                              {"chat", "base", "--template", "plain"},
                              {"prepare", "--text", "-", "--tokenizer", "bytes", "--out", "closed"}}) {
    std::string line = "timeout 20 " MEGALITH_PROGRAM;
    for (const std::string& word : command) line += " '" + word + "'";
    const int status = std::system(("cd '" + s_.folder() + "' && " + line + " <&- >/dev/null 2>&1").c_str());
    EXPECT_NE(WEXITSTATUS(status), 124) << line << " waits for ever";
    EXPECT_FALSE(std::filesystem::exists(s_ / "closed/train.bin"));
  }
  for (const std::string command :
       {"chat base --template plain --tokens 4", "generate --checkpoint base --prompt ab --tokens 4"}) {
    const int status = std::system(
        ("cd '" + s_.folder() + "' && echo hi | " MEGALITH_PROGRAM " " + command + " >/dev/full 2>full").c_str());
    EXPECT_EQ(WEXITSTATUS(status), 1) << command;
    EXPECT_NE(read_file(s_ / "full").find("cannot write all of the output: No space left"), std::string::npos);
  }
  expect_refused(megalith({"run", "-n", "1000000000", "train", "x"}), s_, {"more than 4096 ranks on one machine"});
  const std::string said =
      succeed(megalith({"generate", "--checkpoint", "base", "--prompt", std::string(100, 'a'), "--tokens", "2"}), s_)
          .err;
  EXPECT_NE(said.find("the prompt has 100 tokens, but the model's context is 64: its first 36 are not read"),
            std::string::npos)
      << said;
  // Names that would change what a terminal shows.
  const std::string raw = run(megalith({"train", "\033[2Jx.toml"}), s_.folder()).err;
  EXPECT_EQ(raw.find('\033'), std::string::npos);
  EXPECT_NE(raw.find("\\x1b[2Jx.toml"), std::string::npos) << raw;
}

// A run prunes beside a reader: the reader reads the newest, or says that what it read was removed.
TEST_F(UseOfModels, AReaderBesideARunNeverSpeaksOfDamage) {
  Process train(
      megalith({"train", "llama.toml", "data.train=data", "run.output=beside", "train.steps=100000",
                "checkpoint.every=1", "checkpoint.keep=1", "checkpoint.settle=0", "checkpoint.asynchronous=false"}),
      s_.folder());
  wait_for_words(train, "step 3  checkpoint");
  int read = 0;
  for (int i = 0; i < 6; i++)
    for (const Args& command : {Args{"evaluate", "--checkpoint", "beside", "--text", "text.txt"},
                                {"checkpoint", "verify", "beside"},
                                {"checkpoint", "export", "beside", "--out", fmt::format("out-{}", i)},
                                {"checkpoint", "inspect", "beside"}}) {
      const Result result = run(megalith(command), s_.folder());
      read += result.status == 0;
      if (result.status != 0) {
        EXPECT_NE(result.text().find("was removed while it was read"), std::string::npos) << result.text();
      }
    }
  EXPECT_GT(read, 0);
  train.kill_all();
}

}  // namespace
}  // namespace megalith::e2e
