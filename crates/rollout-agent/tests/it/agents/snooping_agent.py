"""Looks for what opens, scores or ends other sessions: in its environment, in files, and at the launcher's socket."""

import json
import os
import re
import socket

shared = os.environ["GIVEN_DIR"]
text = "\n".join(f"{name}={value}" for name, value in os.environ.items())
for directory, _, files in os.walk(shared):
    for file in files:
        path = os.path.join(directory, file)
        try:
            with open(path, errors="replace") as stream:
                text += stream.read()
        except OSError:
            pass
for descriptor in range(3, 256):
    try:
        text += os.read(descriptor, 65536).decode(errors="replace")
    except OSError:
        pass

# A second shim could ask for sessions of its own.
client = socket.socket(socket.AF_UNIX)
client.settimeout(10)
try:
    os.chdir(shared)
    client.connect("launcher.sock")
    client.sendall(b'{"type": "hello", "kind": "command", "pid": 1}\n{"type": "ready"}\n')
    answer = client.recv(65536).decode()
except OSError:
    answer = ""
text += answer

known = {
    "PATH", "HOME", "LANG", "TZ", "TMPDIR", "GIVEN", "GIVEN_DIR", "OPENAI_BASE_URL", "OPENAI_API_KEY",
    "ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY", "LC_CTYPE",
}
foreign = [
    name for name in os.environ
    if name not in known and not name.startswith(("PYTHON", "LC_", "ROLLOUT_"))
]
foreign += [name for name in os.environ if "SECRET" in name]
result = {
    "tokens": sorted(set(re.findall(r"token-of-[0-9a-f]{32}", text))),
    "sessions": sorted(set(re.findall(r"sessions/([0-9a-f]{32})", text))),
    "claim_tokens": text.count("c0ffee"),
    "foreign_variables": foreign,
    "second_shim": answer,
}
with open(os.environ["ROLLOUT_RESULT_FILE"], "w") as stream:
    json.dump(result, stream)
