"""`python record.py SEED FILE`: the journal of one world. In a process of its own, for a hash seed of its own."""

import sys
from pathlib import Path

from world import draw_plan, run_world


def main(seed: int, file: Path) -> None:
    file.write_bytes(run_world(seed, draw_plan(seed)).journal)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
