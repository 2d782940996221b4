"""Entry of the Python host: runs agent functions for the shim, or plug-ins for the driver.

    python host.py --function module.attr [--code DIR] [--parameters FILE]     the protocol is on standard input
    python host.py --plugins SOCKET [--code DIR]                               the protocol is on a unix socket

Needs Python 3.9 and the standard library. Nothing but the standard library is imported at the top: processes that user code
starts with `multiprocessing` import this file again.
"""

import argparse
import os
import sys


def main() -> None:
    parser = argparse.ArgumentParser(prog="host.py")
    mode = parser.add_mutually_exclusive_group(required=True)
    mode.add_argument("--function", metavar="MODULE.ATTR")
    mode.add_argument("--plugins", metavar="SOCKET")
    parser.add_argument("--code", metavar="DIR")
    parser.add_argument("--parameters", metavar="FILE")
    options = parser.parse_args()

    directory = os.path.dirname(os.path.abspath(__file__))
    sys.path.insert(0, directory)  # with PYTHONSAFEPATH it is not there
    import rollout_host

    rollout_host.install_path(directory, options.code)
    del sys.argv[1:]  # the user's modules may have command lines of their own
    if options.function:
        from rollout_host import agents

        agents.main(options.function, options.parameters)
    else:
        from rollout_host import plugins

        plugins.main(options.plugins)


if __name__ == "__main__":
    main()
