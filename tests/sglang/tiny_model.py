#!/usr/bin/env python3
"""Writes a model directory: a two-layer Qwen2 with random weights, and the project's built-in tokenizer and chat template.

usage: tiny_model.py TOKENIZER_DIR OUT_DIR

The same files every time: the weights come from a fixed seed. What it says makes no sense; that it has the ids of the simulated
engine is what matters.
"""

import json
import shutil
import sys
from pathlib import Path

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

tokenizer, out = Path(sys.argv[1]), Path(sys.argv[2])
ends = json.loads((tokenizer / "generation_config.json").read_text())
vocabulary = json.loads((tokenizer / "tokenizer.json").read_text())
size = 1 + max([*vocabulary["model"]["vocab"].values(), *(token["id"] for token in vocabulary["added_tokens"])])

torch.manual_seed(0)
config = Qwen2Config(
    vocab_size=size,
    hidden_size=64,
    intermediate_size=128,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=4096,
    tie_word_embeddings=True,
    eos_token_id=ends["eos_token_id"],
    bos_token_id=None,
    pad_token_id=ends["pad_token_id"],
    dtype="float32",
)
Qwen2ForCausalLM(config).to(torch.float32).save_pretrained(out)
for file in sorted(tokenizer.iterdir()):
    shutil.copyfile(file, out / file.name)
print(f"a model of {size} ids in {out}")
