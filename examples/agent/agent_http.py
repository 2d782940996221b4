"""The same agent without any dependency: requests are dictionaries, sent with `post`.

`miles.utils.http_utils` is Miles's own where Miles is installed, and a small stand-in elsewhere. Neither `abort` nor a return value is
needed: without them, what is still going on when the rollout has enough samples drains and is then cancelled.
"""

import json
import re

from miles.utils.http_utils import post

MAX_TURNS = 6
SYSTEM = "You solve word problems. Use the calculator for every calculation. Give the final answer in \\boxed{}."
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "calculator",
            "description": "Evaluates one operation on two numbers, for example 12*3.",
            "parameters": {
                "type": "object",
                "properties": {"expression": {"type": "string"}},
                "required": ["expression"],
            },
        },
    }
]


async def run_agent(base_url, prompt, request_kwargs=None):
    """Solves one problem. `base_url` already names the session: only the path of the API is appended."""
    messages = [{"role": "system", "content": SYSTEM}, *prompt]
    for _ in range(MAX_TURNS):
        payload = {"model": "default", "messages": messages, "tools": TOOLS, **(request_kwargs or {})}
        reply = await post(f"{base_url}/v1/chat/completions", payload)
        message = reply["choices"][0]["message"]
        calls = message.get("tool_calls")
        if not calls:
            return
        messages.append({"role": "assistant", "content": message.get("content") or "", "tool_calls": calls})
        for call in calls:
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": calculate(call["function"])})


def calculate(function):
    """The answer of the tool; what cannot be calculated is told to the model."""
    try:
        expression = json.loads(function["arguments"])["expression"]
    except (KeyError, TypeError, ValueError):
        return 'error: the arguments are {"expression": "..."}'
    number = r"\s*(-?\d+(?:\.\d+)?)\s*"
    match = re.fullmatch(number + r"([-+*/])" + number, str(expression)[:100])
    if not match:
        return "error: write one operation on two numbers, for example 12*3"
    left, sign, right = float(match[1]), match[2], float(match[3])
    if sign == "/" and right == 0:
        return "error: division by zero"
    value = {"+": left + right, "-": left - right, "*": left * right, "/": left / (right or 1)}[sign]
    return str(int(value) if value.is_integer() else value)
