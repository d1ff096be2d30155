"""One call on the control plane that `levers9 dev --run` started: its result is the first line that is printed."""

import levers9


@levers9.job(cpu=0.5, memory=128, timeout=60, retries=0)
def twice(value: int) -> int:
    return 2 * value


if __name__ == "__main__":
    print(f"first result: {twice.remote(21)}", flush=True)
