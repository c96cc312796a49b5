#!/usr/bin/env python3
"""Prints the sources whose code has changed since a commit, not only their comments, texts or line breaks.

usage: changed_code.py BASE [GIT_PATHSPEC...]
"""
import re
import subprocess
import sys

TOKEN = re.compile(r'(?P<raw>R"(\w*)\(.*?\)\2")|(?P<text>"(?:\\.|[^"\\\n])*")|(?P<letter>\'(?:\\.|[^\'\\\n])\')|(?P<comment>//[^\n]*)', re.S)


def code_of(source):
    def without(token):
        return "" if token["comment"] else token[0] if token["letter"] else '""'

    return re.sub(r'(?:"")+', '""', re.sub(r"\s+", "", TOKEN.sub(without, source)))


def git(*arguments):
    return subprocess.run(["git", *arguments], check=True, capture_output=True).stdout.decode(errors="replace")


def main(base, *paths):
    for line in git("diff", "--name-status", "--diff-filter=d", "--find-renames", base, "--", *paths).splitlines():
        status, *names = line.split("\t")
        now = open(names[-1], errors="replace").read()
        if status == "A" or code_of(now) != code_of(git("show", f"{base}:{names[0]}")):
            print(names[-1])


if __name__ == "__main__":
    main(*sys.argv[1:])
