"""Calls the stand-in of Miles's client, and answers what came of it."""

from miles.utils.http_utils import get, post


async def run(base_url, metadata):
    server = metadata["server"]

    async def outcome(path, **options):
        try:
            return await post(f"{server}{path}", {"a": [1, None]}, **options)
        except Exception as error:
            return f"{type(error).__name__}: {error}"

    found = {}
    for path in metadata["paths"]:
        found[path] = await outcome(path, max_retries=1)
    found["tried again"] = await outcome("/flaky", max_retries=3)
    found["tried in vain"] = await outcome("/refused", max_retries=2)
    found["final"] = await outcome("/final", max_retries=60)
    found["get"] = await get(f"{server}/get?x=1&y=%20z")
    found["deleted"] = await post(f"{server}/empty", None, action="delete")
    return found
