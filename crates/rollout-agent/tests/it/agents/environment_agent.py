import os
import sys

KNOWN = {"PATH", "HOME", "LANG", "TZ", "TMPDIR", "GIVEN", "GIVEN_DIR", "ROLLOUT_SESSION_MARK"}


def run():
    foreign = [name for name in os.environ if name not in KNOWN and not name.startswith(("PYTHON", "LC_"))]
    return {"given": os.environ["GIVEN"], "foreign": foreign, "arguments": len(sys.argv), "input": sys.stdin.read()}
