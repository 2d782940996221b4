import asyncio


async def run(base_url):
    await asyncio.Event().wait()


async def abort(args):
    assert args.rollout_id == 3
