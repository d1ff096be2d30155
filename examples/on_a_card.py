"""Which card a call was given, on a cluster of your own."""

import os

import levers9


@levers9.job(gpu="GB200", cpu=1, memory=256)
def card() -> str:
    """Runs on a node that has such a card free."""
    return f"{os.environ['LEVERS9_NODE']} gave {os.environ['NVIDIA_VISIBLE_DEVICES']}"


def main() -> None:
    """Call it once."""
    print(card.remote())


if __name__ == "__main__":
    main()
