"""What a worker is told by a pod: its token, its address, whom to trust, and how long it may take to leave."""

import subprocess
import sys
from pathlib import Path

import pytest
import trustme

from levers9.daemons.worker import main
from levers9.daemons.worker_config import POD_DRAIN_S, TOKEN, parse
from levers9.errors import ConfigError
from levers9.model.figures import JOB_GRACE_S, STOP_GRACE_S, WORKER_PORT

WORDS = ["--id", "w", "--url", "wss://plane.test", "--http-url", "https://plane.test", "--gpu-count", "4"]


@pytest.fixture
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN, "l9_workr_x\n")


@pytest.mark.usefixtures("token")
def test_the_token_is_taken_out_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert parse(WORDS).token == "l9_workr_x"
    with pytest.raises(ConfigError, match="Workers are started by the pools"):
        parse(WORDS)


LOOKS = """
import os, pathlib, subprocess, sys
from levers9.daemons.worker_config import parse
config = parse(sys.argv[1:])
assert config.token == "l9_workr_canary", config.token
child = subprocess.run(["env"], capture_output=True, text=True, check=True).stdout
print("canary" in pathlib.Path("/proc/self/environ").read_text(), "canary" in child)
"""


@pytest.mark.slow
def test_neither_children_nor_the_kernel_show_the_token_afterwards() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOOKS, *WORDS],
        env={TOKEN: "l9_workr_canary", "PATH": "/usr/bin:/bin", "HOME": "/nowhere"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["False", "False"]


@pytest.mark.usefixtures("token")
def test_a_pod_says_where_the_worker_is_reached_and_leaves_time_for_last_words() -> None:
    config = parse(WORDS, {"LEVERS9_POD_IP": "10.2.3.4"})
    assert (config.host, config.grace_s, config.root_pid) == ("10.2.3.4", POD_DRAIN_S, 0)
    assert config.grace_s + config.stop_grace_s < JOB_GRACE_S
    assert config.state_folder == Path.home() / ".levers9" / "workers" / "w"


@pytest.mark.usefixtures("token")
def test_an_address_on_the_command_line_goes_first_and_one_of_no_use_is_told() -> None:
    assert parse([*WORDS, "--advertise-host", "10.0.0.7"], {"LEVERS9_POD_IP": "10.2.3.4"}).host == "10.0.0.7"


@pytest.mark.usefixtures("token")
def test_an_address_of_no_use_is_told_with_where_it_comes_from() -> None:
    with pytest.raises(ConfigError, match=r"LEVERS9_POD_IP='\$\(POD\)' is no address.*status\.podIP"):
        parse(WORDS, {"LEVERS9_POD_IP": "$(POD)"})


@pytest.mark.usefixtures("token")
def test_outside_a_pod_the_grace_is_that_of_containers() -> None:
    assert parse(WORDS, {}).grace_s == STOP_GRACE_S


@pytest.mark.parametrize(
    ("environment", "devices", "cards", "lacks"),
    [
        ({}, 0, 4, ""),
        ({"NVIDIA_VISIBLE_DEVICES": "GPU-a,GPU-b"}, 8, 2, "only 2 of the 4 cards that were ordered are there"),
        ({"NVIDIA_VISIBLE_DEVICES": "a,b,c,d,e"}, 8, 4, ""),
        (
            {"LEVERS9_POD_IP": "10.2.3.4", "NVIDIA_VISIBLE_DEVICES": "void"},
            8,
            0,
            "the driver shows 8 cards, and nothing says which 4 of them are its own",
        ),
        ({"LEVERS9_POD_IP": "10.2.3.4", "NVIDIA_VISIBLE_DEVICES": "void"}, 4, 4, ""),
    ],
)
@pytest.mark.usefixtures("token")
def test_a_worker_has_no_more_cards_than_are_known_to_be_its_own_and_says_why(
    environment: dict[str, str], devices: int, cards: int, lacks: str
) -> None:
    config = parse(WORDS, environment, devices)
    assert (config.capacity.gpu_count, config.lacks) == (cards, lacks)


@pytest.mark.usefixtures("token")
def test_certificates_and_a_proxy_come_from_the_environment() -> None:
    pem = trustme.CA().cert_pem.bytes().decode()
    config = parse(WORDS, {"LEVERS9_CA_PEM": pem, "HTTPS_PROXY": "http://proxy:3128"})
    assert (config.ca_pem, config.http_proxy) == (pem, "http://proxy:3128")


@pytest.mark.parametrize(
    ("variable", "value", "why"),
    [
        ("LEVERS9_CA_PEM", "nonsense", "LEVERS9_CA_PEM holds no certificate"),
        ("HTTPS_PROXY", "socks5://proxy:1080", "write HTTPS_PROXY as http://HOST:PORT"),
    ],
)
@pytest.mark.usefixtures("token")
def test_what_is_of_no_use_is_told_before_anything_starts(
    variable: str, value: str, why: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(variable, value)
    assert main(WORDS) == 2
    assert why in capsys.readouterr().err


@pytest.mark.usefixtures("token")
def test_a_missing_option_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["--id", "w"])
    assert "--http-url" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("asked", "environment", "place"),
    [
        ((), {"LEVERS9_POD_IP": "10.2.3.4"}, ("10.2.3.4", WORKER_PORT)),
        ((), {}, ("0.0.0.0", WORKER_PORT)),
        ((":7",), {"LEVERS9_POD_IP": "10.2.3.4"}, ("10.2.3.4", 7)),
        (("127.0.0.1:0",), {"LEVERS9_POD_IP": "10.2.3.4"}, ("127.0.0.1", 0)),
        (("[fd00::1]:7",), {}, ("fd00::1", 7)),
    ],
)
@pytest.mark.usefixtures("token")
def test_a_worker_that_is_dialled_listens_at_its_pod_s_address(
    asked: tuple[str, ...], environment: dict[str, str], place: tuple[str, int]
) -> None:
    config = parse(["--id", "w", "--listen", *asked, "--http-url", "https://plane.test"], environment)
    assert (config.listen, config.urls) == (place, ())


@pytest.mark.usefixtures("token")
def test_a_place_to_listen_without_a_port_is_told() -> None:
    with pytest.raises(ConfigError, match="--listen 'here:there' names no port"):
        parse(["--id", "w", "--listen", "here:there", "--http-url", "https://plane.test"], {})
