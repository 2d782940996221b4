"""Renders the generated conversations with the real transformers and jinja2.

usage: render.py TEMPLATES OUTPUT COUNT

Writes OUTPUT/conversations.jsonl, and for each template OUTPUT/<name>.jsonl: one line per conversation, either {"text": ...} or
{"error": <class>, "message": ...}.
"""

import datetime
import json
import sys
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from transformers.utils import chat_template_utils as utils

import conversations

# The clock of templates that ask for the date; the comparison sets the same one.
NOW = datetime.datetime(2025, 3, 9, 8, 5, 7)


class Frozen(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return NOW


def rendered(template, conversation):
    conversation = json.loads(conversation)
    try:
        # The tokenizer's own method does the same: https://huggingface.co/docs/transformers/chat_templating
        texts, _ = utils.render_jinja_template(
            conversations=[conversation["messages"]],
            tools=conversation["tools"],
            documents=conversation["kwargs"].pop("documents", None),
            chat_template=template,
            add_generation_prompt=conversation["add_generation_prompt"],
            continue_final_message=conversation["continue_final_message"],
            **conversation["kwargs"],
        )
        return {"text": texts[0]}
    except Exception as error:
        return {"error": type(error).__name__, "message": str(error)}


def render_all(path, output, lines):
    utils.datetime = Frozen
    template = path.read_text(encoding="utf-8")
    with open(output / (path.stem + ".jsonl"), "w", encoding="utf-8", newline="\n") as file:
        for line in lines:
            file.write(json.dumps(rendered(template, line), ensure_ascii=False) + "\n")


def main():
    warnings.simplefilter("ignore")
    folder, output, count = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    output.mkdir(parents=True, exist_ok=True)
    lines = [conversations.dumped(one) for one in conversations.conversations(count)]
    (output / "conversations.jsonl").write_text("".join(line + "\n" for line in lines), encoding="utf-8", newline="\n")
    paths = sorted(folder.glob("*.jinja"))
    if not paths:
        sys.exit(f"no templates in {folder}")
    with ProcessPoolExecutor(2) as pool:
        list(pool.map(render_all, paths, [output] * len(paths), [lines] * len(paths)))
    print(f"{len(paths)} templates, {count} conversations each", file=sys.stderr)


if __name__ == "__main__":
    main()
