#!/usr/bin/env python3
"""Writes stand-ins for the CUDA libraries that libtorch is linked to, so that it loads on a machine that has none.

usage: cuda_stubs.py TORCH_LIB_DIR OUT_DIR

The PyTorch of PyPI is the CUDA build; its dynamic loader wants some 3 GB of NVIDIA libraries before the first line of Python runs, and
on a CPU none of their functions is ever called. This reads which libraries and symbols libtorch asks for, and writes each library as a
small ELF file in which every symbol is one function that returns 1 (an error, in all of these interfaces). The CUDA runtime itself
(libcudart) is asked questions at start, so that one must be the real one. No compiler is needed. x86-64 Linux only.
"""

import struct
import sys
from pathlib import Path

# Libraries that must be real, or that PyTorch can do without by itself.
REAL = ("libcudart.so", "libcuda.so")
# Whose symbols have no version, so that the symbol table does not say which library they come from.
PREFIXES = {"libnccl": "nccl", "libcusparseLt": "cusparseLt", "libcufile": "cuFile", "libcurand": "curand", "libnvshmem_host": "nvshmem"}
VENDOR = ("libcu", "libnv", "libnccl")

SHT_DYNAMIC, SHT_DYNSYM, SHT_VERNEED, SHT_VERSYM = 6, 11, 0x6FFFFFFE, 0x6FFFFFFF
DT_NEEDED = 1


def text(table, offset):
    return table[offset : table.index(b"\0", offset)].decode()


class Library:
    """What an ELF library needs: other libraries, and symbols of them by version."""

    def __init__(self, path):
        with open(path, "rb") as file:
            header = file.read(64)
            if header[:6] != b"\x7fELF\x02\x01":
                raise SystemExit(f"{path} is not a 64-bit little-endian ELF file")
            (offset,) = struct.unpack_from("<Q", header, 40)
            size, count = struct.unpack_from("<HH", header, 58)
            file.seek(offset)
            self.sections = [struct.unpack_from("<IIQQQQIIQQ", file.read(size)) for _ in range(count)]
            self.file = file
            self.needed = [text(self.strings(section), value) for section, tag, value in self.dynamic() if tag == DT_NEEDED]
            self.wanted = list(self.undefined())

    def bytes(self, section):
        self.file.seek(section[4])
        return self.file.read(section[5])

    def of_type(self, kind):
        return [section for section in self.sections if section[1] == kind]

    def strings(self, section):
        return self.bytes(self.sections[section[6]])

    def dynamic(self):
        for section in self.of_type(SHT_DYNAMIC):
            for tag, value in struct.iter_unpack("<qQ", self.bytes(section)):
                yield section, tag, value

    def versions(self):
        """Version index -> (library, version)."""
        found = {}
        for section in self.of_type(SHT_VERNEED):
            data, names, at = self.bytes(section), self.strings(section), 0
            while True:
                _, count, library, first, following = struct.unpack_from("<HHIII", data, at)
                entry = at + first
                for _ in range(count):
                    _, _, index, version, step = struct.unpack_from("<IHHII", data, entry)
                    found[index & 0x7FFF] = (text(names, library), text(names, version))
                    entry += step
                if not following:
                    break
                at += following
        return found

    def undefined(self):
        versions = self.versions()
        for section in self.of_type(SHT_DYNSYM):
            names = self.strings(section)
            indices = [index for (index,) in struct.iter_unpack("<H", self.bytes(self.of_type(SHT_VERSYM)[0]))]
            for (name, _, _, defined_in, _, _), index in zip(struct.iter_unpack("<IBBHQQ", self.bytes(section)), indices):
                if defined_in == 0 and name:
                    library, version = versions.get(index & 0x7FFF, (None, None))
                    yield text(names, name), library, version


def elf_hash(name):
    value = 0
    for byte in name.encode():
        value = (value << 4) + byte
        high = value & 0xF0000000
        value = (value ^ (high >> 24)) & ~high & 0xFFFFFFFF
    return value


def shared_library(soname, symbols, version):
    """An ELF shared library: `symbols` are functions that return 1, all of `version` if that is not None."""
    strings = bytearray(b"\0")

    def string(value):
        offset = len(strings)
        strings.extend(value.encode() + b"\0")
        return offset

    code = b"\xb8\x01\x00\x00\x00\xc3"  # mov eax, 1; ret
    headers = 64 + 4 * 56
    code_at = headers
    names = [string(name) for name in symbols]
    soname_at = string(soname)
    symtab = bytes(24) + b"".join(struct.pack("<IBBHQQ", name, 0x12, 0, 1, code_at, len(code)) for name in names)
    # One bucket, all symbols chained: slow to search and simple; a library has a few hundred.
    chain = [0] + list(range(2, len(symbols) + 1)) + [0] if symbols else [0]
    hashes = struct.pack("<III", 1, len(symbols) + 1, 1 if symbols else 0) + struct.pack(f"<{len(chain)}I", *chain)
    versym = struct.pack(f"<{len(symbols) + 1}H", 0, *([2 if version else 1] * len(symbols)))
    verdef = b""
    if version:
        for flags, index, name, following in ((1, 1, soname, 28), (0, 2, version, 0)):
            verdef += struct.pack("<HHHHIII", 1, flags, index, 1, elf_hash(name), 20, following)
            verdef += struct.pack("<II", string(name), 0)

    image, places = bytearray(bytes(headers)), {}
    for name, data in (("code", code), ("hash", hashes), ("symtab", symtab), ("versym", versym), ("verdef", verdef), ("strings", bytes(strings))):
        image.extend(bytes(-len(image) % 8) if name != "code" else b"")
        places[name] = len(image)
        image.extend(data)
    read_only = len(image)
    image.extend(bytes(-len(image) % 4096))
    entries = [(14, soname_at), (4, places["hash"]), (5, places["strings"]), (6, places["symtab"]), (10, len(strings)), (11, 24)]
    if version:
        entries += [(0x6FFFFFF0, places["versym"]), (0x6FFFFFFC, places["verdef"]), (0x6FFFFFFD, 2)]
    dynamic = b"".join(struct.pack("<qQ", tag, value) for tag, value in [*entries, (0, 0)])
    dynamic_at = len(image)
    image.extend(dynamic)

    image[:64] = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 3, 62, 1, 0, 64, 0, 0, 64, 56, 4, 64, 0, 0)
    segments = (
        (1, 5, 0, read_only, 4096),  # the code and the tables: read, execute
        (1, 6, dynamic_at, len(dynamic), 4096),  # what the loader relocates: read, write
        (2, 6, dynamic_at, len(dynamic), 8),
        (0x6474E551, 6, 0, 0, 16),  # the stack is not executable
    )
    for index, (kind, flags, at, size, align) in enumerate(segments):
        struct.pack_into("<IIQQQQQQ", image, 64 + index * 56, kind, flags, at, at, at, size, size, align)
    return bytes(image)


def main():
    torch, out = Path(sys.argv[1]), Path(sys.argv[2])
    libraries = [Library(path) for path in sorted(torch.glob("*.so*"))]
    if not libraries:
        raise SystemExit(f"no libraries in {torch}")
    wanted = {
        name
        for library in libraries
        for name in library.needed
        if name.startswith(VENDOR) and not name.startswith(REAL)
    }
    out.mkdir(parents=True, exist_ok=True)
    for name in sorted(wanted):
        prefix = PREFIXES.get(name.split(".so")[0])
        symbols, versions = set(), set()
        for library in libraries:
            for symbol, origin, version in library.wanted:
                if origin == name:
                    symbols.add(symbol)
                    versions.add(version)
                elif origin is None and prefix and symbol.startswith(prefix):
                    symbols.add(symbol)
        if len(versions) > 1:
            raise SystemExit(f"{name} is asked for in several versions: {sorted(versions)}")
        version = versions.pop() if versions else None
        (out / name).write_bytes(shared_library(name, sorted(symbols), version))
    print(f"stand-ins for {len(wanted)} CUDA libraries: {', '.join(sorted(wanted))}")


main()
