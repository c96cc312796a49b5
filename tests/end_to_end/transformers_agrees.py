"""Does `transformers` generate the same greedy text, and score the same questions alike?

    transformers_agrees.py MODEL TOKENIZER PROMPT TEXT QUESTIONS ITEMS SCORES
    transformers_agrees.py --family REFERENCE {EXPORT LOSS RESAVED begins|later}...

MODEL: a folder that transformers loads. TOKENIZER: one with vocab.json and merges.txt. TEXT: what `megalith generate
--temperature 0` printed for PROMPT. ITEMS and SCORES: what `megalith evaluate --choices QUESTIONS` wrote and printed.
Scores are computed here anew, as lm-evaluation-harness defines them: each answer by itself, without padding, in f32.
Exits 0 when the text is equal, log-likelihoods agree within 1e-4 and every decision is the same.

EXPORT: a folder of a model of the family of REFERENCE (a folder of ../shared/reference/families), all of whose tensors
transformers must find. LOSS: what `megalith evaluate` printed for it on the first microbatch of REFERENCE, which must be
within 2e-6 of transformers'. RESAVED: a folder to which transformers saves it again. A model that `begins` is the one in
REFERENCE, whose tensors it must have bit for bit; its logits must be within 1e-5 of REFERENCE's, in relative norm, and
its five greedy texts equal.
"""
import json, math, re, sys

import torch
from transformers import AutoModelForCausalLM, GPT2LMHeadModel, GPT2TokenizerFast


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


def load(folder):
    """The model in f32, with nothing missing and nothing left over."""
    model, info = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager",
                                                       output_loading_info=True)
    complaints = {key: list(names) for key, names in info.items() if names}
    if complaints:
        sys.exit(f"{folder}: {complaints}")
    return model.eval()


def check_beginning(model, reference, inputs):
    import h5py

    found = model.state_dict()
    for name, tensor in load(reference).state_dict().items():
        if not torch.equal(tensor, found[name]):
            sys.exit(f"{name} is not as in {reference}")
    with h5py.File(reference + "/reference.h5", "r") as f:
        expected = torch.from_numpy(f["logits"][:])
    with torch.no_grad():
        error = ((model(inputs).logits - expected).norm() / expected.norm()).item()
    if not error < 1e-5:
        sys.exit(f"logits differ by {error}")
    texts = json.load(open(reference + "/greedy.json"))
    for text in texts:
        ids = torch.tensor([text["prompt"]])
        found = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=len(text["continuation"]),
                               do_sample=False, eos_token_id=None, pad_token_id=0)[0, ids.shape[1]:].tolist()
        if found != text["continuation"]:
            sys.exit(f"prompt {text['prompt']}: {found}, reference {text['continuation']}")
    return f"logits within {error:.1e}, {len(texts)} greedy texts, "


def family(reference, *exports):
    recipe = json.load(open(reference + "/reference.json"))["recipe"]
    length, batch = recipe["seq"], recipe["batch"]
    stream = torch.frombuffer(bytearray(open(reference + "/tokens.bin", "rb").read()), dtype=torch.uint16).long()
    inputs = stream[:length * batch].view(batch, length)
    targets = stream[1:length * batch + 1]
    for export, loss, resaved, which in zip(*[iter(exports)] * 4, strict=True):
        model = load(export)
        said = check_beginning(model, reference, inputs) if which == "begins" else ""
        with torch.no_grad():
            theirs = torch.nn.functional.cross_entropy(model(inputs).logits.flatten(0, 1).double(), targets).item()
        if not abs(theirs - float(loss)) < 2e-6:
            sys.exit(f"{export}: loss {loss}, transformers {theirs}")
        model.save_pretrained(resaved)
        print(f"  {export}: {said}loss within {abs(theirs - float(loss)):.1e}")


if __name__ == "__main__":
    if sys.argv[1] == "--family":
        family(*sys.argv[2:])
    else:
        main(*sys.argv[1:])
