"""The Python host: what surrounds a user's function, and nothing that the function has to know."""

import sys


def install_path(host_directory, code_directory):
    """Makes the user's code importable, hides the host's own directory, and offers stand-ins for Miles."""
    from rollout_host import stand_ins

    sys.path[:] = [entry for entry in sys.path if entry != host_directory]
    if code_directory:
        sys.path.insert(0, code_directory)
    stand_ins.install()
