"""The smallest job: one call, then many at once."""

import levers9


@levers9.job(cpu=0.5, memory=128)
def square(number: int) -> int:
    """Runs on a worker."""
    return number * number


def main() -> None:
    """Call it once, then map it."""
    print(square.remote(7))
    print(sum(square.map(range(1_000))))


if __name__ == "__main__":
    main()
