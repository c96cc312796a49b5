#!/usr/bin/env python3
"""Writes tokenizers with the vocabularies that packages carry, as tokenizer.json, and a text with the ids that
Hugging Face's library makes of it.

usage: tokenizers_of_packages.py OUT TEXT...
needs: python3 with tokenizers, and at least one of llama-models, dashscope and mistral-common

OUT/NAME/tokenizer.json, tokenizer_config.json, text.txt, ids.bin (int32), for each vocabulary found. The files are cut
as the published models are: those of Llama 3 and Qwen by their pattern, that of Mistral 7B v0.1 not at all.
"""
import base64
import importlib.util
import json
import os
import struct
import sys

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

CUT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
       r"|\s+(?!\S)|\s+")


def file_of(package, *path):
    found = importlib.util.find_spec(package)
    name = found and os.path.join(list(found.submodule_search_locations)[0], *path)
    return name if name and os.path.exists(name) else None


def names_of_bytes():
    printable = [b for b in range(256) if 33 <= b <= 126 or (b >= 161 and b != 173)]
    names = {b: chr(b) for b in printable}
    for b in range(256):
        if b not in names:
            names[b] = chr(256 + len(names) - len(printable))
    return names


def pair_merged_last(token, ranks):
    """Returns the two parts of a token that its last merge joins."""
    parts = [token[i:i + 1] for i in range(len(token))]
    while len(parts) > 2:
        rank, at = min((ranks.get(parts[i] + parts[i + 1], 1 << 30), i) for i in range(len(parts) - 1))
        if rank >= ranks[token]:
            return None
        parts[at:at + 2] = [parts[at] + parts[at + 1]]
    return parts


def of_ranks(path, digits, specials, form, first):
    ranks = {}
    for line in open(path, "rb"):
        token, rank = line.split()
        ranks[base64.b64decode(token)] = int(rank)
    names = names_of_bytes()
    name = lambda token: "".join(names[b] for b in token)
    merges = []
    for token in sorted(ranks, key=ranks.get):
        pair = pair_merged_last(token, ranks) if len(token) > 1 else None
        if pair:
            merges.append((name(pair[0]), name(pair[1])))
    made = Tokenizer(models.BPE({name(t): r for t, r in ranks.items()}, merges, ignore_merges=digits != ""))
    made.normalizer = form
    made.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(CUT % digits), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(specials)
    if first:
        made.post_processor = processors.TemplateProcessing(f"{first} $A", special_tokens=[(first, made.token_to_id(first))])
    return made, specials[-1]


def fields(message):
    """Yields the numbers and values of a message of Protocol Buffers."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
        else:
            size = varint() if key & 7 == 2 else 4 if key & 7 == 5 else 8
            yield key >> 3, message[at:at + size]
            at += size


def of_sentencepiece(path):
    vocab, scores = {}, {}
    for number, piece in fields(open(path, "rb").read()):
        if number == 1:
            values = dict(fields(piece))
            text = values[1].decode()
            scores[text] = struct.unpack("<f", values.get(2, b"\0\0\0\0"))[0]
            vocab[text] = len(vocab)
    merges = []
    for text, score in scores.items():
        pairs = [(text[:i], text[i:]) for i in range(1, len(text)) if text[:i] in vocab and text[i:] in vocab]
        merges += [(score, pair) for pair in sorted(pairs, key=lambda p: (vocab[p[0]], vocab[p[1]]))]
    merges.sort(key=lambda m: -m[0])
    made = Tokenizer(models.BPE(vocab, [pair for _, pair in merges], unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    made.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    made.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(),
                                      decoders.Strip(" ", 1, 0)])
    made.add_special_tokens(["<unk>", "<s>", "</s>"])
    made.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", vocab["<s>"])])
    return made, "</s>"


def main():
    out = sys.argv[1]
    text = "".join(open(path, encoding="utf-8", newline="").read() for path in sys.argv[2:])
    for special in ("<|", "<s>", "</s>", "<unk>"):  # special tokens that stand in texts are another test's
        text = text.replace(special, "")
    found = {
        "llama3": (file_of("llama_models", "llama3", "tokenizer.model"), lambda path: of_ranks(
            path, "{1,3}", ["<|begin_of_text|>", "<|end_of_text|>"], None, "<|begin_of_text|>")),
        "qwen": (file_of("dashscope", "resources", "qwen.tiktoken"), lambda path: of_ranks(
            path, "", ["<|endoftext|>", "<|im_start|>", "<|im_end|>"], normalizers.NFC(), None)),
        "mistral": (file_of("mistral_common", "data", "tokenizer.model.v1"), of_sentencepiece)}
    for name, (path, make) in found.items():
        if not path:
            print(f"{name}: no package has its vocabulary")
            continue
        made, end = make(path)
        folder = os.path.join(out, name)
        os.makedirs(folder)
        made.save(os.path.join(folder, "tokenizer.json"))
        with open(os.path.join(folder, "tokenizer_config.json"), "w") as file:
            json.dump({"eos_token": end}, file)
        with open(os.path.join(folder, "text.txt"), "w", encoding="utf-8", newline="") as file:
            file.write(text)
        ids = Tokenizer.from_file(os.path.join(folder, "tokenizer.json")).encode(text, add_special_tokens=False).ids
        with open(os.path.join(folder, "ids.bin"), "wb") as file:
            file.write(struct.pack(f"<{len(ids)}i", *ids))
        print(f"{name}: {made.get_vocab_size()} tokens, {len(ids)} ids")


if __name__ == "__main__":
    main()
