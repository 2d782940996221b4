"""Rewards, filters and tools, right and wrong."""

import asyncio
import os
import pathlib
import shutil
import subprocess
import sys
import time

from miles.rollout.filter_hub.base_types import DynamicFilterOutput
from miles.utils.types import Sample

constant = 1


class NumpyLike:
    def __init__(self, value):
        self.value = value

    def item(self):
        return self.value

    def tolist(self):
        return self.value


async def asynchronous(args, sample, **kwargs):
    assert isinstance(sample, Sample)
    assert sample.status is Sample.Status.COMPLETED
    assert sample.prefix_cache_info.cached_tokens == 1
    await asyncio.sleep(0)
    return (1.0 if sample.response == sample.label else 0.0) + args.bonus


def synchronous(args, sample):
    return sample.metadata["n"]


def as_dict(args, sample):
    return {"score": 1.0}


def as_bool(args, sample):
    return True


def as_text(args, samples):
    return "yes"


def numpy_like(args, sample):
    return NumpyLike(0.25)


async def whole_batch(args, samples):
    return [float(sample.index) for sample in samples]


def numpy_like_batch(args, samples):
    return NumpyLike([0.25] * len(samples))


async def raises(args, sample):
    raise KeyError("boom")


def raises_in_thread(args, sample):
    raise KeyError("boom")


def gives_none(args, sample):
    pass


def gives_text(args, sample):
    return "good"


def gives_nan(args, sample):
    return float("nan")


def gives_dict_with_nan(args, sample):
    return {"score": float("nan")}


def too_few(args, samples):
    return [1.0]


async def exits(args, sample):
    raise SystemExit(3)


def needs_more(args, sample, extra):
    return 1


def keep_bool(args, samples):
    return len(samples) == 2


async def keep_dict(args, samples):
    return {"keep": False, "reason": "too easy"}


def keep_miles(args, samples):
    return DynamicFilterOutput(keep=False, reason="zero_std_1.0")


async def tool(name, params):
    return f"{name} {params}"


met = 0
all_met = asyncio.Event()


async def meets_eight(args, sample):
    global met
    met += 1
    if met == 8:
        all_met.set()
    await all_met.wait()
    return met


async def hangs(args, sample):
    await asyncio.Event().wait()


def hangs_in_thread(args, sample):
    while True:
        time.sleep(0.01)


async def marks_its_cancellation(args, sample):
    pathlib.Path(args.marker + ".started").touch()
    try:
        await asyncio.Event().wait()
    finally:
        pathlib.Path(args.marker).touch()


def own_pid(args, sample):
    return os.getpid()


def floods(args, sample):
    for _ in range(100):
        print("x" * 100_000)
    return 1


async def blocks_the_loop(args, sample):
    time.sleep(3600)


def detaches(args, sample):
    """Leaves a process that has left its group, session, parent and environment, and answers its id."""
    sleep = f"p = subprocess.Popen([{shutil.which('sleep')!r}, '1000'], start_new_session=True, env={{}}, **quiet)"
    quiet = "quiet = {name: subprocess.DEVNULL for name in ('stdin', 'stdout', 'stderr')}"
    script = f"import subprocess\n{quiet}\n{sleep}\nprint(p.pid)"
    return int(subprocess.run([sys.executable, "-c", script], capture_output=True, check=True).stdout)
