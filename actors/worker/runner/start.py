"""Start the fork server: `python start.py FD`, where FD is a Unix socket to the worker."""

import sys

from levers9_runner.fork_server import main

if __name__ == "__main__":
    main(int(sys.argv[1]))
