"""Messages a second, round trips, and memory after cancelled sends, over each carrier; the bare libraries beside.

nng and WebSocket run between two processes. A link does more than the bare libraries: it numbers, acknowledges, keeps
for a resend, and beats.
"""

import contextlib
import gc
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Final

import msgspec
import trio
from harness import Figure, Options, percentile, run_bench

sys.path.append(str(Path(__file__).parent / "peers"))

from wire_ends import COUNT, ECHO, HOLD, End, LinkEnd, bare_end, envelope, link_end

CARRIERS: Final = {"memory": "memory channel", "nng": "pynng asend", "websocket": "trio-websocket"}
CHILD_DEADLINE_S: Final = 30
CANCELLED_SENDS: Final = 10_000
CANCELLED_BYTES: Final = 20_000
GROWTH_GOAL_MB: Final = 5.0


class Amount(msgspec.Struct, frozen=True):
    """How much is measured."""

    messages: int
    round_trips: int


class Speed(msgspec.Struct, frozen=True):
    """What one way of speaking managed."""

    messages_per_s: float
    p50_us: float
    p99_us: float


@contextlib.contextmanager
def other_process(kind: str, *, bare: bool) -> Iterator[str]:
    """Start the other end, and give its address; memory needs none."""
    if kind == "memory":
        yield ""
        return
    with tempfile.TemporaryDirectory() as folder:
        script = Path(__file__).parent / "peers" / "wire_ends.py"
        command = [sys.executable, str(script), f"bare-{kind}" if bare else kind, f"ipc://{folder}/bench"]
        child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            yield child.stdout.readline().strip()
        finally:
            child.stdin.close()
            try:
                child.wait(CHILD_DEADLINE_S)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
            child.stdout.close()


async def speed(opening: AbstractAsyncContextManager[End], amount: Amount) -> Speed:
    """One message after the other, then as many as go."""
    async with opening as end:
        trips: list[float] = []
        for _ in range(amount.round_trips):
            began = time.perf_counter()
            await end.put(ECHO)
            await end.take()
            trips.append(1e6 * (time.perf_counter() - began))
        began = time.perf_counter()
        for _ in range(amount.messages - 1):
            await end.put(COUNT)
        await end.put(ECHO)
        await end.take()
        took_s = time.perf_counter() - began
    return Speed(amount.messages / took_s, percentile(trips, 50), percentile(trips, 99))


def resident_mb() -> float:
    """The memory of this process now."""
    gc.collect()
    fields = Path("/proc/self/statm").read_text(encoding="ascii").split()
    return int(fields[1]) * 4096 / 1e6


async def growth_mb(opening: AbstractAsyncContextManager[LinkEnd]) -> float:
    """Fill the window of a peer that takes nothing, then cancel ten thousand sends."""
    async with opening as end:
        await end.put(ECHO)
        await end.take()
        await end.put(HOLD)
        large = envelope(b"c" * CANCELLED_BYTES)
        full = False
        while not full:
            with trio.move_on_after(0.2) as scope:
                await end.link.send(large)
            full = scope.cancelled_caught
        before = resident_mb()
        for _ in range(CANCELLED_SENDS):
            with trio.CancelScope() as scope:
                scope.cancel()
                await end.link.send(large)
            with trio.move_on_after(0):
                await end.link.send(large)
        return resident_mb() - before


def figures_of(kind: str, amount: Amount) -> list[Figure]:
    """Measure one carrier, and the bare library beside it."""
    with other_process(kind, bare=False) as address:
        ours = trio.run(speed, link_end(kind, address), amount)
    with other_process(kind, bare=True) as address:
        bare = trio.run(speed, bare_end(kind, address), amount)
    with other_process(kind, bare=False) as address:
        growth = trio.run(growth_mb, link_end(kind, address))
    peer = CARRIERS[kind]
    return [
        Figure(
            name=f"{kind}: messages",
            value=ours.messages_per_s,
            unit="1/s",
            better="higher",
            peer=peer,
            peer_value=bare.messages_per_s,
        ),
        Figure(
            name=f"{kind}: round trip p50",
            value=ours.p50_us,
            unit="µs",
            better="lower",
            peer=peer,
            peer_value=bare.p50_us,
        ),
        Figure(
            name=f"{kind}: round trip p99",
            value=ours.p99_us,
            unit="µs",
            better="lower",
            peer=peer,
            peer_value=bare.p99_us,
        ),
        Figure(
            name=f"{kind}: memory after {CANCELLED_SENDS:,} cancelled sends",
            value=growth,
            unit="MB",
            better="lower",
            goal=GROWTH_GOAL_MB,
        ),
    ]


def measure(options: Options) -> list[Figure]:
    """Measure every carrier."""
    amount = Amount(5_000, 300) if options.short else Amount(50_000, 3_000)
    return [figure for kind in CARRIERS for figure in figures_of(kind, amount)]


if __name__ == "__main__":
    run_bench("The wire", measure)
