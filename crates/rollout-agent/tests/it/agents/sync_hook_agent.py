import asyncio

from miles.utils.http_utils import post


async def run(base_url, prompt):
    await post(f"{base_url}/v1/chat/completions", {"messages": prompt})
    await asyncio.Event().wait()


def abort(args):
    assert args.rollout_id == 3


async def run_named(base_url, prompt):
    global abort

    def abort(args):
        assert args.reason == "the agent pod ends"

    await run(base_url, prompt)
