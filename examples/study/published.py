"""What the FGD paper's authors published about the same workloads: six policies, ten seeds each."""

from __future__ import annotations

import csv
import gzip
from functools import cache
from typing import Final

import numpy as np
from study.simulator import DEMAND_PCT
from study.trace import TRACES, Floats

THEIR_NAMES: Final = {
    "01-Random": "random",
    "02-DotProd": "dot_product",
    "03-GpuClustering": "clustering",
    "04-GpuPacking": "packing",
    "05-BestFit": "best_fit",
    "06-FGD": "fgd",
}


@cache
def published() -> dict[tuple[str, str], Floats]:
    """By (variant, policy): allocation in %, a row for each seed and a column for each 0 to 130 % of arrived demand."""
    runs: dict[tuple[str, str], list[list[float]]] = {}
    with gzip.open(TRACES / "expected_analysis_allo_discrete.csv.gz", "rt", newline="") as lines:
        for row in csv.DictReader(lines):
            key = (row["workload"].removeprefix("openb_pod_list_"), THEIR_NAMES[row["sc_policy"]])
            runs.setdefault(key, []).append([float(row[str(percent)]) for percent in range(DEMAND_PCT + 1)])
    return {key: np.array(curves) for key, curves in runs.items()}
