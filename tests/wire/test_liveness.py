"""When a heartbeat is due, and when silence begins."""

import math

from levers9.wire.liveness import Liveness


def test_a_heartbeat_is_due_after_five_seconds_without_a_frame() -> None:
    liveness = Liveness(0.0)
    assert (liveness.heartbeat_due(4.9), liveness.heartbeat_due(5.0)) == (False, True)
    liveness.spoke(5.0)
    assert not liveness.heartbeat_due(9.9)


def test_our_own_outage_is_nobodys_silence() -> None:
    liveness = Liveness(0.0)
    liveness.forgive(20.0)
    assert not liveness.fell_silent(34.9)
    assert liveness.fell_silent(35.0)


def test_whoever_was_never_there_is_not_silent() -> None:
    liveness = Liveness(math.inf)
    assert not liveness.fell_silent(1e9)
    assert (liveness.silent_at, liveness.dead_at) == (math.inf, math.inf)


def test_a_carrier_is_dead_after_45_s() -> None:
    assert Liveness(1.0).dead_at == 46.0
