// The questions of newcomers, by the words in which they ask them: each has an answer by `megalith help`.
#include "configs/topics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "configs/config.h"

namespace megalith::test {
namespace {

std::string text_of(const std::string& page) {
  std::ifstream in(std::string(MEGALITH_SOURCE_DIR) + "/" + page);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

TEST(Topics, AnswerWhatNewcomersAsk) {
  struct Question {
    const char *words, *answer;
  };
  for (const auto& [words, answer] :
       std::initializer_list<Question>{{"own text", "megalith prepare --text"},
                                       {"how do I fine-tune", "checkpoint.init_from=FOLDER"},
                                       {"LoRA", "adapter.rank"},
                                       {"qlora", "not supported"},
                                       {"bitsandbytes", "not supported"},
                                       {"Hugging Face", "checkpoint.init_from"},
                                       {"dpo", "not supported"},
                                       {"sentencepiece", "--tokenizer"},
                                       {"parquet", "JSON lines"},
                                       {"mix", "data.train"},
                                       {"packing", "data.pack"},
                                       {"my job was killed", "same command continues"},
                                       {"early stopping", "early_stopping_patience"},
                                       {"EMA", "checkpoint average"},
                                       {"safetensors", "checkpoint export"},
                                       {"gguf", "convert_hf_to_gguf.py"},
                                       {"ollama", "convert_hf_to_gguf.py"},
                                       {"vLLM", "does not serve"},
                                       {"lm-eval", "--choices"},
                                       {"CUDA out of memory", "batch.microbatch_size"},
                                       {"gradient accumulation", "batch.global_batch_size"},
                                       {"cosine", "optimizer.decay"},
                                       {"mixed precision", "precision.compute"},
                                       {"float8", "precision.products"},
                                       {"MoE", "not supported"},
                                       {"sliding_window", "not supported"},
                                       {"ring attention", "not supported"},
                                       {"torchrun", "megalith run -n 8"},
                                       {"slurm", "docker/train.slurm"},
                                       {"DeepSpeed", "parallel.sharding_strategy"},
                                       {"tensor parallelism", "parallel.tensor_parallel_degree"},
                                       {"gradient checkpointing", "memory.activation_checkpointing"},
                                       {"offload", "memory.offload_"},
                                       {"flash-attention", "nothing to switch on"},
                                       {"torch.compile", "run.cuda_graphs"},
                                       {"how many GPUs", "megalith plan"},
                                       {"reproducible", "bit-identical"},
                                       {"NaN", "megalith replay"},
                                       {"nccl timeout", "megalith doctor"},
                                       {"wandb", "metrics.jsonl"},
                                       {"slow", "train.trace_steps"},
                                       {"s3", "not supported"},
                                       {"ROCm", "NVIDIA's"},
                                       {"docker", "docker/cpu.Dockerfile"},
                                       {"pip install", "./quickstart.sh"},
                                       {"different GPUs", "any number of ranks"},
                                       {"freeze", "train.freeze"}})
    EXPECT_NE(topics_about(words).find(answer), std::string::npos) << words << ": " << topics_about(words);
  for (const char* nothing : {"xyzzy", "tun", "re", "", "chec"}) EXPECT_EQ(topics_about(nothing), "") << nothing;
}

TEST(Topics, PagesAndKeysExist) {
  std::set<std::string> keys;
  for (const auto& [key, value] : key_values(Config{})) keys.insert(key);
  const std::regex quoted("`([a-z_]+\\.[a-z_]+)[=.`]");
  std::set<std::string> phrases;
  for (const Topic& topic : topics()) {
    const std::string place = topic.page, answer = topic.answer;
    const size_t comma = place.find(", ");
    ASSERT_NE(comma, std::string::npos) << place;
    const std::string page = text_of(place.substr(0, comma));
    EXPECT_NE(page.find("# " + place.substr(comma + 2) + "\n"), std::string::npos) << place;
    for (std::sregex_iterator at(answer.begin(), answer.end(), quoted), end; at != end; ++at) {
      const std::string key = (*at)[1];
      const bool known = keys.contains(key) || std::ranges::any_of(keys, [&](const std::string& k) {
                           return key.ends_with('_') && k.starts_with(key);
                         });
      EXPECT_TRUE(known) << key;
    }
    std::stringstream words(topic.words);
    for (std::string phrase; std::getline(words, phrase, ',');) EXPECT_TRUE(phrases.insert(phrase).second) << phrase;
  }
}

}  // namespace
}  // namespace megalith::test
