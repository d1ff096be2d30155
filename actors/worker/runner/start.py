"""Start the fork server: `python start.py FD [MODULE…]`, where FD is a Unix socket to the worker.

The modules are imported once, where the interpreter has them, so that no container waits for them.
"""

import sys

from levers9_runner.fork_server import main

if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
