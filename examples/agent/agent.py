"""An agent with a calculator: it talks to its session through the OpenAI client, as any agent would.

`run` is called once per sample. `base_url` is the session's own address; whatever goes through it is recorded there, and training
samples are made of it. `abort` is called once per process when the rollout has enough samples: it ends what is still going on.
"""

import ast
import asyncio
import functools
import inspect
import json
import operator
import time

import openai

MAX_TURNS = 6
TRIES = 10
TRY_AGAIN_SECONDS = 1.0
SYSTEM = "You solve word problems. Use the calculator for every calculation. Give the final answer in \\boxed{}."
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "calculator",
            "description": "Evaluates an arithmetic expression with + - * / ** and parentheses.",
            "parameters": {
                "type": "object",
                "properties": {"expression": {"type": "string", "description": "For example (12+30)*2"}},
                "required": ["expression"],
            },
        },
    }
]

# Trials of this process by the address of their session; several run at once in one event loop.
_trials = {}


async def run(base_url, prompt, request_kwargs=None, metadata=None):
    """Solves one problem and says how it went."""
    trial = _trials[base_url] = Trial()
    try:
        async with openai.AsyncOpenAI(base_url=f"{base_url}/v1", api_key="unused", timeout=600, max_retries=0) as client:
            exit_status = await _solve(trial, client, prompt, request_kwargs or {})
    except Stopped as stopped:
        exit_status = f"aborted: {stopped}"
    finally:
        del _trials[base_url]
    metrics = {"turns": trial.turns, "tool_calls": trial.tool_calls, "total_tool_time": trial.tool_seconds}
    return {"exit_status": exit_status, "agent_metrics": metrics}


async def abort(args):
    """Ends the trials of the sessions that `args` names, or all: they return at once with what they have."""
    wanted = getattr(args, "session_ids", None)
    trials = [
        trial
        for base_url, trial in list(_trials.items())
        if wanted is None or base_url.rsplit("/", 1)[-1] in wanted
    ]
    told = {name: getattr(args, name, None) for name in ("rollout_id", "session_server_instance_id")}
    print(f"abort: told {json.dumps(told)}; {len(trials)} of {len(_trials)} trials end", flush=True)
    for trial in trials:
        trial.stop("the rollout has enough samples")


async def _solve(trial, client, prompt, request_kwargs):
    # The client knows the fields of OpenAI; those of SGLang go into the body as they are.
    known = inspect.signature(client.chat.completions.create).parameters
    options = {name: value for name, value in request_kwargs.items() if name in known}
    extra = {name: value for name, value in request_kwargs.items() if name not in known}
    messages = [{"role": "system", "content": SYSTEM}, *prompt]
    for _ in range(MAX_TURNS):
        ask = functools.partial(
            client.chat.completions.create, model="default", messages=messages, tools=TOOLS, extra_body=extra, **options
        )
        choice = (await _patiently(trial, ask)).choices[0]
        trial.turns += 1
        if choice.finish_reason == "abort":
            continue  # the engine broke off: half an answer is none, ask again
        messages.append(_as_sent(choice.message))
        if choice.finish_reason == "length":
            return "length"
        if not choice.message.tool_calls:
            return "answered"
        for call in choice.message.tool_calls:
            messages.append({"role": "tool", "tool_call_id": call.id, "content": trial.use_tool(call.function)})
    return "turn_limit"


async def _patiently(trial, ask):
    """Asks until there is an answer. Like most agents this one cannot tell a refusal for now from one for good, so it waits and
    tries again: a closed rollout ends it through `abort`, not through the refusals."""
    for _ in range(TRIES - 1):
        try:
            return await trial.wait_for(ask())
        except (openai.BadRequestError, openai.NotFoundError):
            raise
        except openai.APIError as error:
            print(f"{type(error).__name__}: {error}; trying again", flush=True)
        await trial.wait_for(asyncio.sleep(TRY_AGAIN_SECONDS))
    return await trial.wait_for(ask())


def _as_sent(message):
    """The model's message for the next request. It must say what the model said, or the next prompt does not continue this one."""
    sent = {"role": "assistant", "content": message.content or ""}
    if message.tool_calls:
        sent["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.function.name, "arguments": call.function.arguments},
            }
            for call in message.tool_calls
        ]
    if reasoning := getattr(message, "reasoning_content", None):
        sent["reasoning_content"] = reasoning
    return sent


class Stopped(Exception):
    """The trial was ended from outside."""


class Trial:
    """What one call of `run` has going on."""

    def __init__(self):
        self.turns = 0
        self.tool_calls = 0
        self.tool_seconds = 0.0
        self._request = None
        self._stopped = None

    async def wait_for(self, request):
        """Waits for a request, unless the trial is stopped meanwhile."""
        self._request = asyncio.ensure_future(request)
        if self._stopped:
            self._request.cancel()
        try:
            return await self._request
        except asyncio.CancelledError:
            self._request.cancel()
            if self._stopped:
                raise Stopped(self._stopped) from None
            raise

    def stop(self, reason):
        """Cancels the request under way, and every later one."""
        self._stopped = reason
        if self._request is not None:
            self._request.cancel()

    def use_tool(self, function):
        """The answer of a tool. A call that makes no sense gets an answer that says so: the model may try again."""
        self.tool_calls += 1
        started = time.monotonic()
        try:
            if function.name != "calculator":
                return f"error: there is no tool {function.name!r}, only calculator"
            return str(calculate(json.loads(function.arguments)["expression"]))
        except (ArithmeticError, KeyError, SyntaxError, TypeError, ValueError, RecursionError) as error:
            return f"error: {type(error).__name__}: {error}"
        finally:
            self.tool_seconds += time.monotonic() - started


_OPERATIONS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}


def calculate(expression):
    """The value of an arithmetic expression. Nothing else is evaluated: the text comes from a model."""
    if len(expression) > 200:
        raise ValueError("the expression is longer than 200 characters")
    value = _value(ast.parse(expression, mode="eval").body)
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _value(node):
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return node.value
    if isinstance(node, ast.UnaryOp) and type(node.op) in _OPERATIONS:
        return _OPERATIONS[type(node.op)](_value(node.operand))
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
        left, right = _value(node.left), _value(node.right)
        if isinstance(node.op, ast.Pow) and (abs(left) > 1000 or abs(right) > 20):
            raise ValueError("the power is too large")
        return _OPERATIONS[type(node.op)](left, right)
    raise ValueError("only numbers, + - * / ** and parentheses can be calculated")
