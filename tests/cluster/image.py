#!/usr/bin/env python3
"""Makes a container image of one layer from files, as an OCI archive, without a registry or a container engine.

usage: image.py [OPTION...] ARCHIVE.tar REFERENCE ENTRYPOINT CONTENT...
  REFERENCE   such as localhost/tiny:1
  ENTRYPOINT  a JSON list
  CONTENT     FILE=PATH puts a file there; 'PATH->TARGET' makes a symbolic link

The same input makes the same archive.
"""

import argparse
import gzip
import hashlib
import io
import json
import sys
import tarfile

DIRECTORIES = ("bin", "dev", "etc", "proc", "root", "run", "sys", "tmp", "usr", "var")
USERS = b"root:x:0:0::/root:/bin/sh\nnonroot:x:65532:65532::/:/bin/false\n"
GROUPS = b"root:x:0:\nnonroot:x:65532:\n"
OCI = "application/vnd.oci.image."


def digest(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def add_file(tar, name, data, mode=0o644):
    entry = tarfile.TarInfo(name.lstrip("/"))
    entry.size, entry.mode = len(data), mode
    tar.addfile(entry, io.BytesIO(data))


def add_link(tar, name, target):
    entry = tarfile.TarInfo(name.lstrip("/"))
    entry.type, entry.linkname = tarfile.SYMTYPE, target
    tar.addfile(entry)


def add_directory(tar, name):
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
    tar.addfile(entry)


def layer(contents):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name in DIRECTORIES:
            add_directory(tar, name)
        add_file(tar, "etc/passwd", USERS)
        add_file(tar, "etc/group", GROUPS)
        add_file(tar, "etc/nsswitch.conf", b"hosts: files dns\n")
        for content in contents:
            if "->" in content:
                add_link(tar, *content.split("->", 1))
            else:
                source, name = content.split("=", 1)
                with open(source, "rb") as file:
                    add_file(tar, name, file.read(), 0o755)
    return buffer.getvalue()


def image_config(options, raw):
    run = {"Entrypoint": json.loads(options.entrypoint), "Env": ["PATH=/bin:/usr/bin"], "WorkingDir": "/"}
    if options.user:
        run["User"] = options.user
    if options.label:
        run["Labels"] = dict(label.split("=", 1) for label in options.label)
    return {
        "architecture": options.architecture,
        "os": "linux",
        "config": run,
        "rootfs": {"type": "layers", "diff_ids": [digest(raw)]},
    }


def main(options):
    raw = layer(options.content)
    # Little is won by compressing more, and tests wait for it.
    packed = gzip.compress(raw, 1, mtime=0)
    config = json.dumps(image_config(options, raw)).encode()

    def descriptor(kind, data):
        return {"mediaType": OCI + kind, "digest": digest(data), "size": len(data)}

    manifest = {
        "schemaVersion": 2,
        "mediaType": OCI + "manifest.v1+json",
        "config": descriptor("config.v1+json", config),
        "layers": [descriptor("layer.v1.tar+gzip", packed)],
    }
    manifest = json.dumps(manifest).encode()

    def entry(reference):
        tag = reference.rsplit(":", 1)[1]
        return descriptor("manifest.v1+json", manifest) | {
            "platform": {"architecture": options.architecture, "os": "linux"},
            "annotations": {"io.containerd.image.name": reference, "org.opencontainers.image.ref.name": tag},
        }

    entries = [entry(reference) for reference in [options.reference, *options.also]]
    index = {"schemaVersion": 2, "mediaType": OCI + "index.v1+json", "manifests": entries}
    with tarfile.open(options.archive, "w") as tar:
        add_file(tar, "oci-layout", b'{"imageLayoutVersion": "1.0.0"}')
        add_file(tar, "index.json", json.dumps(index).encode())
        for blob in (config, packed, manifest):
            add_file(tar, "blobs/sha256/" + hashlib.sha256(blob).hexdigest(), blob)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, usage=argparse.SUPPRESS)
    parser.add_argument("--architecture", default="amd64")
    parser.add_argument("--user", help="UID:GID that the container runs as; none: root")
    parser.add_argument("--label", action="append", metavar="KEY=VALUE", help="of the image; may be repeated")
    parser.add_argument("--also", action="append", default=[], metavar="REFERENCE", help="one more name of the image")
    for name in ("archive", "reference", "entrypoint"):
        parser.add_argument(name)
    parser.add_argument("content", nargs="+")
    return parser.parse_args()


if __name__ == "__main__":
    main(arguments())
