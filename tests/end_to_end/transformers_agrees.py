"""Does `transformers` generate the same greedy text, and score the same questions alike?

    transformers_agrees.py MODEL TOKENIZER PROMPT TEXT QUESTIONS ITEMS SCORES

MODEL: a folder that transformers loads. TOKENIZER: one with vocab.json and merges.txt. TEXT: what `megalith generate
--temperature 0` printed for PROMPT. ITEMS and SCORES: what `megalith evaluate --choices QUESTIONS` wrote and printed.
Scores are computed here anew, as lm-evaluation-harness defines them: each answer by itself, without padding, in f32.
Exits 0 when the text is equal, log-likelihoods agree within 1e-4 and every decision is the same.
"""
import json, math, re, sys

import torch
from transformers import GPT2LMHeadModel, GPT2TokenizerFast


def log_likelihood(model, tokenizer, context, answer):
    blanks = len(context) - len(context.rstrip())
    if blanks > 0:
        context, answer = context[:-blanks], context[-blanks:] + answer
    before, whole = tokenizer(context).input_ids if context else [], tokenizer(context + answer).input_ids
    target = whole[len(before):]
    if not before:
        whole = [tokenizer.eos_token_id] + whole
    inputs = whole[-(model.config.n_positions + 1):][:-1]
    with torch.no_grad():
        rows = torch.log_softmax(model(torch.tensor([inputs])).logits[0, -len(target):].float(), -1)
    return (rows[torch.arange(len(target)), torch.tensor(target)].double().sum().item(),
            bool((rows.argmax(-1) == torch.tensor(target)).all()))


def best(values):
    return max(range(len(values)), key=lambda i: values[i])  # of equals the first


def main(folder, tokenizer, prompt, text, questions, items, scores):
    model = GPT2LMHeadModel.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = GPT2TokenizerFast.from_pretrained(tokenizer)

    ids = tokenizer(prompt, return_tensors="pt").input_ids
    found = open(text, "rb").read().decode(errors="replace")
    tokens = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=35, do_sample=False,
                            pad_token_id=tokenizer.eos_token_id)[0]
    expected = tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False) + "\n"
    if found != expected:
        sys.exit(f"text {found!r}, transformers {expected!r}")

    worst, right, right_norm, greedy_words, words = 0, [], [], [], []
    for question, item in zip([json.loads(l) for l in open(questions, encoding="utf-8")],
                              [json.loads(l) for l in open(items)], strict=True):
        if "endings" in question:
            context, label = question.get("ctx", question.get("context")), int(question["label"])
            answers = [log_likelihood(model, tokenizer, context, " " + e) for e in question["endings"]]
            by_length = [v / len(e) for (v, _), e in zip(answers, question["endings"])]
            right.append(best([v for v, _ in answers]) == label)
            right_norm.append(best(by_length) == label)
            same = item["best"] == best([v for v, _ in answers]) and item["best_norm"] == best(by_length)
        else:
            context, word = question["text"].rsplit(" ", 1)
            answers = [log_likelihood(model, tokenizer, context, " " + word)]
            words.append(answers[0][0])
            greedy_words.append(answers[0][1])
            same = item["greedy"] == answers[0][1]
        worst = max([worst] + [abs(a - v) for a, (v, _) in zip(item["log_likelihood"], answers, strict=True)])
        if not same:
            sys.exit(f"item {item}, transformers {answers}")
    if worst > 1e-4:
        sys.exit(f"log-likelihoods differ by {worst}")
    mean = lambda v: sum(v) / len(v)
    expected = [mean(right), mean(right_norm), len(right), mean(greedy_words), math.exp(-mean(words)), len(words)]
    found = [float(v) for v in re.findall(r"\d+\.\d+|\d+", open(scores).read())]
    if any(abs(a - b) > 1e-4 * max(1, b) for a, b in zip(found, expected, strict=True)):
        sys.exit(f"scores {found}, transformers {expected}")
    print(f"log-likelihoods within {worst:.1e}")


if __name__ == "__main__":
    main(*sys.argv[1:])
