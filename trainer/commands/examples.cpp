#include "trainer/commands/examples.h"

namespace megalith {

namespace {

// Each begins with the command that it is an example of, or starts it by `megalith run`.
struct Example {
  std::string_view command, line;
};

constexpr Example known_examples[] = {
    {"megalith train", "megalith train quickstart data.train=runs/book/data run.output=runs/book"},
    {"megalith train", "megalith run -n 2 train runs/book train.steps=4000"},
    {"megalith run", "megalith run -n 8 train gpt2_124m"},
    {"megalith run", "megalith run -n 16 --hosts hosts.txt train runs/large/config.toml"},
    {"megalith verify", "megalith verify quickstart --against memory.activation_checkpointing=each"},
    {"megalith verify", "megalith verify quickstart --steps 5 --against precision.compute=bf16"},
    {"megalith prepare", "megalith prepare --text book.txt --tokenizer train:8192 --out runs/book/data"},
    {"megalith prepare", "megalith prepare --text chats.jsonl --template chatml --tokenizer DIR --out d"},
    {"megalith plan", "megalith plan 30b_p4d"},
    {"megalith plan", "megalith plan 10b_h100 --compare parallel.tensor_parallel_degree=1,2,4"},
    {"megalith search", "megalith search 10b_h100 --write fastest.toml"},
    {"megalith search", "megalith search gpt2_1558m hardware.profile=l40s --gpus 8 --most 3"},
    {"megalith measure", "megalith measure"},
    {"megalith measure", "megalith run -n 2 measure --write this.toml"},
    {"megalith info", "megalith info"},
    {"megalith info", "ssh node2 megalith info"},
    {"megalith generate", "megalith generate runs/book --prompt \"It was\" --tokens 200"},
    {"megalith generate", "megalith generate MODEL --interactive --temperature 0.7"},
    {"megalith chat", "megalith chat runs/chats"},
    {"megalith chat", "megalith chat MODEL --system \"You answer in one sentence.\""},
    {"megalith evaluate", "megalith evaluate runs/book --text other.txt"},
    {"megalith evaluate", "megalith evaluate MODEL --choices hellaswag.jsonl --items answers.jsonl"},
    {"megalith data audit", "megalith data audit runs/book"},
    {"megalith data audit", "megalith data audit runs/annealed > audit.txt"},
    {"megalith replay", "megalith replay runs/book --step 120"},
    {"megalith replay", "megalith replay runs/book --step 120 precision.compute=fp32"},
    {"megalith report", "megalith report runs/book"},
    {"megalith report", "megalith report runs/slow runs/fast --out compared.html"},
    {"megalith doctor", "megalith doctor runs/book"},
    {"megalith doctor", "megalith doctor runs/book | less"},
    {"megalith completion", "source <(megalith completion bash)"},
    {"megalith completion", "megalith completion fish > ~/.config/fish/completions/megalith.fish"},
    {"megalith manual", "megalith manual man | man -l -"},
    {"megalith manual", "megalith manual profile > cluster.toml"},
    {"megalith checkpoint inspect", "megalith checkpoint inspect runs/book"},
    {"megalith checkpoint inspect", "megalith checkpoint inspect runs/book/checkpoints/step-00000100 --all"},
    {"megalith checkpoint verify", "megalith checkpoint verify runs/book"},
    {"megalith checkpoint verify", "megalith checkpoint verify runs/book/checkpoints/step-00000100"},
    {"megalith checkpoint export", "megalith checkpoint export runs/book --out book-hf"},
    {"megalith checkpoint export", "megalith checkpoint export runs/lora/best --merged --type bf16 --out tuned"},
    {"megalith checkpoint diff", "megalith checkpoint diff runs/a runs/b"},
    {"megalith checkpoint diff", "megalith checkpoint diff runs/a runs/a/best"},
    {"megalith checkpoint reshard", "megalith checkpoint reshard runs/book resharded --ranks 4"},
    {"megalith checkpoint reshard", "megalith checkpoint reshard runs/book halves --ranks 2 --memory 256MiB"},
    {"megalith checkpoint average", "megalith checkpoint average runs/book --last 3 --out averaged"},
    {"megalith checkpoint average", "megalith checkpoint average runs/a runs/b --out averaged"},
};

}  // namespace

std::vector<std::string_view> examples_of(std::string_view command) {
  std::vector<std::string_view> found;
  for (const Example& example : known_examples)
    if (example.command == command) found.push_back(example.line);
  return found;
}

}  // namespace megalith
