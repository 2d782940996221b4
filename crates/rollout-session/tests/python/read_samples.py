"""Reads a samples buffer with the safetensors of PyPI, and writes it anew: the peer of tests/it/python.rs.

Usage: read_samples.py IN OUT. Prints every tensor, in the order of their names, as JSON; floats as the hexadecimal of their bits.
"""

import json
import sys

import numpy
from safetensors.numpy import load_file, save_file

tensors = load_file(sys.argv[1])
shown = {}
for name in sorted(tensors):
    tensor = tensors[name]
    values = tensor
    if tensor.dtype == numpy.float64:
        values = tensor.view(numpy.uint64)
    shown[name] = {"dtype": str(tensor.dtype), "shape": list(tensor.shape), "values": values.reshape(-1).tolist()}
print(json.dumps(shown))
save_file(tensors, sys.argv[2])
