#!/usr/bin/env python3
"""Makes renders.json: what the real jinja2, set up as transformers 5 sets it up, makes of templates and messages.

    python3 -m venv venv && venv/bin/pip install jinja2==3.1.6
    venv/bin/python tests/it/renders.py

Messages are written as a template sees them, so that the normalization before it has nothing to do.
"""

import json
from datetime import datetime, timezone
from pathlib import Path

import jinja2
import jinja2.ext
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment

HERE = Path(__file__).resolve().parent
NOW = datetime(2024, 7, 26, 9, 5, 3, tzinfo=timezone.utc)
TOKENS = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}


class Generation(Extension):
    """The block that marks the assistant's tokens; renders as its content."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_content"), [], [], body).set_lineno(line)

    def _content(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


environment = ImmutableSandboxedEnvironment(
    trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
)
environment.filters["tojson"] = tojson
environment.globals["raise_exception"] = raise_exception
environment.globals["strftime_now"] = NOW.strftime

SYSTEM = {"role": "system", "content": "Be brief."}
USER = {"role": "user", "content": "What is 3 + 4? <b> & 'c' \"d\" é 😀\n"}
CALL = {"id": "call_0", "type": "function", "function": {"name": "calculator", "arguments": {"expression": "3 + 4", "b": [1, 2.0, None, True], "a": {}}}}
ASSISTANT = {"role": "assistant", "content": "7"}
THINKING = {"role": "assistant", "content": "<think>\nthree and four\n</think>\n\n7"}
REASONED = {"role": "assistant", "content": "7", "reasoning_content": "\nthree and four\n"}
CALLING = {"role": "assistant", "content": "", "tool_calls": [CALL, CALL]}
CALLING_WITH_TEXT = {"role": "assistant", "content": "Let me see.", "tool_calls": [CALL]}
TOOL = {"role": "tool", "content": "7", "tool_call_id": "call_0"}
AGAIN = {"role": "user", "content": "  And 5?  "}
TOOLS = [
    {"type": "function", "function": {"description": "é&", "name": "f<>", "parameters": {"b": 1, "a": 2}, "strict": False}, "defer_loading": None},
    {"type": "function", "function": {"name": "calculator", "description": None, "parameters": {"type": "object", "properties": {"expression": {"type": "string"}}, "required": ["expression"]}}},
]

CONVERSATIONS = {
    "nothing": [],
    "user": [USER],
    "system": [SYSTEM, USER],
    "two turns": [USER, ASSISTANT, AGAIN],
    "thoughts": [SYSTEM, USER, THINKING, AGAIN, THINKING],
    "reasoning": [USER, REASONED, AGAIN, REASONED, TOOL],
    "calls": [SYSTEM, USER, CALLING, TOOL, TOOL, CALLING_WITH_TEXT, TOOL, ASSISTANT, AGAIN],
    "developer": [USER, {"role": "developer", "content": "No jokes."}, AGAIN],
    "unknown role": [{"role": "judge", "content": "Order!"}],
}

# Templates that use what templates of public models use. One idea each, named.
FEATURES = {
    "trimmed and stripped blocks": "A\n  {% if true %}\n    B\n  {% endif %}\nC {# gone #}\n  {# gone too #}\nD\n",
    "one trailing newline is dropped": "x\n\n",
    "white space control": "a  {%- if true -%}  b  {%- endif +%}  c  {{- ' d ' -}}  e",
    "tojson escapes nothing": "{{ messages | tojson }}",
    "tojson with indent": "{{ tools | tojson(indent=4) }}",
    "tojson with indent and separators": "{{ tools | tojson(indent=2, separators=(',', ':')) }}",
    "tojson with separators": "{{ tools | tojson(separators=(',', ':')) }}",
    "tojson in ascii": "{{ messages | tojson(ensure_ascii=True) }}",
    "tojson by position": "{{ messages | tojson(true, 1) }}",
    "tojson sorted": "{{ tools | tojson(sort_keys=true) }}",
    "tojson of empty things": "{{ [] | tojson }}{{ {} | tojson }}{{ '' | tojson }}{{ [[], {}] | tojson(indent=1) }}",
    "tojson of numbers": "{{ [0, -1, 1.0, 0.1, 1e16, 1e15, 1e-5, 0.0001, 123456789012345678, 1e300, -0.0, 2.5e-10] | tojson }}",
    "tojson of a text": "{{ '<a href=\"x\">\\n\\t\\\\ \x7f é' | tojson }}",
    "tojson of a tuple and odd keys": "{{ (1, 'a') | tojson }}{{ {1: 2, none: 3, true: 4} | tojson }}",
    "printing values": "{{ none }} {{ true }} {{ false }} {{ 1.0 }} {{ [1, 'a', none, true] }} {{ {'a': 1, 'b': [1.5]} }} {{ (1,) }} {{ 'x' }}",
    "printing undefined": "[{{ nothing }}][{{ messages[0].nothing }}][{{ nothing | default('d') }}]",
    "tests": "{{ none is none }}{{ nothing is defined }}{{ 'a' is string }}{{ [] is iterable }}{{ {} is mapping }}{{ [] is sequence }}{{ 1 is number }}{{ true is boolean }}{{ true is true }}{{ 'a' is not none }}{{ 2 is even }}{{ 3 is divisibleby 3 }}",
    "python methods": "{{ ' a b '.strip() }}|{{ 'xxaxx'.strip('x') }}|{{ '\\n\\na\\n'.lstrip('\\n') }}|{{ 'a\\n'.rstrip('\\n') }}|{{ 'a,b,c'.split(',') }}|{{ 'a,b,c'.split(',', 1) }}|{{ 'a b  c'.split() }}|{{ 'abc'.startswith('ab') }}|{{ 'abc'.endswith(('x', 'c')) }}|{{ 'aXa'.replace('a', 'b') }}|{{ 'abc'.upper() }}|{{ 'ABC'.lower() }}|{{ 'abc'.title() }}|{{ 'abc'.find('c') }}|{{ ', '.join(['a', 'b']) }}|{{ 'ab'.capitalize() }}",
    "more python methods": "{{ 'prefix-x'.removeprefix('prefix-') }}|{{ 'x.md'.removesuffix('.md') }}|{{ 'a=b=c'.partition('=') }}|{{ 'a=b=c'.rpartition('=') }}|{{ 'a/b/c'.rsplit('/', 1) }}|{{ 'a'.partition('=') }}",
    "dict methods": "{% for k, v in {'a': 1, 'b': 2}.items() %}{{ k }}={{ v }};{% endfor %}{{ {'a': 1}.get('a') }}{{ {'a': 1}.get('z', 'none') }}{{ {'a': 1}.keys() | list }}{{ {'a': 1}.values() | list }}",
    "slices": "{{ messages[::-1] | map(attribute='role') | join(',') }}|{{ messages[1:] | length }}|{{ messages[-1].role }}|{{ 'abcdef'[1:4] }}|{{ 'abcdef'[::-1] }}|{{ [1, 2, 3][:-1] }}|{{ messages[:1][0].role }}",
    "namespace": "{% set ns = namespace(n=0, found=false) %}{% for m in messages %}{% if m.role == 'user' and not ns.found %}{% set ns.n = loop.index0 %}{% set ns.found = true %}{% endif %}{% endfor %}{{ ns.n }} {{ ns.found }}",
    "a set in a loop stays in the loop": "{% set x = 1 %}{% for i in [1, 2] %}{% set x = 5 %}{% endfor %}{{ x }}{% if true %}{% set x = 7 %}{% endif %}{{ x }}",
    "loop variables": "{% for m in messages %}{{ loop.index }}/{{ loop.length }}{{ 'F' if loop.first }}{{ 'L' if loop.last }}{{ loop.revindex0 }}{{ loop.previtem.role if loop.previtem is defined else '-' }}{{ loop.nextitem.role if loop.nextitem is defined else '-' }};{% endfor %}",
    "break and continue": "{% for i in range(10) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 4 %}{% break %}{% endif %}{{ i }}{% endfor %}",
    "loop else and filter": "{% for i in [] %}x{% else %}empty{% endfor %}{% for i in [1, 2, 3, 4] if i % 2 == 0 %}{{ i }}{% endfor %}",
    "macro": "{% macro turn(role, text='-', end=true) -%}<{{ role }}>{{ text }}{% if end %}</{{ role }}>{% endif %}{%- endmacro %}{{ turn('user', 'hi') }}{{ turn('bot', end=false) }}",
    "call block": "{% macro box() %}[{{ caller() }}]{% endmacro %}{% call box() %}x{% endcall %}",
    "generation": "{% for m in messages %}\n{%- if m.role == 'assistant' %}\n  {% generation %}\n{{ m.content }}\n  {%- endgeneration -%}\n{% else %}({{ m.content }}){% endif %}{% endfor %}",
    "selectattr and friends": "{{ messages | selectattr('role', 'equalto', 'user') | list | length }}{{ messages | rejectattr('role', 'equalto', 'user') | list | length }}{{ messages | map(attribute='content') | map('trim') | list | length }}{{ [3, 1, 2] | sort | join }}{{ ['a', 'b'] | first }}{{ ['a', 'b'] | last }}{{ 'a' | upper }}{{ [1, [2]] | length }}{{ {'b': 1, 'a': 2} | dictsort }}",
    "in and not in": "{{ 'a' in 'abc' }}{{ 'role' in messages[0] }}{{ 'x' not in ['y'] }}{{ 1 in [1, 2] }}",
    "arithmetic": "{{ 7 // 2 }} {{ 7 / 2 }} {{ 7 % 3 }} {{ 2 ** 3 }} {{ -7 // 2 }} {{ 1 + 1.5 }} {{ 'a' * 3 }} {{ 'a' ~ 1 ~ none ~ true }} {{ [1] + [2] }} {{ 4 / 2 }}",
    "conditions": "{{ 'a' if messages else 'b' }}{{ '' or 'x' }}{{ 0 and 1 }}{{ not [] }}{{ (1 > 0) == true }}{{ 'a' < 'b' }}{{ none or 'y' }}",
    "the date": "{{ strftime_now('%d %b %Y') }}{% if strftime_now is defined %} {{ strftime_now('%Y-%m-%d %H:%M') }}{% endif %}",
    "tokens by name": "{{ eos_token }}{{ pad_token }}[{{ bos_token }}]",
    "raise": "{% if messages[0].role != 'system' %}{{ raise_exception('system first: ' + messages[0].role) }}{% endif %}",
    "raise in a macro": "{% macro check(m) %}{% if true %}{{ raise_exception('bad') }}{% endif %}{% endmacro %}{{ check(1) }}",
    "adding text to nothing fails": "{{ 'a' + nothing }}",
    "attribute of undefined fails": "{{ nothing.more }}",
    "tojson of undefined fails": "{{ nothing | tojson }}",
    "raw": "{% raw %}{{ not rendered }}{% endraw %}",
    "set block": "{% set text %}a{{ 1 + 1 }}b{% endset %}{{ text | length }}{{ text }}",
    "string escapes": "{{ 'a\\nb\\'c\\\\d' }}{{ \"x\\ty\" }}",
    "filter block and indent": "{% filter upper %}abc{% endfilter %}|{{ 'a\\nb' | indent(2) }}|{{ 'a\\nb' | indent(2, true) }}|{{ ' x ' | trim }}|{{ 'abc' | replace('b', 'x') }}",
    "string conversions": "{{ 5 | string + 'x' }}{{ '7' | int + 1 }}{{ '1.5' | float }}{{ [1, 2] | string }}{{ true | string }}{{ none | string }}",
    "unique, batch, items": "{{ [1, 1, 2] | unique | list }}{% for k, v in {'a': 1} | items %}{{ k }}{{ v }}{% endfor %}",
    "with": "{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}",
    "format": "{{ '%s is %d' | format('x', 3) }}{{ '{} and {}'.format('a', 1) }}",
    "printing a float from 1e16 up": "{{ 1e20 }}",
    "the percent operator on a text": "{{ '%05.1f' % 3.14159 }}",
}


def render(source, messages, tools, add_generation_prompt, kwargs):
    try:
        text = environment.from_string(source).render(
            **{**TOKENS, **kwargs, "messages": messages, "tools": tools, "documents": None, "add_generation_prompt": add_generation_prompt}
        )
        return {"text": text}
    except jinja2.exceptions.TemplateError as error:
        if type(error) is jinja2.exceptions.TemplateError:
            return {"refused": str(error)}
        return {"failed": type(error).__name__}
    except TypeError as error:
        return {"failed": type(error).__name__}


def case(name, template, messages, tools=None, add_generation_prompt=False, kwargs=None):
    kwargs = kwargs or {}
    source = template or (HERE / "../../assets/builtin/chat_template.jinja").read_text(encoding="utf-8")
    return {
        "name": name,
        "template": template,
        "messages": messages,
        "tools": tools,
        "add_generation_prompt": add_generation_prompt,
        "kwargs": kwargs,
        "expected": render(source, messages, tools, add_generation_prompt, kwargs),
    }


cases = []
for name, messages in CONVERSATIONS.items():
    for tools in (None, TOOLS):
        for kwargs in ({}, {"enable_thinking": False}, {"strip_earlier_reasoning": True}):
            for prompt in (False, True):
                title = f"{name}, {'tools' if tools else 'no tools'}, {json.dumps(kwargs)}, prompt {prompt}"
                cases.append(case(title, None, messages, tools, prompt, kwargs))
for name, template in FEATURES.items():
    cases.append(case(name, template, CONVERSATIONS["calls"][:4], TOOLS, True))
lines = ",\n".join(json.dumps(entry, ensure_ascii=False) for entry in cases)
(HERE / "renders.json").write_text(f"[\n{lines}\n]\n", encoding="utf-8")
print(len(cases), "renders")
