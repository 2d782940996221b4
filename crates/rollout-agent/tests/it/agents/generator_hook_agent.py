import asyncio

from miles.utils.http_utils import post


async def _run(base_url, prompt):
    await post(f"{base_url}/v1/chat/completions", {"messages": prompt})
    await asyncio.Event().wait()


async def run_async(base_url, prompt):
    global abort

    async def abort(args):
        raise AssertionError("nobody iterates")
        yield

    await _run(base_url, prompt)


async def run_sync(base_url, prompt):
    global abort

    def abort(args):
        raise AssertionError("nobody iterates")
        yield

    await _run(base_url, prompt)


async def run_forgotten(base_url, prompt):
    global abort

    async def end(args):
        raise AssertionError("nobody awaits")

    async def abort(args):
        return end(args)

    await _run(base_url, prompt)
