"""Stand-in for `miles.utils.http_utils`: `post` and `get` as plug-ins call them.

As in Miles, `post` tries sixty times, a second apart, whatever fails, and answers the JSON of the body, or its text. Unlike Miles
it stops at once when the server says that another try is useless: status 410, or the header `x-should-retry: false`.
"""

import asyncio
import json

from rollout_host import channel, http_client, stand_ins

RETRY_SECONDS = 1.0


class HTTPStatusError(Exception):
    """The server answered with a status that is no success."""

    def __init__(self, url, response):
        super().__init__(f"{url} answered {response.status}: {response.text()[:1000]}")
        self.status_code = response.status
        self.response = response

    def is_final(self):
        """Whether the server said that another try is useless."""
        return self.status_code == 410 or self.response.headers.get("x-should-retry", "").lower() == "false"


async def post(url, payload=None, max_retries=60, action="post", headers=None):
    """Sends `payload` as JSON; with `action` also `get`, `delete` or `put`."""
    method = action.upper()
    if method in ("GET", "DELETE") and payload:
        raise ValueError(f"{action} takes no payload")
    body = None if method in ("GET", "DELETE") else channel.encode({} if payload is None else payload).rstrip()
    tries = 0
    while True:
        try:
            return _content(await _checked(method, url, body, headers))
        except Exception as error:
            tries += 1
            final = isinstance(error, HTTPStatusError) and error.is_final()
            if final or tries >= max_retries:
                raise
        await asyncio.sleep(RETRY_SECONDS)


async def get(url):
    """One GET, without another try."""
    return _content(await _checked("GET", url, None, None))


async def _checked(method, url, body, headers):
    response = await http_client.request(method, url, body, headers)
    if not 200 <= response.status < 300:
        raise HTTPStatusError(url, response)
    return response


def _content(response):
    try:
        return json.loads(response.body)
    except ValueError:
        return response.text()


def init_http_client(args):
    """Nothing to prepare."""


def __getattr__(name):
    raise stand_ins.missing(__name__, name)
