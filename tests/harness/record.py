"""`python record.py world|clusters SEED FILE`: the journal of one world, in a process with a hash seed of its own."""

import sys
from pathlib import Path

import conftest  # noqa: F401  # makes the worlds known
import levers9_clusters
import levers9_world


def main(kind: str, seed: int, file: Path) -> None:
    if kind == "clusters":
        file.write_bytes(levers9_clusters.run_cluster_world(seed, levers9_clusters.draw_plan(seed)).journal)
    else:
        file.write_bytes(levers9_world.run_world(seed, levers9_world.draw_plan(seed)).journal)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
