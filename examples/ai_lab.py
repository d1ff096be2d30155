"""Two jobs of the lab: a training run that holds all eight cards, and eight ranks that greet each other."""

import argparse
import os
import time

import levers9

DOMAIN = levers9.Topology("accelerator.topograph.run/domain", mode="required")


@levers9.job(cpu=1, memory=512, gpu="GB200", gpu_count=4, nodes=2, topology=DOMAIN, queue="gpu", timeout=3600)
def train(seconds: float) -> str:
    """Hold two trays of four cards each, as a training run does."""
    time.sleep(seconds)
    return f"{levers9.gang().world_size} nodes trained for {seconds:g} s"


@levers9.job(cpu=0.25, memory=128, gpu="GB200", gpu_count=1, nodes=8, topology=DOMAIN, queue="gpu", timeout=60)
def hello() -> str:
    """Say who is who: each of the eight ranks sees one card of its own."""
    me = levers9.gang()
    return f"rank {me.rank} of {me.world_size} has card {os.environ['CUDA_VISIBLE_DEVICES']}"


def main() -> None:
    """Submit one of them, and print the task's identity, or with --wait its result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("job", choices=["train", "hello"])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--wait", action="store_true")
    arguments = parser.parse_args()
    task = train.submit(arguments.seconds) if arguments.job == "train" else hello.submit()
    print(task.result(wait=True) if arguments.wait else task.id, flush=True)


if __name__ == "__main__":
    main()
