"""A simulated engine, a router, and the proxies around it."""

import json
import os
import pathlib
import subprocess
import tempfile
import threading
import time
import urllib.request

from wire import Proxy

DEADLINE = 60


class Bed:
    """Processes that end with the test. `script` is what the engine answers, `flags` are more of its flags."""

    def __init__(self, script, *flags):
        self._processes = []
        self._directory = tempfile.TemporaryDirectory()
        file = pathlib.Path(self._directory.name, "script.yaml")
        file.write_text(script)
        self.engine_url = self._start("simulate-engine", "--port", "0", "--script", str(file), *flags)["url"]
        self.engine = Proxy(self.engine_url)
        router = self._start("router", "--engine", self.engine.url)
        self.control_url = router["control_url"].rstrip("/")
        self.agents_url = router["agents_url"].rstrip("/")
        self.agents = Proxy(self.agents_url)

    def _start(self, *arguments):
        command = [os.environ["ROLLOUT_OPERATOR"], *arguments, "--exit-with-stdin"]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self._processes.append(process)
        line = process.stdout.readline()
        # What it prints later must not fill the pipe.
        threading.Thread(target=process.stdout.read, daemon=True).start()
        return json.loads(line)

    def close(self):
        for proxy in (self.agents, self.engine):
            proxy.close()
        for process in reversed(self._processes):
            process.stdin.close()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._directory.cleanup()

    def call(self, method, path, body=None, url=None):
        """A call to the control port."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"content-type": "application/json", "accept": "application/json"}
        request = urllib.request.Request((url or self.control_url) + path, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=DEADLINE) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def session(self, proxied=True, **fields):
        """A new session: its id, and the base URL that its agent gets. The proxy does not pass on that a client has gone away."""
        session = self.call("POST", "/sessions", fields)["session_id"]
        agents = self.agents.url if proxied else self.agents_url
        return session, f"{agents}/sessions/{session}/v1"

    def collect(self, session):
        return self.call("POST", f"/sessions/{session}/samples", {"split": True})

    def running(self):
        """Requests that the engine works on or has in its queue."""
        loads = self.call("GET", "/v1/loads", url=self.engine_url)["loads"]
        return sum(load["num_running_reqs"] + load["num_waiting_reqs"] for load in loads)


def eventually(what, condition):
    """Waits until a condition holds."""
    end = time.monotonic() + DEADLINE
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"{what}: it did not happen")
        time.sleep(0.02)
