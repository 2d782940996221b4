"""Encodes the rendered conversations with the tokenizers of transformers.

usage: encode.py TOKENIZERS RENDERS OUTPUT

TOKENIZERS has a folder for each tokenizer. Writes OUTPUT/<tokenizer>.ids: a line of ids for each render that is a text.
"""

import json
import os
import sys
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

from tokenizers import Tokenizer
from transformers import AutoTokenizer


def main():
    tokenizers, renders, output = map(Path, sys.argv[1:4])
    output.mkdir(parents=True, exist_ok=True)
    for line in (Path(__file__).parent / "tokenizers.txt").read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        name, template, *library = line.split()
        tokenizer = AutoTokenizer.from_pretrained(tokenizers / name)
        with open(renders / f"{template}.jsonl", encoding="utf-8") as file:
            texts = [one["text"] for one in map(json.loads, file) if "text" in one]
        ids = [tokenizer.encode(text, add_special_tokens=False) for text in texts]
        if library == ["tokenizers"]:
            own = Tokenizer.from_file(str(tokenizers / name / "tokenizer.json"))
            own_ids = [own.encode(text, add_special_tokens=False).ids for text in texts]
            if own_ids == ids:
                sys.exit(f"{name}: transformers encodes as tokenizer.json says by now: strike the exception from tokenizers.txt")
            ids = own_ids
        with open(output / f"{name}.ids", "w") as file:
            file.writelines(" ".join(map(str, one)) + "\n" for one in ids)
        print(f"{name}: {len(texts)} texts", file=sys.stderr)


if __name__ == "__main__":
    main()
