"""Prints what the heaviest crates of a clean release build cost. usage: compile_cost.py cargo-timing.html

Reads the units that `cargo build --timings` writes into its page. The seconds are wall time of one compiler process; on a busy machine
they grow, their shares hardly."""

import collections
import json
import re
import sys

page = open(sys.argv[1], encoding="utf-8").read()
units = json.loads(re.search(r"UNIT_DATA = (\[.*?\]);\n", page, re.DOTALL).group(1))
seconds = collections.Counter()
for unit in units:
    seconds[f"{unit['name']} {unit['version']}"] += unit["duration"]
total = sum(seconds.values())
print(f"{len(seconds)} crates, {total:.0f} compiler seconds")
for name, spent in seconds.most_common(15):
    print(f"{spent:7.1f} s {100 * spent / total:5.1f} %  {name}")
