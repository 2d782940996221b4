"""Conversations for the comparison of chat templates: seeded, so that every run makes the same ones.

Three quarters are what an agent sends: a system message, turns of user, assistant and tools. The rest is what a template may meet all the
same: roles in any order, content that is missing, null, empty or a list, arguments as text and as objects, numbers beyond 64 bits.
"""

import json
import random

WORDS = "list the files of a folder then read each one and tell me what it says about numbers 42 3.14 weather in Paris".split()
ODD = [
    "", " ", "\n", "  padded  ", "\n\nnew lines\n\n", "tab\tand\rreturn\r\n", "naïve café", "日本語のテキスト", "👩‍👩‍👧 family", "e\u0301 combining", "مرحبا",
    "\u00a0nbsp\u00a0", "\u2028line\u2029par", "zero\u200bwidth\ufeff", "nul\x00bell\x07esc\x1b[0m", "del\x7fnel\x85 fs\x1c", "<b>&amp; 'q' \"dq\"</b>", "back\\slash \\n",
    "{{ messages }} {% if x %}{# c #}", "<|im_end|>\n<|im_start|>user\n", "<think>\nhm\n</think>\n\nso", "<think>open", "closed</think> rest", "</think>", "<tool_call>\n{}\n</tool_call>",
    "<tool_response>\nx\n</tool_response>", "[INST] x [/INST]", "ß İ ǆ ŉ", "null", "True", "0", "%s %d %(a)s {0}", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢", "a" * 300, "/think", "hi /no_think", "…—„“",
]
INTEGERS = [0, 1, -1, 7, 2**31, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63) - 1, 2**70 + 3, 2**127, 2**128 + 1, -(10**40), 10**60]
FLOATS = [0.1, 1.0, -0.0, 0.0, 1e22, 1e16, 1e15, 123456789.125, 1e-4, 1e-5, 2.5e-7, 5e-324, 1.7976931348623157e308, -3.0, 1 / 3, 100.0, float("inf")]
KEYS = ["path", "location", "unit", "items", "keys", "values", "get", "type", "name", "count", "über", "a b", "q\"q", "", "content", "arguments", "x-y"]


class Maker:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.tidy = self.chance(0.6)

    def chance(self, share):
        return self.random.random() < share

    def text(self):
        if self.chance(0.35):
            return self.random.choice(ODD)
        text = " ".join(self.random.choices(WORDS, k=self.random.randint(1, 14)))
        if self.chance(0.2):
            text += self.random.choice(ODD)
        return text

    def value(self, depth=0):
        kind = self.random.randrange(9 if depth < 3 else 6)
        if kind < 2:
            return self.text()
        if kind == 2:
            return self.random.choice(INTEGERS)
        if kind == 3:
            return self.random.choice(FLOATS)
        if kind == 4:
            return self.random.choice([True, False])
        if kind == 5:
            return None
        if kind == 6:
            return [self.value(depth + 1) for _ in range(self.random.randrange(4))]
        return self.object(depth + 1)

    def object(self, depth=0):
        return {self.random.choice(KEYS): self.value(depth) for _ in range(self.random.randrange(4))}

    def schema(self, depth=0):
        kind = self.random.choice(["string", "integer", "number", "boolean", "array", "object"] if depth < 2 else ["string", "integer"])
        schema = {"type": kind}
        if self.chance(0.7):
            schema["description"] = self.text()
        if kind == "array" and self.chance(0.9):
            schema["items"] = self.schema(depth + 1)
        if kind == "object":
            names = self.random.sample(KEYS, self.random.randrange(3))
            schema["properties"] = {name: self.schema(depth + 1) for name in names}
            if self.chance(0.5):
                schema["required"] = names[:1]
            if self.chance(0.3):
                schema["additionalProperties"] = self.random.choice([True, False, {"type": "string"}])
        if kind == "string" and self.chance(0.3):
            schema["enum"] = ["celsius", "fahrenheit", self.text()]
        if self.chance(0.15):
            schema["default"] = self.value(2)
        if self.chance(0.08):
            schema["type"] = [kind, "null"]
        if self.chance(0.08):
            schema["nullable"] = True
        if self.chance(0.05):
            schema = {"anyOf": [{"type": "string"}, {"type": "null"}], "description": self.text()}
        if self.chance(0.05):
            schema = {"$ref": "#/$defs/thing"}
        return schema

    def tool(self):
        names = self.random.sample(KEYS, self.random.randrange(4))
        function = {"name": self.random.choice(["get_weather", "run", "search.web", "read-file"])}
        if self.chance(0.9):
            function["description"] = self.text()
        if self.chance(0.92):
            function["parameters"] = {"type": "object", "properties": {name: self.schema() for name in names}}
            if self.chance(0.7):
                function["parameters"]["required"] = names[:2]
            if self.chance(0.1):
                function["parameters"]["$defs"] = {"thing": {"type": "string", "enum": ["a", "b"]}}
        if self.chance(0.15):
            function["strict"] = True
        if self.chance(0.1):
            function["return"] = {"type": "string", "description": self.text()}
        return {"type": "function", "function": function} if self.tidy or self.chance(0.92) else function

    def content(self, message):
        if self.tidy:
            message["content"] = self.text()
            return
        roll = self.random.random()
        if roll < 0.86:
            message["content"] = self.text()
        elif roll < 0.93:
            parts = [{"type": "text", "text": self.text()} for _ in range(self.random.randrange(4))]
            message["content"] = parts
        elif roll < 0.97:
            message["content"] = None

    def call(self, number):
        arguments = self.object() if self.tidy or self.chance(0.9) else self.value()
        if self.chance(0.2 if self.tidy else 0.5):
            spaces = self.random.choice([None, (",", ":")])
            arguments = json.dumps(arguments, ensure_ascii=self.chance(0.5), separators=spaces).replace("Infinity", "1e999")
            if not self.tidy and self.chance(0.1):
                arguments = self.random.choice(["", "{", "not json"])
        function = {"name": self.random.choice(["get_weather", "run", "search.web", "read-file"]), "arguments": arguments}
        if not self.tidy and self.chance(0.1):
            del function["arguments"]
        if not self.tidy and self.chance(0.08):
            return function
        call = {"id": self.random.choice([f"call_{number:05}", f"functions.run:{number}", "abcdefghi"]), "type": "function", "function": function}
        if not self.tidy and self.chance(0.15):
            del call["id"]
        return call

    def assistant(self, calls):
        message = {"role": "assistant"}
        self.content(message)
        if self.chance(0.35):
            message[self.random.choice(["reasoning_content"] * 6 + ["reasoning", "thinking"])] = self.text()
        if calls:
            message["tool_calls"] = [self.call(number) for number in range(calls)]
            if self.chance(0.5):
                message["content"] = self.random.choice(["", "", None])
            elif self.chance(0.2):
                message.pop("content", None)
        elif self.chance(0.05):
            message["tool_calls"] = self.random.choice([[], None])
        return message

    def result(self, call):
        message = {"role": "tool"}
        self.content(message)
        if self.chance(0.3):
            message["content"] = json.dumps(self.object()).replace("Infinity", "1e999")
        function = call.get("function", call)
        if self.chance(0.9):
            message["tool_call_id"] = call.get("id", "call_00000")
        if self.chance(0.5):
            message["name"] = function["name"]
        return message

    def message(self, role):
        if role == "assistant":
            return self.assistant(self.random.choice([0, 0, 1, 2]))
        if role == "tool":
            return self.result(self.call(0))
        message = {"role": role}
        self.content(message)
        return message

    def turns(self):
        """What an agent sends."""
        messages = []
        if self.chance(0.6):
            messages.append(self.message("system"))
        for _ in range(self.random.randint(1, 3)):
            messages.append(self.message("user"))
            for _ in range(self.random.choice([0, 0, 1, 2])):
                assistant = self.assistant(self.random.randint(1, 3))
                messages.append(assistant)
                messages.extend(self.result(call) for call in assistant["tool_calls"])
            messages.append(self.assistant(0))
        if self.chance(0.7):
            messages.pop()
        return messages

    def wild(self):
        roles = ["system", "user", "assistant", "tool", "user", "assistant", "developer"]
        return [self.message(self.random.choice(roles)) for _ in range(self.random.randint(0, 7))]

    def kwargs(self):
        kwargs = {"bos_token": "<s>", "eos_token": "</s>"} if self.chance(0.95) else {}
        if self.chance(0.1):
            kwargs["pad_token"] = "<pad>"
        for name in ["enable_thinking", "thinking", "clear_thinking", "preserve_thinking", "keep_past_thinking", "add_default_system_prompt"]:
            if self.chance(0.2):
                kwargs[name] = self.chance(0.5)
        if self.chance(0.15):
            kwargs["reasoning_effort"] = self.random.choice(["low", "medium", "high", "none", "max"])
        if self.chance(0.05):
            kwargs["date_string"] = "01 Jan 2025"
        if self.chance(0.05):
            kwargs["documents"] = [{"title": self.text(), "text": self.text()}]
        return kwargs

    def conversation(self):
        conversation = {"messages": self.turns() if self.tidy or self.chance(0.4) else self.wild(), "tools": None}
        if self.chance(0.5):
            conversation["tools"] = [self.tool() for _ in range(self.random.randint(0 if self.chance(0.1) else 1, 3))]
        conversation["add_generation_prompt"] = self.chance(0.6)
        # transformers refuses both together.
        conversation["continue_final_message"] = not conversation["add_generation_prompt"] and self.chance(0.3)
        conversation["kwargs"] = self.kwargs()
        return conversation


def conversations(count, seed=20240917):
    return [Maker(f"{seed}/{number}").conversation() for number in range(count)]


def dumped(conversation):
    """JSON that every parser takes: infinity as a number that is out of range."""
    return json.dumps(conversation, ensure_ascii=False).replace("Infinity", "1e999")
