"""Prints every flag that SGLang's server takes, one line each: all spellings of one flag, the longest first, in order.

usage: flags.py        with the engine's interpreter and environment, as launch.sh sets them
"""

import argparse

from sglang.srt.server_args import ServerArgs

parser = argparse.ArgumentParser(add_help=False)
ServerArgs.add_cli_args(parser)
# Two registrations of one destination are one flag: a deprecated spelling may be registered apart.
spellings = {}
for action in parser._actions:
    if action.option_strings:
        spellings.setdefault(action.dest, []).extend(action.option_strings)
for line in sorted(" ".join(sorted(flag, key=lambda name: (-len(name), name))) for flag in spellings.values()):
    print(line)
