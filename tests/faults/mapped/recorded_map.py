"""A map whose calls leave a trace: one line of fixed length for each key and attempt, appended in one write.

Beside that each process that runs calls leaves its id.
"""

import json
import os
import sys
import time

import levers9


@levers9.job(cpu=0.25, memory=256)
def recorded(case: dict[str, object]) -> int:
    """Leave a trace, work a little, answer twice the key."""
    line = f"{case['key']:>10} {os.environ['LEVERS9_ATTEMPT']:>4}\n".encode()
    effects = str(case["effects"])
    os.close(os.open(f"{os.path.dirname(effects)}/runners/{os.getpid()}", os.O_CREAT))
    descriptor = os.open(effects, os.O_WRONLY | os.O_APPEND)
    os.write(descriptor, line)
    os.close(descriptor)
    print("call", case["key"])
    time.sleep(float(case["sleep_s"]))  # type: ignore[arg-type]
    return 2 * int(case["key"])  # type: ignore[call-overload, no-any-return]


def main() -> None:
    """Run the map and write down its results."""
    effects, results, calls, sleep_s = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
    cases = [{"key": key, "effects": effects, "sleep_s": sleep_s} for key in range(calls)]
    found = list(recorded.map(cases))
    with open(results, "w") as file:
        json.dump(found, file)


if __name__ == "__main__":
    main()
