"""Adapters as Hugging Face PEFT makes, trains and opens them, for tests/end_to_end/adapter_test.cpp.

    peft_agrees.py make BASE OUT RANK ALPHA MODULE...      a folder of PEFT with random adapters
    peft_agrees.py train BASE ADAPTER TOKENS T BATCH STEPS LEARNING_RATE WEIGHT_DECAY    prints the loss of each step
    peft_agrees.py open BASE ADAPTER TOKENS T SEQUENCES PROMPT    prints the loss, and the greedy text of 30 tokens

In fp32. Sequence i has the tokens from i T on, as `megalith train` reads a file with data.shuffle = false; the update is
AdamW's after clipping the norm to 1. What is printed is one JSON value.
"""
import json, sys

import numpy, torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer


def base_of(folder):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def sequences(path, T, first, count):
    tokens = numpy.fromfile(path, dtype=numpy.uint16).astype(numpy.int64)
    at = lambda i: torch.tensor(tokens[i * T:i * T + T + 1])
    rows = torch.stack([at(first + i) for i in range(count)])
    return rows[:, :-1], rows[:, 1:]


def loss_of(model, inputs, targets):
    logits = model(input_ids=inputs, attention_mask=torch.ones_like(inputs)).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def make(base, out, rank, alpha, *modules):
    torch.manual_seed(1)
    model = base_of(base)
    config = LoraConfig(r=int(rank), lora_alpha=float(alpha), target_modules=list(modules), task_type="CAUSAL_LM",
                        fan_in_fan_out=model.config.model_type == "gpt2")
    model = get_peft_model(model, config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                parameter.normal_(0, 0.1)
    model.save_pretrained(out)


def train(base, adapter, tokens, T, batch, steps, rate, decay):
    model = PeftModel.from_pretrained(base_of(base), adapter, is_trainable=True)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=float(rate), betas=(0.9, 0.95), eps=1e-8, weight_decay=float(decay))
    losses = []
    for step in range(int(steps)):
        loss = loss_of(model, *sequences(tokens, int(T), step * int(batch), int(batch)))
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
    print(json.dumps(losses))


def open_adapter(base, adapter, tokens, T, count, prompt):
    model = base_of(base)
    if adapter:
        model = PeftModel.from_pretrained(model, adapter).eval()
    tokenizer = AutoTokenizer.from_pretrained(base)
    with torch.no_grad():
        loss = loss_of(model, *sequences(tokens, int(T), 0, int(count))).item()
        ids = tokenizer(prompt, return_tensors="pt").input_ids
        out = model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=30, do_sample=False)
    print(json.dumps([loss, tokenizer.decode(out[0], skip_special_tokens=True, clean_up_tokenization_spaces=False)]))


if __name__ == "__main__":
    {"make": make, "train": train, "open": open_adapter}[sys.argv[1]](*sys.argv[2:])
