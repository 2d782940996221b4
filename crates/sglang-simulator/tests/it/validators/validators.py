"""Writes verdicts.json: what the validators of SGLang 0.5.23 say to the bodies of bodies.jsonl.

They are called as the server calls them, without a server: pydantic, the schema of /generate, the normalization of a request, and the
checks of its sampling parameters. A verdict is a status with, for a 400, the problems that are found or the one text.

usage: LD_LIBRARY_PATH=ENGINE/stublibs ENGINE/venv/bin/python validators.py     ENGINE: first line of tests/sglang/install.sh
"""

import json
import pathlib

from pydantic import TypeAdapter, ValidationError
from sglang.srt.entrypoints.api_contract import generate_contract_error
from sglang.srt.entrypoints.openai.protocol import ChatCompletionRequest, CompletionRequest
from sglang.srt.entrypoints.openai.serving_completions import OpenAIServingCompletion
from sglang.srt.managers.io_struct import GenerateReqInput
from sglang.srt.sampling.sampling_params import SamplingParams

HERE = pathlib.Path(__file__).parent
VOCABULARY = 1024
# Problems beyond it enumerate the kinds of content; their words are not simulated.
LONGEST = 600
MODELS = {
    "/generate": TypeAdapter(GenerateReqInput),
    "/v1/chat/completions": TypeAdapter(ChatCompletionRequest),
    "/v1/completions": TypeAdapter(CompletionRequest),
}


class Letters:
    """A tokenizer that knows letters only."""

    def encode(self, text, add_special_tokens=False):
        return list(text)


def problems(error):
    """As FastAPI lists them."""
    listed = []
    for problem in error.errors(include_url=False):
        problem["loc"] = ("body", *problem["loc"])
        listed.append(repr(problem))
    return [problem for problem in listed if len(problem) <= LONGEST]


def check_params(params):
    params = SamplingParams(**params)
    params.normalize(Letters())
    params.verify(VOCABULARY)


def check_generate(request, body):
    violation = generate_contract_error(body)
    if violation is not None:
        return {"status": 400, "schema": violation}
    request.normalize_batch_and_arguments()
    params = request.sampling_params
    for one in params if isinstance(params, list) else [params]:
        check_params(one)
    if not request.is_single:
        # where lists are too short
        _ = [request[index] for index in range(len(request.rid))]
    return {"status": 200}


def check_chat(request, _):
    stop = request.stop
    check_params(request.to_sampling_params([] if stop is None else stop, {}, None))
    return {"status": 200}


def check_completion(request, _):
    serving = OpenAIServingCompletion.__new__(OpenAIServingCompletion)
    refused = serving._validate_request(request)
    if refused is not None:
        return {"status": 400, "text": refused}
    check_params(serving._build_sampling_params(request))
    return {"status": 200}


CHECKS = {
    "/generate": check_generate,
    "/v1/chat/completions": check_chat,
    "/v1/completions": check_completion,
}


def verdict(path, body):
    # validation changes the body
    copy = json.loads(json.dumps(body))
    try:
        request = MODELS[path].validate_python(copy, from_attributes=True)
        return CHECKS[path](request, json.loads(json.dumps(body)))
    except ValidationError as error:
        return {"status": 400, "problems": problems(error)}
    except ValueError as error:
        return {"status": 400, "text": str(error)}
    except Exception as error:
        return {"status": 500, "text": str(error)}


verdicts = []
for line in (HERE / "bodies.jsonl").read_text().splitlines():
    case = json.loads(line)
    verdicts.append({**case, "verdict": verdict(case["path"], case["body"])})
lines = ",\n".join(json.dumps(case, ensure_ascii=False) for case in verdicts)
(HERE / "verdicts.json").write_text(f"[\n{lines}\n]\n")
