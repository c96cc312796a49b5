#!/usr/bin/env python3
"""Greedy text from GPT-2 124M on the CPU: Megalith against transformers with its cache, token for token the same text.

The model has random weights, made here (no download), and is saved as transformers saves it; both programs read that
folder. Rounds go in turn, so that both see the same machine. A round's figure is the time from the prompt to the last
token, without loading; what is printed is the median over rounds and the ratio. Both have OMP_WAIT_POLICY=PASSIVE.

The floor is that of memory: each token reads every weight but the position table's once, as f32. Its rate is that of
PyTorch adding up as many bytes on the same threads, measured beside each round.

usage: bench/generate.py [--program MEGALITH] [--rounds 5] [--threads 2] [--tokens 200] [--model FOLDER] [--json FILE]
needs: megalith built; ../shared/tokenizers/gpt2; python3 with torch and transformers (from PyPI)
"""
import argparse, json, os, platform, re, statistics, subprocess, sys, tempfile, time

PROMPT = "In the beginning there was nothing but"


def make_model(folder):
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel
    torch.manual_seed(3)
    GPT2LMHeadModel(GPT2Config(initializer_range=0.05)).save_pretrained(folder)


def peer(folder, tokenizer, tokens, threads):
    """Loads, prints one line, and another for each line of standard input."""
    import torch, transformers
    from transformers import GPT2LMHeadModel, GPT2TokenizerFast
    torch.set_num_threads(threads)
    model = GPT2LMHeadModel.from_pretrained(folder, dtype=torch.float32).eval()
    names = GPT2TokenizerFast.from_pretrained(tokenizer)
    ids = names(PROMPT, return_tensors="pt").input_ids
    weights = sum(p.numel() for p in model.parameters()) - model.transformer.wpe.weight.numel()
    memory = torch.ones(weights)

    def generate(n):
        start = time.perf_counter()
        out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=n, min_new_tokens=n,
                             do_sample=False, use_cache=True, pad_token_id=names.eos_token_id)
        return time.perf_counter() - start, out[0]

    def floor():
        start = time.perf_counter()
        memory.sum()
        return time.perf_counter() - start

    generate(5)
    print(json.dumps({"version": f"transformers {transformers.__version__}, PyTorch {torch.__version__}",
                      "bytes": 4 * weights}), flush=True)
    for _ in sys.stdin:
        seconds, out = generate(tokens)
        text = names.decode(out, clean_up_tokenization_spaces=False)
        print(json.dumps({"seconds": seconds, "text": text, "floor": statistics.median(floor() for _ in range(9))}),
              flush=True)


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--program", default=os.path.join(here, "../build/cpu/trainer/megalith"))
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--tokens", type=int, default=200)
    p.add_argument("--model", help="default: made anew")
    p.add_argument("--json", help="file for the row")
    p.add_argument("--peer", action="store_true", help=argparse.SUPPRESS)
    o = p.parse_args()
    tokenizer = os.path.join(here, "../../shared/tokenizers/gpt2")
    if o.peer:
        return peer(o.model, tokenizer, o.tokens, o.threads)
    with tempfile.TemporaryDirectory() as folder:
        if not o.model:
            make_model(folder)
            o.model = folder
        env = dict(os.environ, OMP_WAIT_POLICY="PASSIVE", OMP_NUM_THREADS=str(o.threads))
        theirs = subprocess.Popen([sys.executable, os.path.abspath(__file__), "--peer", "--model", o.model, "--tokens",
                                   str(o.tokens), "--threads", str(o.threads)], env=env, text=True,
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        facts = json.loads(theirs.stdout.readline())
        ours, peers, floors, same = [], [], [], True
        for _ in range(o.rounds):
            run = subprocess.run([o.program, "generate", "--checkpoint", o.model, "--tokenizer", tokenizer, "--device",
                                  "cpu", "--prompt", PROMPT, "--tokens", str(o.tokens), "--temperature", "0"], env=env,
                                 capture_output=True, check=True)
            ours.append(float(re.search(rb"tokens? in ([0-9.]+) s", run.stderr)[1]))
            theirs.stdin.write("go\n")
            theirs.stdin.flush()
            answer = json.loads(theirs.stdout.readline())
            peers.append(answer["seconds"])
            floors.append(answer["floor"])
            same = same and run.stdout.decode(errors="replace") == answer["text"] + "\n"
        theirs.stdin.close()
        theirs.wait()
    cpu = next((l.split(":")[1].strip() for l in open("/proc/cpuinfo") if l.startswith("model name")), platform.machine())
    row = {"processor": cpu, "threads": o.threads, "tokens": o.tokens, "ours": ours, "peer": peers, "floor": floors,
           "seconds": statistics.median(ours), "peer_seconds": statistics.median(peers),
           "ratio": statistics.median(peers) / statistics.median(ours),
           "of_floor": statistics.median(floors) * o.tokens / statistics.median(ours), "same_text": same, **facts}
    floor = statistics.median(floors)
    print(f"{cpu}, {o.threads} threads, {o.rounds} rounds of {o.tokens} tokens; {facts['version']}")
    print(f"Megalith {o.tokens / row['seconds']:.1f} tokens/s ({min(ours):.2f} to {max(ours):.2f} s), transformers "
          f"{o.tokens / row['peer_seconds']:.1f} ({min(peers):.2f} to {max(peers):.2f} s), ratio {row['ratio']:.2f}; "
          f"{'the same text' if same else 'ANOTHER TEXT'}")
    print(f"floor: {facts['bytes'] / 1e6:.0f} MB a token at {facts['bytes'] / floor / 1e9:.1f} GB/s = {1e3 * floor:.1f} ms; "
          f"{row['of_floor']:.2f} of it")
    if o.json:
        with open(o.json, "w") as file:
            json.dump(row, file, indent=1)
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
