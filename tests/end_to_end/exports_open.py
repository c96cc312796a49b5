"""Opens exports of conversational models with `transformers`, and PEFT: exports_open.py FILE, a JSON list of

    {"folder", "base" (of adapters, or null), "loader", "text", "ids" (of the text), "messages" and "chat" (the ids of
     the conversation; null without a template), "ends" (tokens of which each ends an answer), "stop" (a text that does)}

Exits with 1 and one line for each that is not as described.
"""
import json
import sys

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

LOADERS = {"AutoTokenizer": AutoTokenizer, "PreTrainedTokenizerFast": PreTrainedTokenizerFast}


def generated(model, forced, **how):
    """Returns how many tokens a model writes that is led to write `forced`, then the first of them again and again."""
    prompt = torch.tensor([[forced[0]]])
    lead = lambda _, ids: [forced[min(len(ids) - 1, len(forced) - 1)]]
    out = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=len(forced) + 8, do_sample=False,
                         prefix_allowed_tokens_fn=lead, pad_token_id=0, **how)
    return out.shape[1] - 1


def wrong(case):
    tokenizer = LOADERS[case["loader"]].from_pretrained(case["folder"])
    found = tokenizer(case["text"], add_special_tokens=False)["input_ids"]
    if found != case["ids"]:
        yield f"the text has the ids {found}, not {case['ids']}"
    if case["chat"] is None:
        if tokenizer.chat_template is not None:
            yield "there is a chat template"
    else:
        found = tokenizer.apply_chat_template(case["messages"], tokenize=True, return_dict=False)
        if found != case["chat"]:
            yield f"the conversation has the ids {found}, not {case['chat']}"
    if case["base"] is None:
        model = AutoModelForCausalLM.from_pretrained(case["folder"], dtype=torch.float32)
    else:
        model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(case["base"], dtype=torch.float32),
                                          case["folder"])
        model.generation_config = type(model.generation_config).from_pretrained(case["folder"])
        model.base_model.model.generation_config = model.generation_config
    other = next(i for i in case["ids"] if i not in case["ends"])
    for end in case["ends"]:
        count = generated(model, [other, other, end, other])
        if count != 3:
            yield f"{count} tokens are written where the third is the end {end}"
    if case["stop"]:
        ids = tokenizer(case["stop"], add_special_tokens=False)["input_ids"]
        count = generated(model, [other] + ids + [other], stop_strings=[case["stop"]], tokenizer=tokenizer)
        if count != 1 + len(ids):
            yield f"{count} tokens are written where {1 + len(ids)} end with {case['stop']!r}"


failed = False
for case in json.load(open(sys.argv[1])):
    try:
        for what in wrong(case):
            failed = True
            print(f"{case['folder']}: {what}")
    except Exception as e:  # pylint: disable=broad-except
        failed = True
        print(f"{case['folder']}: {type(e).__name__}: {e}")
sys.exit(failed)
