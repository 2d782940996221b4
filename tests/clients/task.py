"""A task of three turns: two calls at once, one call, an answer."""

import json

SCRIPT = r"""
- match: '(?s)(?<said>.*)'
  role: tool
  afterTurns: 2
  reply: {content: 'It costs $said.'}
- match: '.*'
  role: tool
  afterTurns: 1
  reply: {tool_calls: [{name: calculator, arguments: {expression: '15+14'}}]}
- match: '(?<pears>[0-9]+) pears and (?<plums>[0-9]+) plums'
  role: user
  reply:
    content: I work it out.
    tool_calls:
      - {name: calculator, arguments: {expression: '$pears*3'}}
      - {name: calculator, arguments: {expression: '$plums*2'}}
- match: 'at length'
  reply: {content: 'word by word, for so long that somebody has to end it'}
"""

QUESTION = "What do 5 pears and 7 plums cost?"
ANSWER = "It costs 29."
TURNS = 3

TOOL = {
    "type": "function",
    "function": {
        "name": "calculator",
        "description": "Calculates.",
        "parameters": {"type": "object", "properties": {"expression": {"type": "string"}}, "required": ["expression"]},
    },
}

_KNOWN = {"5*3": "15", "7*2": "14", "15+14": "29"}


def calculator(arguments):
    """The tool. `arguments` is an object or its JSON."""
    if isinstance(arguments, str):
        arguments = json.loads(arguments)
    return _KNOWN[arguments["expression"]]
