#!/usr/bin/env python3
"""Makes builtin/tokenizer.json, tokenizer_config.json and generation_config.json out of corpus.txt.

    python3 -m venv venv && venv/bin/pip install tokenizers==0.23.2
    venv/bin/python assets/build.py

A byte-level BPE of 1024 ids: 256 bytes, merges, then the ChatML tokens at the end. The same input gives the same files.
"""

import json
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

VOCABULARY = 1024
# Skipped by decode(skip_special) like in the ChatML models; the markup of thoughts and tools is text.
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MARKUP = ["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>"]
# A digit, a word with the space before it, punctuation with the line breaks after it, white space.
PATTERN = r"\p{N}| ?\p{L}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+(?!\S)|\s+"

here = Path(__file__).resolve().parent
out = here / "builtin"


def write(name, value):
    (out / name).write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
    [
        pre_tokenizers.Split(Regex(PATTERN), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ]
)
tokenizer.decoder = decoders.ByteLevel()
trainer = trainers.BpeTrainer(
    vocab_size=VOCABULARY - len(SPECIAL) - len(MARKUP),
    initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
    show_progress=False,
)
tokenizer.train_from_iterator((here / "corpus.txt").read_text(encoding="utf-8").splitlines(keepends=True), trainer)
for content in SPECIAL:
    tokenizer.add_special_tokens([AddedToken(content, special=True, normalized=False)])
for content in MARKUP:
    tokenizer.add_tokens([AddedToken(content, special=False, normalized=False)])
size = tokenizer.get_vocab_size(with_added_tokens=True)
if size != VOCABULARY:
    raise SystemExit(f"the vocabulary has {size} ids, not {VOCABULARY}: the corpus is too small")

out.mkdir(exist_ok=True)
tokenizer.save(str(out / "tokenizer.json"), pretty=False)
identity = {content: tokenizer.token_to_id(content) for content in SPECIAL + MARKUP}
write(
    "tokenizer_config.json",
    {
        "added_tokens_decoder": {
            str(token_id): {
                "content": content,
                "lstrip": False,
                "normalized": False,
                "rstrip": False,
                "single_word": False,
                "special": content in SPECIAL,
            }
            for content, token_id in identity.items()
        },
        "bos_token": None,
        "clean_up_tokenization_spaces": False,
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": None,
    },
)
write(
    "generation_config.json",
    {
        "eos_token_id": [identity["<|im_end|>"], identity["<|endoftext|>"]],
        "pad_token_id": identity["<|endoftext|>"],
    },
)
print(f"{size} ids, tokenizer.json has {(out / 'tokenizer.json').stat().st_size} bytes")
