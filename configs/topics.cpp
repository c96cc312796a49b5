#include "configs/topics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace megalith {

namespace {

constexpr Topic all_topics[] = {
    {"own text,my text,my data,custom data,dataset,corpus,pretrain,pretraining,from scratch",
     "`megalith prepare --text FILE --tokenizer train:8192 --out DATA` makes token files of a text, and "
     "`megalith train quickstart data.train=DATA` trains a small model on them",
     "README.md, Your own text"},
    {"fine tune,finetune,finetuning,fine tuning,sft,instruction tuning,pretrained,existing weights,hugging "
     "face,hf",
     "`megalith train finetune checkpoint.init_from=FOLDER data.train=DATA` continues from a Hugging Face "
     "checkpoint",
     "trainer/FINE_TUNING.md, Start from existing weights"},
    {"lora,peft,adapter,adapters,low rank", "The recipe `lora`, or `adapter.rank=8`, trains adapters on frozen weights",
     "trainer/FINE_TUNING.md, Train adapters, or parts of a model"},
    {"qlora,quantize,quantization,int8,int4,4 bit,8 bit,bitsandbytes,gptq,awq",
     "Quantised weights are not supported. Frozen weights have the type of `precision.compute`, which may be "
     "bf16, and can be sharded or offloaded",
     "trainer/FINE_TUNING.md, Train adapters, or parts of a model"},
    {"freeze,frozen,layers to train", "`train.freeze` names the parameters that stay as they are",
     "trainer/FINE_TUNING.md, Train adapters, or parts of a model"},
    {"chat,chatbot,conversation,conversations,assistant",
     "`megalith prepare --template` reads conversations, and `megalith chat RUN` holds one with a model",
     "data/README.md, Conversations"},
    {"dpo,rlhf,ppo,grpo,orpo,preference,preferences,reward model,reinforcement",
     "Training on preferences or rewards is not supported. Training on the answers of conversations is",
     "FEATURES.md, Features"},
    {"tokenizer,bpe,sentencepiece,gpt2 tokenizer,vocabulary,special tokens",
     "`megalith prepare --tokenizer` takes a folder with tokenizer.json, or trains a BPE (`train:8192`)",
     "data/README.md, Tokenizers"},
    {"jsonl,json,parquet,csv,arrow,streaming,webdataset,gz,zst,format",
     "`megalith prepare --text` reads plain texts and JSON lines, also compressed or from a pipe. Other tables "
     "are converted to JSON lines first",
     "data/README.md, Texts"},
    {"mix,mixture of datasets,blend,several datasets,data weights,data mixture",
     "`data.train` takes a list of sources with weights: [\"wiki/*.bin 0.7\", \"code.bin 0.3\"]",
     "data/README.md, Token files"},
    {"packing,pack,padding,document mask,isolate documents",
     "Examples of conversations are packed whole (`data.pack`). `data.isolate_documents` keeps attention "
     "within a document",
     "data/README.md, Conversations"},
    {"resume,continue,restart,restarted,killed,preemption,preempted,crashed,stop,ctrl c",
     "The same command continues from the newest checkpoint in `run.output`, on any number of ranks",
     "trainer/README.md, Resume, and train longer"},
    {"longer,more steps,extend",
     "Raise `train.steps` and `optimizer.decay_steps`, with `checkpoint.allow_changes=true`",
     "trainer/README.md, Resume, and train longer"},
    {"early stopping,patience,best checkpoint,best model,overfit,overfitting",
     "`train.early_stopping_patience` ends a run that no longer improves. `checkpoint.keep_best` keeps its "
     "best checkpoint, and `checkpoint.resume=best` continues from it",
     "configs/OPTIONS.md, Every option of a run"},
    {"ema,swa,moving average,weight averaging,model soup",
     "`megalith checkpoint average` averages checkpoints. A moving average during training is not supported",
     "checkpoints/README.md, Checkpoints: inspect, reshard, compare, export"},
    {"export,safetensors,transformers,convert,hub,upload",
     "`megalith checkpoint export RUN --out FOLDER` writes a Hugging Face checkpoint",
     "checkpoints/README.md, Export to transformers"},
    {"gguf,llama cpp,ollama,lm studio",
     "`megalith checkpoint export RUN --out FOLDER` writes a Hugging Face checkpoint for llama.cpp's "
     "convert_hf_to_gguf.py, which knows the tokenizers of published models, not those that `prepare` trains",
     "checkpoints/README.md, Export to transformers"},
    {"serve,serving,vllm,tgi,inference server,api,deploy",
     "Megalith does not serve models. `megalith checkpoint export RUN --out FOLDER` writes a checkpoint that "
     "servers read",
     "checkpoints/README.md, Export to transformers"},
    {"generate,sampling,inference,text generation", "`megalith generate RUN --prompt TEXT` completes a text",
     "trainer/README.md, Use"},
    {"perplexity,evaluation,benchmark,lm eval,hellaswag,mmlu,accuracy",
     "`megalith evaluate RUN --text FILE` prints loss, bits per byte and perplexity, and `--choices` scores "
     "questions",
     "trainer/README.md, Use"},
    {"oom,out of memory,cuda out of memory,does not fit,too large",
     "Lower `batch.microbatch_size`, set `memory.activation_checkpointing=each`, or use more ranks. `megalith "
     "plan` shows what takes the memory, and `megalith search` finds layouts that fit",
     "trainer/TROUBLES.md, It does not fit"},
    {"gradient accumulation,accumulation,accumulate,batch size,micro batch",
     "`batch.global_batch_size` sequences make a step, `batch.microbatch_size` of them at a time on a rank; "
     "the rest is accumulated",
     "configs/README.md, Write a configuration"},
    {"learning rate,lr,schedule,scheduler,warmup,warm up,cosine,wsd",
     "`optimizer.learning_rate` rises for `optimizer.warmup_steps` and falls by `optimizer.decay` until "
     "`optimizer.decay_steps`",
     "trainer/README.md, Resume, and train longer"},
    {"optimizer,adamw,muon,sgd,lion,weight decay", "`optimizer.algorithm` is adamw or muon",
     "trainer/README.md, Muon instead of AdamW"},
    {"mixed precision,amp,half precision,bf16,fp16,fp32", "`precision.compute` is bf16, fp16 or fp32",
     "configs/OPTIONS.md, Every option of a run"},
    {"fp8,float8,mxfp8,fp4,transformer engine",
     "`precision.products=fp8` computes the layers' products in 8 bits. It has run on CPUs only",
     "FEATURES.md, Features"},
    {"moe,mixture of experts,experts,mixtral,deepseek", "Mixture of experts is not supported", "FEATURES.md, Features"},
    {"sliding window,local attention,gemma",
     "Sliding windows are not supported: attention reads the whole sequence. A Mistral whose window is as long "
     "as the context loads",
     "trainer/FINE_TUNING.md, Start from existing weights"},
    {"long context,context parallel,context parallelism,ring attention,ulysses,sequence parallel",
     "`model.context` and `batch.sequence_length` may be as long as memory allows. "
     "`parallel.sequence_parallel` splits the sequence outside of attention; context parallelism is not "
     "supported",
     "configs/README.md, Layouts"},
    {"several gpus,multiple gpus,multi gpu,multigpu,torchrun,accelerate,distributed,mpirun,ddp,data parallel",
     "`megalith run -n 8 train CONFIG` trains on 8 ranks, one for each GPU",
     "docker/README.md, Several ranks, several machines"},
    {"several machines,multi node,multinode,nodes,slurm,kubernetes,cluster,hosts",
     "`megalith run -n 64 --hosts FILE train CONFIG` starts the ranks on several machines; docker/train.slurm "
     "is a job for Slurm",
     "docker/README.md, Several ranks, several machines"},
    {"fsdp,zero,deepspeed,sharding,sharded,zero 3",
     "`parallel.sharding_strategy` is full_shard (ZeRO-3), shard_grad_op, shard_optimizer or no_shard",
     "configs/README.md, Layouts"},
    {"tensor parallel,tensor parallelism,tp,pipeline parallel,pipeline parallelism,pp,megatron,3d parallelism",
     "`parallel.tensor_parallel_degree` and `parallel.pipeline_parallel_degree` split a model; `megalith "
     "search` finds the fastest layout",
     "configs/README.md, Layouts"},
    {"activation checkpointing,gradient checkpointing,recompute,recomputation",
     "`memory.activation_checkpointing=each` recomputes each layer in the backward pass",
     "configs/OPTIONS.md, Every option of a run"},
    {"offload,cpu offload,offloading,zero offload",
     "The keys `memory.offload_...` keep inputs of recomputed layers, optimizer state and sharded weights in "
     "host memory",
     "configs/OPTIONS.md, Every option of a run"},
    {"flash attention,flash,sdpa,xformers,attention kernel",
     "Attention always runs in Megalith's own fused kernels; there is nothing to switch on", "FEATURES.md, Features"},
    {"torch compile,cuda graphs,compile",
     "All kernels are compiled in advance. `run.cuda_graphs=true` launches steps of small models as graphs",
     "docker/README.md, Several ranks, several machines"},
    {"how many gpus,estimate,cost,how long,training time,memory estimate,planning",
     "`megalith plan CONFIG hardware.profile=dgx_h100 --tokens 30e9` predicts memory and hours, without data "
     "or GPUs",
     "configs/README.md, Plan before you train"},
    {"deterministic,determinism,reproducible,reproducibility,same results",
     "Equal runs on equal ranks are bit-identical. `train.seed` and `data.seed` seed all random numbers",
     "FEATURES.md, The same numbers in every layout"},
    {"nan,inf,not finite,loss spike,spike,spikes,diverge,diverged,gradient clipping,overflow",
     "A step whose loss is not finite is skipped and recorded; `megalith replay RUN --step N` finds the first "
     "bad op. `optimizer.gradient_clip` limits the norm of the gradient",
     "trainer/TROUBLES.md, It fails during the run"},
    {"hang,hangs,stuck,timeout,nccl timeout,deadlock,slow rank,straggler",
     "After `communication.timeout` seconds the job ends and names the slow rank. `megalith doctor RUN` shows "
     "where each rank was",
     "trainer/README.md, Watch"},
    {"wandb,weights and biases,mlflow,comet,tensorboard,plot,curves,loss curve,logging",
     "`megalith report RUN` draws the curves. `run.tensorboard=true` writes files for TensorBoard. A few lines "
     "of Python log metrics.jsonl to Weights & Biases",
     "trainer/README.md, Watch"},
    {"profile,profiler,trace,slow,mfu,speed,throughput,bottleneck",
     "A run's last line says where the time went. `train.trace_steps=10-12` writes a trace for ui.perfetto.dev",
     "trainer/README.md, Watch"},
    {"s3,gcs,object store,bucket,azure,cloud storage",
     "Object stores are not supported; `checkpoint.directory` is a folder of a file system that all ranks see",
     "docker/README.md, Several ranks, several machines"},
    {"amd,rocm,hip,mi300,apple,mps,metal,tpu,xpu,intel gpu,mac,macos,windows,wsl",
     "GPUs are NVIDIA's from A100 on. Without one Megalith trains on CPUs, on Linux or in a Linux container",
     "docker/README.md, Systems"},
    {"docker,container,singularity,apptainer,podman,image",
     "docker/cpu.Dockerfile and docker/cuda.Dockerfile make images", "docker/README.md, Docker"},
    {"install,build,package,pip,conda,apt,cmake,cuda toolkit",
     "`./quickstart.sh` installs and builds; or make a package", "docker/README.md, Build"},
    {"reshard,consolidate,different gpus,change gpus,other layout",
     "Checkpoints do not depend on the layout: the same command continues on any number of ranks",
     "checkpoints/README.md, Checkpoints: inspect, reshard, compare, export"},
};

std::string folded(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  std::ranges::replace_if(
      text, [](char c) { return c == '-' || c == '_' || c == '.'; }, ' ');
  return text;
}

bool has_words(const std::string& text, const std::string& words) {
  return has_phrase(' ' + text + ' ', ' ' + words + ' ');
}

bool answers(const Topic& topic, const std::string& query) {
  std::string words = topic.words;
  for (size_t begin = 0; begin < words.size();) {
    const size_t end = std::min(words.find(',', begin), words.size());
    const std::string phrase = words.substr(begin, end - begin);
    if (has_words(query, phrase) || has_words(phrase, query)) return true;
    begin = end + 1;
  }
  return false;
}

}  // namespace

std::span<const Topic> topics() { return all_topics; }

bool has_phrase(const std::string& text, const std::string& phrase) {
  for (size_t at = text.find(phrase); at != std::string::npos; at = text.find(phrase, at + 1))
    if (at == 0 || !std::isalnum(static_cast<unsigned char>(text[at - 1])) ||
        !std::isalnum(static_cast<unsigned char>(phrase.front())))
      return true;
  return false;
}

std::string topics_about(const std::string& query) {
  std::string found;
  for (const Topic& topic : all_topics)
    if (answers(topic, folded(query))) found += fmt::format("{}.\n      {}\n", topic.answer, topic.page);
  return found;
}

}  // namespace megalith
