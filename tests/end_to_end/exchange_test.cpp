// A model that was exported is one that `transformers` continues texts with, as we do.
#include <fmt/format.h>

#include <filesystem>

#include "tests/end_to_end/helpers.h"

namespace megalith::e2e {
namespace {

namespace fs = std::filesystem;

const std::vector<std::string> prompts{"the old", "nobody sold", "a carter"};

// Trained so little that a sum in another order could not change the likeliest token, and enough to repeat words.
void train_and_export(const Scratch& scratch, const std::string& tokenizer, const Args& overrides = {}) {
  std::string text;
  for (int i = 0; i < 400; i++)
    for (const char* sentence : {"the old king sold a stone.\n", "nobody sold the gate, and ", "a carter saw it.\n"})
      text += sentence;
  write_file(scratch / "text.txt", text);
  write_file(scratch / "config.toml",
             "[model]\nlayers = 1\nhidden = 32\nheads = 2\ncontext = 64\n[data]\ntrain = \"data/train.bin\"\n"
             "[batch]\nglobal_batch_size = 4\n[optimizer]\nlearning_rate = 1e-2\nwarmup_steps = 5\n"
             "[train]\nsteps = 60\n[run]\noutput = \"run\"\n");
  succeed(megalith({"prepare", "--text", "text.txt", "--tokenizer", tokenizer, "--out", "data"}), scratch);
  train(scratch.folder(), 1, overrides);
  succeed(megalith({"checkpoint", "export", "run", "--out", "export"}), scratch);
}

std::string continued(const Scratch& scratch, const std::string& checkpoint, const std::string& prompt) {
  return succeed(megalith({"generate", "--checkpoint", checkpoint, "--prompt", prompt, "--tokens", "30",
                           "--temperature", "0"}),
                 scratch)
      .out;
}

// Which program made it, and of which commit, is said in the run's log and in its checkpoints.
void expect_signed(const Scratch& scratch) {
  const std::string said = succeed(megalith({"--version"}), scratch).out, version = said.substr(0, said.find('\n') + 1);
  const std::string log = read_file(scratch / "run/log.txt");
  EXPECT_NE(log.find(version), std::string::npos) << log;
  const auto manifest = nlohmann::json::parse(read_file(scratch / "run/checkpoints/step-00000060/manifest.json"));
  EXPECT_EQ(manifest.at("state").at("written_by").get<std::string>() + "\n", version);
}

// A model that is trained from scratch: its tokenizer, and its choices.
struct Made {
  std::string name, tokenizer;
  Args choices;
};
void PrintTo(const Made& made, std::ostream* to) { *to << made.name; }

// The choices of the families that are written for `transformers`.
const Args llama_choices{"model.norm=rms",        "model.bias=false",       "model.qkv_bias=false",
                         "model.tied_head=false", "model.positions=rotary", "model.activation=swiglu",
                         "model.feed_forward=80", "model.key_value_heads=1"};
const Args qwen2_choices{"model.norm=rms",         "model.bias=false",        "model.qkv_bias=true",
                         "model.positions=rotary", "model.activation=swiglu", "model.feed_forward=80",
                         "model.key_value_heads=1"};
const Args qwen3_choices{"model.norm=rms",         "model.bias=false",        "model.qkv_bias=false",
                         "model.positions=rotary", "model.activation=swiglu", "model.query_key_norm=true",
                         "model.head_size=20",     "model.key_value_heads=1", "model.norm_epsilon=1e-6"};
const Args neox_choices{"model.positions=rotary", "model.rotary_share=0.25", "model.activation=gelu_erf",
                        "model.tied_head=false", "model.parallel_residual=true"};
const std::vector<Made> made_models{{"bytes", "bytes", {}},
                                    {"train", "train:270", {}},
                                    {"llama", "bytes", llama_choices},
                                    {"qwen2", "train:270", qwen2_choices},
                                    {"qwen3", "bytes", qwen3_choices},
                                    {"neox", "train:270", neox_choices}};

class Exchange : public testing::TestWithParam<Made> {};

TEST_P(Exchange, an_export_holds_its_tokenizer_and_reads_back) {
  const Scratch scratch;
  train_and_export(scratch, GetParam().tokenizer, GetParam().choices);
  for (const char* file : {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json",
                           "tokenizer_config.json", "special_tokens_map.json", "vocab.json", "merges.txt"})
    EXPECT_TRUE(fs::exists(scratch / "export/" + std::string(file))) << file;
  expect_signed(scratch);
  // Families but GPT-2 are written in bf16.
  const bool rounded = !GetParam().choices.empty();
  if (rounded) succeed(megalith({"checkpoint", "export", "run", "--out", "exact", "--type", "fp32"}), scratch);
  for (const std::string& prompt : prompts)
    EXPECT_EQ(continued(scratch, rounded ? "exact" : "export", prompt), continued(scratch, "run", prompt));
  // Nothing is overwritten, and nothing made where something is in the way.
  for (const char* file : {"tokenizer.json", "generation_config.json"}) {
    write_file(scratch / "taken/" + std::string(file), "precious");
    const Result refused = run(megalith({"checkpoint", "export", "run", "--out", "taken"}), scratch.folder(), 20);
    EXPECT_EQ(refused.status, 1) << refused.text();
    EXPECT_NE(refused.err.find(std::string("taken/") + file + " exists already"), std::string::npos) << refused.text();
    EXPECT_EQ(snapshot(scratch / "taken").size(), 1u);
    fs::remove_all(scratch / "taken");
  }
}

// Rows of the token table that no id of the tokenizer has are noise to whoever draws from all.
TEST(ExportForm, an_export_has_the_ids_of_the_tokenizer_in_the_type_and_the_files_that_are_asked_for) {
  const Scratch scratch;
  train_and_export(scratch, "bytes", {"model.vocab=384", "model.dropout=0.1"});
  const auto config_in = [&](const std::string& folder) {
    return nlohmann::json::parse(read_file(scratch / folder + "/config.json"));
  };
  EXPECT_EQ(config_in("export").at("vocab_size"), 257);
  EXPECT_EQ(config_in("export").at("resid_pdrop"), 0.1);
  EXPECT_EQ(config_in("export").at("torch_dtype"), "float32");
  EXPECT_EQ(read_weights(scratch / "export/model.safetensors").at("wte.weight").shape, (std::vector<int64_t>{257, 32}));
  for (const std::string& prompt : prompts)
    EXPECT_EQ(continued(scratch, "export", prompt), continued(scratch, "run", prompt));

  const Result parts =
      succeed(megalith({"checkpoint", "export", "run", "--out", "parts", "--max-shard-size", "20KB"}), scratch);
  EXPECT_NE(
      parts.out.find("vocabulary: 257, the ids of the tokenizer; the other 127 rows of the embedding are left out\n"
                     "weights: bf16, since they are large; --type fp32 writes them"),
      std::string::npos)
      << parts.text();
  EXPECT_EQ(config_in("parts").at("torch_dtype"), "bfloat16");
  EXPECT_TRUE(fs::exists(scratch / "parts/model.safetensors.index.json"));
  for (const auto& entry : fs::directory_iterator(scratch / "parts"))
    if (entry.path().extension() == ".safetensors") {
      EXPECT_LT(fs::file_size(entry.path()), 22'000u) << entry.path();
    }
  const Result exact =
      succeed(megalith({"checkpoint", "export", "run", "--out", "exact", "--max-shard-size", "20KB", "--type", "fp32"}),
              scratch);
  EXPECT_EQ(config_in("exact").at("torch_dtype"), "float32") << exact.text();

  const std::string python = python_with("torch, transformers");
  if (python.empty()) return;
  write_file(scratch / "same.py",
             "import sys, torch\n"
             "from transformers import GPT2LMHeadModel\n"
             "def weights(folder):\n"
             "    model = GPT2LMHeadModel.from_pretrained(folder, dtype=torch.float32)\n"
             "    assert model.config.attn_pdrop == 0.1, model.config\n"
             "    return model.state_dict()\n"
             "whole, exact, parts = (weights(folder) for folder in ('export', 'exact', 'parts'))\n"
             "for name, tensor in whole.items():\n"
             "    assert torch.equal(tensor, exact[name]), name\n"
             "    assert torch.equal(tensor.bfloat16().float(), parts[name]), name\n");
  succeed({"env", "HF_HUB_OFFLINE=1", python, "same.py"}, scratch);
}

// A model of Llama's choices, trained from scratch with a tokenizer that begins every text with a token of its own.
TEST(ExportForm, a_model_of_modern_choices_is_written_and_read_back) {
  const Scratch scratch;
  {
    const Scratch other;
    train_and_export(other, "bytes", {"train.steps=1"});
    fs::copy(other / "export", scratch / "framed", fs::copy_options::recursive);
  }
  const std::string path = scratch / "framed/tokenizer.json";
  auto framed = nlohmann::json::parse(read_file(path));
  nlohmann::json added = framed.at("added_tokens").at(0);
  added["id"] = 257;
  added["content"] = "<s>";
  framed["added_tokens"].push_back(added);
  framed["post_processor"] = nlohmann::json::parse(R"({"type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
    "special_tokens": {"<s>": {"id": "<s>", "ids": [257], "tokens": ["<s>"]}}})");
  fs::remove(path);
  write_file(path, framed.dump());
  train_and_export(scratch, "framed", llama_choices);
  const auto written = nlohmann::json::parse(read_file(scratch / "export/config.json"));
  EXPECT_EQ(written.at("model_type"), "llama");
  EXPECT_EQ(written.at("torch_dtype"), "bfloat16");
  EXPECT_EQ(written.at("bos_token_id"), 257);
  EXPECT_EQ(written.at("eos_token_id"), 256);
  EXPECT_EQ(read_file(scratch / "export/tokenizer.json"), read_file(path));
  succeed(megalith({"checkpoint", "export", "run", "--out", "exact", "--type", "fp32"}), scratch);
  for (const std::string& prompt : prompts)
    EXPECT_EQ(continued(scratch, "exact", prompt), continued(scratch, "run", prompt));
}

TEST_P(Exchange, the_pipeline_of_transformers_gives_our_greedy_text) {
  const std::string python = python_with("torch, transformers");
  if (python.empty()) GTEST_SKIP() << "MEGALITH_PYTHON does not name a Python with torch and transformers";
  const Scratch scratch;
  train_and_export(scratch, GetParam().tokenizer, GetParam().choices);
  write_file(scratch / "continue.py",
             "import json, sys\n"
             "from transformers import pipeline\n"
             "continue_text = pipeline('text-generation', sys.argv[1])\n"
             "for prompt in sys.argv[2:]:\n"
             "    text = continue_text(prompt, max_new_tokens=30, do_sample=False)[0]['generated_text']\n"
             "    print(json.dumps(text))\n");
  succeed(megalith({"checkpoint", "export", "run", "--out", "exact", "--type", "fp32"}), scratch);
  Args command{"env", "HF_HUB_OFFLINE=1", python, "continue.py", "exact"};
  command.insert(command.end(), prompts.begin(), prompts.end());
  const Result theirs = run(command, scratch.folder());
  ASSERT_EQ(theirs.status, 0) << theirs.text();
  std::istringstream lines(theirs.out);
  for (const std::string& prompt : prompts) {
    std::string line;
    ASSERT_TRUE(std::getline(lines, line)) << theirs.text();
    const auto text = nlohmann::json::parse(line).get<std::string>();
    EXPECT_GT(text.size(), prompt.size() + 10);
    EXPECT_EQ(text + "\n", continued(scratch, "run", prompt));
  }
}

INSTANTIATE_TEST_SUITE_P(Exchange, Exchange, testing::ValuesIn(made_models),
                         [](const auto& suite) { return suite.param.name; });

}  // namespace
}  // namespace megalith::e2e
