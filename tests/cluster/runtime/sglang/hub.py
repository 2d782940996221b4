"""A model hub with one model: what huggingface_hub asks for, of the files of a directory, for a token.

usage: hub.py DIRECTORY MODEL REVISION TOKEN
"""

import hashlib
import http.server
import json
import pathlib
import sys

directory, model, revision, token = sys.argv[1:]
commit = hashlib.sha1(revision.encode()).hexdigest()
files = {path.name: path.read_bytes() for path in pathlib.Path(directory).iterdir()}


class Hub(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        path = self.path.partition("?")[0]
        if self.headers.get("authorization") != f"Bearer {token}":
            return self.answer(401, b"{}", {})
        if path == f"/api/models/{model}" or path in (f"/api/models/{model}/revision/{at}" for at in (revision, commit)):
            names = [{"rfilename": name} for name in sorted(files)]
            return self.json({"id": model, "sha": commit, "siblings": names, "private": True, "tags": []})
        if path in (f"/api/models/{model}/tree/{at}" for at in (revision, commit)):
            return self.json([{"type": "file", "path": name, "size": len(files[name]), "oid": "0" * 40} for name in sorted(files)])
        for at in (revision, commit):
            name = path.removeprefix(f"/{model}/resolve/{at}/")
            if name in files:
                digest = hashlib.sha256(files[name]).hexdigest()
                return self.answer(200, files[name], {"etag": f'"{digest}"', "x-repo-commit": commit})
        self.answer(404, b"{}", {"x-error-code": "EntryNotFound", "x-repo-commit": commit})

    do_HEAD = do_GET

    def json(self, value):
        self.answer(200, json.dumps(value).encode(), {})

    def answer(self, status, body, headers):
        self.send_response(status)
        for name, value in {"content-type": "application/json", "content-length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


http.server.ThreadingHTTPServer(("", 8080), Hub).serve_forever()
