#!/usr/bin/env python3
"""Lists every text that the program can print, and fails for words that CONTRIBUTING.md replaces.

words.py [--list]: with --list only prints the texts, file by file, with the line at which each begins. Texts are the string literals
of the product's sources, adjacent ones joined, with two words or more; of the report's scripts, their quoted strings.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
FOLDERS = ["kernels", "configs", "data", "checkpoints", "trainer"]

# The old word, and the one to write.
REPLACED = [
    (r"(?<!here )\bis no (?!longer\b)", "is not a"),
    (r"\bare none\b|\bnobody\b", "no ..."),
    (r"\bbeside\b", "next to, in addition to, overlapped with"),
    (r"\b(go|goes|going|went) on\b", "continue, resume"),
    (r"\b(lie|lies|lay) (in|at|inside|outside|together|one)\b", "is"),
    (r"\bstands? (in|at|alone|before|around)\b", "is"),
    (r"\b[Hh]eld[- ]out\b", "validation"),
    (r"\btoken table\b|\btables of\b", "embedding"),
    (r"\b(rank|ranks) alone\b|;? alone (or|under)\b", "a single rank"),
    (r"\bfolders? (of|from) (a model from )?Hugging Face\b", "Hugging Face checkpoint"),
    (r"\bbit by bit\b", "bit-identical"),
    (r"\bnot known here\b", "not supported"),
    (r"\bbut for\b", "except"),
]

LITERAL = re.compile(r'"((?:[^"\\\n]|\\.)*)"')


def literals(text):
    """The string literals of C++ source, adjacent ones joined, each with the offset at which it begins."""
    found, at, end = [], 0, -1
    while at < len(text):
        if text.startswith("//", at):
            at = text.find("\n", at) % (len(text) + 1)
        elif text.startswith('R"', at) and not text[at - 1].isalnum():
            mark = text[at + 2:text.index("(", at)]
            at = text.index(f'){mark}"', at) + len(mark) + 2
        elif literal := LITERAL.match(text, at):
            if end >= 0 and not text[end:at].strip():
                found[-1][1] += literal[1]
            else:
                found.append([at, literal[1]])
            at = end = literal.end()
        elif character := re.compile(r"(?<!\w)'(?:[^'\\\n]|\\.)'").match(text, at):
            at = character.end()
        else:
            at += 1
    return found


def texts_of(path):
    source = path.read_text()
    if path.suffix == ".js":
        found = [[m.start(), m[0][1:-1]] for m in re.finditer(r"'[^'\n]*'|`[^`]*`", source)]
    else:
        found = literals(source)
    for at, text in found:
        line = source[source.rfind("\n", 0, at) + 1:at]
        if len(re.findall(r"[A-Za-z]{2,}", text)) >= 2 and " " in text and not line.startswith("#include"):
            yield source.count("\n", 0, at) + 1, text


def wrong_in(text):
    return [f"`{word[0].strip()}`: write {better}" for old, better in REPLACED if (word := re.search(old, text))]


def main():
    paths = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in (".h", ".cpp", ".cu", ".js"))
    count, wrong = 0, []
    for path in paths:
        for line, text in texts_of(path):
            count += 1
            place = f"{path.relative_to(ROOT)}:{line}: {text}"
            if "--list" in sys.argv:
                print(place)
            wrong += [f"{place}\n    {what}" for what in wrong_in(text)]
    if "--list" in sys.argv:
        return 0
    assert count > 2000, f"{count} texts: the sources are not read"
    assert wrong_in("null is no list") and not wrong_in("it is no longer read; there is no tokenizer"), "the rules do not work"
    print("\n".join(wrong) or f"{count} texts")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
