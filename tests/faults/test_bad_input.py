"""What people get wrong, against a real `levers9 dev`: each is told what happened, why, and what to do."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from .controlplane import ControlPlane, running
from .laptop import LEVERS9, Laptop, a_laptop, a_running_laptop

pytestmark = pytest.mark.slow

_OTHER_USER = 65534  # nobody
_AS_ANOTHER_USER = (
    *("setpriv", f"--reuid={_OTHER_USER}", f"--regid={_OTHER_USER}", "--clear-groups"),
    *("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"),  # root's Python may be in root's own home
)


@pytest.fixture(scope="module")
def laptop() -> Iterator[Laptop]:
    with a_running_laptop() as machine:
        yield machine


@pytest.fixture
def bare_laptop() -> Iterator[Laptop]:
    """Nothing runs on it."""
    with a_laptop() as machine:
        yield machine


def told(done: subprocess.CompletedProcess[str]) -> str:
    """The last line of what went to standard error: what a person reads first."""
    assert done.returncode != 0, done.stdout
    return done.stderr.strip().splitlines()[-1]


# What cannot be pickled


def test_a_function_that_holds_on_to_a_lock(laptop: Laptop) -> None:
    said = laptop.typed(
        "import threading\n"
        "from levers9 import job\n"
        "lock = threading.Lock()\n"
        "@job\n"
        "def count():\n"
        "    with lock:\n"
        "        return 1\n"
        "count.remote()\n"
    )
    assert "The function count cannot be pickled: cannot pickle '_thread.lock' object." in told(said)
    assert "Make such values (open files, locks, connections, clients) inside the function" in told(said)


FUNCTIONS = """
import sys, threading
from levers9 import job

@job(retries=0)
def same(value):
    return value

@job(retries=0)
def lock():
    return threading.Lock()

@job(memory="2Gi", retries=0)
def many_bytes(count):
    return bytes(count)
"""


def test_an_argument_that_cannot_be_pickled_is_named(laptop: Laptop) -> None:
    said = told(laptop.python(f"{FUNCTIONS}\nsame.remote(threading.Lock())"))
    assert "Argument 1, a lock, cannot be pickled: cannot pickle '_thread.lock' object." in said
    assert "Pass what it is made from (a path, a URL, a list), and make it inside the function." in said


def test_a_result_that_cannot_be_pickled_is_told_from_where_it_was_made(laptop: Laptop) -> None:
    done = laptop.python(f"{FUNCTIONS}\nif __name__ == '__main__':\n    lock.remote()")
    assert "cannot pickle '_thread.lock' object" in done.stderr
    assert "The result cannot be pickled. It is a lock, and pickling it said" in done.stderr
    assert "Return plain values" in done.stderr


# What is too large


def test_arguments_over_the_limit_are_not_sent(laptop: Laptop) -> None:
    said = told(laptop.python(f"{FUNCTIONS}\nsame.remote(bytes(257 << 20))"))
    assert "The arguments of this call are 257.0 MiB. The limit is 256 MiB." in said
    assert "Put the data where workers can read it and pass its path, or split it." in said


def test_a_file_over_the_limit_is_not_read(laptop: Laptop) -> None:
    program = "from levers9 import Client\nopen('large', 'wb').truncate(300 << 20)\nClient().upload_file('large')\n"
    assert "The file large is 300.0 MiB. The limit is 256 MiB." in told(laptop.python(program))


def test_a_result_over_the_limit_ends_its_call_with_the_sizes(laptop: Laptop) -> None:
    done = laptop.python(f"{FUNCTIONS}\nif __name__ == '__main__':\n    many_bytes.remote(257 << 20)")
    assert "The result is too large." in done.stderr
    assert "The result has 257 MiB; at most 256 MiB can be returned." in done.stderr
    assert "Write it to a Volume, and return its path." in done.stderr


# Who may come in


def test_without_a_token_and_without_a_dev_it_says_how_to_get_one(bare_laptop: Laptop) -> None:
    for done in (bare_laptop.python(f"{FUNCTIONS}\nsame.remote(1)"), bare_laptop.levers9("task", "list")):
        assert "There is no token: neither LEVERS9_TOKEN nor" in told(done)
        assert "Start `levers9 dev` on this machine, or run `levers9 login`" in told(done)


@pytest.mark.parametrize(
    ("token", "words"),
    [("nonsense", "The token is malformed."), ("l9_space_" + 43 * "A", "The token is unknown or revoked.")],
)
def test_a_token_that_is_wrong_is_refused_with_what_to_do(laptop: Laptop, token: str, words: str) -> None:
    env = address_of(laptop) | {"LEVERS9_TOKEN": token}
    for done in (laptop.python(f"{FUNCTIONS}\nsame.remote(1)", **env), laptop.levers9("task", "list", **env)):
        assert words in told(done)
        assert "levers9 login" in told(done)


def test_a_revoked_token_is_refused_from_then_on(laptop: Laptop) -> None:
    made = json.loads(laptop.levers9("token", "create", "--name", "short", "--json").stdout)
    env = address_of(laptop) | {"LEVERS9_TOKEN": made["token"]}
    program = f"{FUNCTIONS}\nif __name__ == '__main__':\n    print(same.remote(7))"
    assert laptop.python(program, **env).stdout == "7\n"
    assert "is revoked" in laptop.levers9("token", "revoke", made["token_id"]).stdout
    assert "token" in told(laptop.python(program, **env))
    assert "levers9 login" in told(laptop.levers9("worker", "list", **env))


def address_of(laptop: Laptop) -> dict[str, str]:
    """The environment that names this laptop's control plane."""
    note = json.loads((laptop.runtime / "levers9" / "dev.json").read_text())
    port = note["stream_url"].rpartition(":")[2]
    return {"LEVERS9_CONTROLPLANE_PORT": port, "LEVERS9_HTTP_URL": note["http_url"]}


# What is in the way on the machine


@pytest.mark.parametrize("flag", ["--stream-port", "--http-port"])
def test_a_port_in_use_is_told_with_its_holder(bare_laptop: Laptop, flag: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        others = ("--stream-port", "0", "--http-port", "0")
        said = told(bare_laptop.levers9("dev", *others, flag, port))
    command = Path("/proc/self/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()[:60]
    assert f"Port {port}" in said
    assert f"is in use. Process {os.getpid()} holds it: {command}" in said
    assert "choose another port" in said


def test_a_second_dev_on_the_same_state_is_told_of_the_first(laptop: Laptop) -> None:
    said = told(laptop.levers9("dev", "--stream-port", "0", "--http-port", "0"))
    assert f"levers9 dev already runs on this state (process {laptop.process.pid})." in said


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user, whom a read-only home stops")
def test_a_home_that_may_not_be_written_is_told_and_stops_no_program(laptop: Laptop, bare_laptop: Laptop) -> None:
    bare_laptop.home.chmod(0o555)
    bare_laptop.home.parent.chmod(0o755)
    dev = bare_laptop.run(*_AS_ANOTHER_USER, *LEVERS9, "dev")
    assert f"levers9 keeps its state in {bare_laptop.state}, and that cannot be written: Permission denied." in told(
        dev
    )
    assert "Name another folder with --state-dir." in told(dev)
    config = bare_laptop.run(*_AS_ANOTHER_USER, *LEVERS9, "config", "set", "tls", "true")
    assert "cannot be written: Permission denied. Set LEVERS9_TOKEN" in told(config)
    note = json.loads((laptop.runtime / "levers9" / "dev.json").read_text())
    env = address_of(laptop) | {"LEVERS9_TOKEN": note["token"]}
    script = bare_laptop.file("program.py", f"{FUNCTIONS}\nif __name__ == '__main__':\n    print(same.remote(7))")
    os.utime(script, (0, 0))  # the hashes of files that are as old as that would be kept in the home
    assert bare_laptop.run(*_AS_ANOTHER_USER, sys.executable, str(script), **env).stdout == "7\n"


# What is configured wrongly


def test_a_wrong_key_of_the_client_is_told_with_file_line_and_the_right_one(bare_laptop: Laptop) -> None:
    path = bare_laptop.home / ".levers9" / "config"
    path.parent.mkdir()
    path.write_text("[default]\ntoken = x\ncontrolplane_hots = levers9.example\n")
    for done in (bare_laptop.levers9("task", "list"), bare_laptop.python(f"{FUNCTIONS}\nsame.remote(1)")):
        assert f"{path}, line 3: there is no key 'controlplane_hots'. Did you mean 'controlplane_host'?" in told(done)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('bind = "127.0.0.1"\nstream_prot = 1\n', "line 2: there is no key `stream_prot`. Did you mean `stream_port`?"),
        (
            '[[pools]]\nname = "a"\nmax_wrokers = 1\n',
            "line 3: there is no key `max_wrokers`. Did you mean `max_workers`?",
        ),
        ('[[pools]]\nname = "a"\nmemory = "lots"\n', "line 3: memory"),
        ("gateways = 'two'\n", "line 1: gateways"),
        ("gateways = \n", "line 1"),
    ],
)
def test_a_wrong_key_of_the_control_plane_is_told_with_file_line_and_the_right_one(
    bare_laptop: Laptop, text: str, words: str
) -> None:
    path = bare_laptop.file("settings.toml", text)
    assert f"{path}, {words}" in told(bare_laptop.levers9("controlplane", "--config", str(path)))


# What no machine can do


def test_another_minor_version_of_python_is_refused_with_the_reason(laptop: Laptop) -> None:
    done = laptop.python(
        f"{FUNCTIONS}\nif __name__ == '__main__':\n"
        "    import levers9.sdk.calling as calling\n"
        "    calling.python_minor = lambda: '3.99'\n"
        "    same.remote(1)\n"
    )
    ours = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert f"was made with Python 3.99, and this worker would run it with Python {ours}" in done.stderr
    assert f"Call it from Python {ours}" in done.stderr


def test_a_card_that_nobody_has_is_refused_at_once(laptop: Laptop) -> None:
    said = told(laptop.python("from levers9 import job\n@job(gpu='A100')\ndef f(): ...\nf.remote()\n"))
    assert "No pool has GPUs of type A100. There are no GPUs that you may use." in said
    assert "Attach a cluster that has some (`levers9 cluster join`), or leave gpu and gpu_count out." in said


CARDS = """
[[pools]]
name = "small"
gpu = "T4"
gpu_count = 1

[[pools]]
name = "large"
gpu = "A100"
gpu_count = 8
"""


def test_an_unknown_card_is_told_with_those_that_one_may_use(bare_laptop: Laptop) -> None:
    folder = bare_laptop.home.parent
    plane = ControlPlane(folder / "plane")
    (folder / "plane" / "settings.toml").write_text(CARDS)
    with running(plane):
        plane.wait_for_token()
        port = plane.stream_url.rpartition(":")[2]
        env = {"LEVERS9_TOKEN": plane.token, "LEVERS9_CONTROLPLANE_PORT": port, "LEVERS9_HTTP_URL": plane.http_url}
        program = "from levers9 import job\n@job(gpu='H9000')\ndef f(): ...\nf.remote()\n"
        said = told(bare_laptop.python(program, **env))
    assert "No pool has GPUs of type H9000. GPU types you may use: A100, T4. Ask for one of those." in said


def test_more_cpus_than_any_worker_ever_had_are_refused_with_the_numbers(laptop: Laptop) -> None:
    cpus = len(os.sched_getaffinity(0))
    said = told(laptop.python("from levers9 import job\n@job(cpu=4096)\ndef f(): ...\nf.remote()\n"))
    assert "No worker was ever large enough for cpu=4096, memory=128 MiB" in said
    assert f"The largest had {cpus} CPUs" in said
    assert "Ask for less, or add a pool with larger workers." in said


# Ctrl-C

MAP = """
import time
from pathlib import Path
from levers9 import job

@job(retries=0)
def wait(number):
    Path(EFFECTS, str(number)).touch()
    time.sleep(60)

if __name__ == "__main__":
    for _ in wait.map(range(40)):
        pass
"""


def test_ctrl_c_during_a_map_cancels_and_says_so(laptop: Laptop, tmp_path: Path) -> None:
    before = tasks_of(laptop)
    script = laptop.file("interrupted.py", MAP.replace("EFFECTS", repr(str(tmp_path))))
    with laptop.open(sys.executable, str(script)) as program:
        wait_for_files(tmp_path, 2)
        program.send_signal(signal.SIGINT)
        _, err = program.communicate(timeout=30)
    assert program.returncode == -signal.SIGINT  # what a shell tells as 130
    assert "levers9: interrupted; 40 calls cancelled" in err
    assert states_once_ended(laptop, before) == {"CANCELLED": 40}


def test_ctrl_c_during_a_run_cancels_and_ends_with_130(laptop: Laptop, tmp_path: Path) -> None:
    before = tasks_of(laptop)
    script = laptop.file("interrupted.py", MAP.replace("EFFECTS", repr(str(tmp_path))))
    with laptop.open(*LEVERS9, "run", f"{script}:wait", "1") as program:
        wait_for_files(tmp_path, 1)
        program.send_signal(signal.SIGINT)
        _, err = program.communicate(timeout=30)
    assert program.returncode == 130
    assert "levers9: interrupted; 1 call cancelled" in err
    assert "Traceback" not in err
    assert states_once_ended(laptop, before) == {"CANCELLED": 1}


def wait_for_files(folder: Path, count: int) -> None:
    """Return once so many calls have begun."""
    ends_s = time.monotonic() + 30
    while len(list(folder.iterdir())) < count:
        assert time.monotonic() < ends_s, "no call began"
        time.sleep(0.02)


def tasks_of(laptop: Laptop) -> dict[str, str]:
    """The state of each call."""
    listed = json.loads(laptop.levers9("task", "list", "--limit", "1000", "--json").stdout)
    return {one["task_id"]: one["state"] for one in listed}


def states_once_ended(laptop: Laptop, before: dict[str, str]) -> dict[str, int]:
    """How the calls ended that were made since then, once all have."""
    ends_s = time.monotonic() + 30
    while True:
        states = Counter(state for task, state in tasks_of(laptop).items() if task not in before)
        if not {"PENDING", "RUNNING", "CANCELLING"} & set(states):
            return dict(states)
        assert time.monotonic() < ends_s, states
