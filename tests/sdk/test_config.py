"""Where the control plane is: files, variables, arguments, and a running `levers9 dev`."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from levers9 import Client
from levers9.errors import ConfigError
from levers9.model.places import dev_connection_path
from levers9.sdk.config import config_path, read_file, resolve


def write(text: str) -> Path:
    path = config_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def write_dev(process_id: int) -> None:
    path = Path(dev_connection_path(os.environ, os.getuid()))
    path.parent.mkdir(parents=True, exist_ok=True)
    told = {"stream_url": "ws://127.0.0.1:5", "http_url": "http://127.0.0.1:6/", "token": "d"}
    path.write_text(json.dumps({**told, "pid": process_id}))


def test_the_file_is_read() -> None:
    write("[default]\ntoken = abc\ncontrolplane_host = levers9.example\ncontrolplane_port = 443\ntls = true\n")
    settings = resolve(environment={})
    assert settings.token == "abc"
    assert settings.stream_url == "wss://levers9.example:443/v1/stream?peer=client"
    assert settings.http_url == "https://levers9.example:443"


def test_variables_come_before_the_file_and_arguments_before_both() -> None:
    write("[default]\ntoken = of-the-file\n")
    assert resolve(environment={"LEVERS9_TOKEN": "of-the-variable"}).token == "of-the-variable"
    assert resolve("of-the-program", environment={"LEVERS9_TOKEN": "of-the-variable"}).token == "of-the-program"


def test_the_http_address_is_beside_the_stream_by_default() -> None:
    assert resolve("t", environment={}).http_url == "http://127.0.0.1:1994"
    assert resolve("t", port=7000, environment={}).http_url == "http://127.0.0.1:7000"
    assert resolve("t", environment={"LEVERS9_HTTP_URL": "http://127.0.0.1:3"}).http_url == "http://127.0.0.1:3"


def test_a_wrong_key_names_file_line_and_the_nearest_right_key() -> None:
    path = write("[default]\n# a comment\ncontrolplane_hots = x\n")
    with pytest.raises(ConfigError) as caught:
        resolve(environment={})
    assert str(caught.value) == (
        f"{path}, line 3: there is no key 'controlplane_hots'. Did you mean 'controlplane_host'?"
    )


def test_a_wrong_section_names_the_right_one() -> None:
    write("\n[defualt]\ntoken = x\n")
    with pytest.raises(ConfigError, match=r"line 2: there is no section 'default', but \[defualt\]"):
        resolve(environment={})


@pytest.mark.parametrize("text", ["token = x\n", "[default]\nnonsense\n", "[default]\ntoken=a\ntoken=b\n"])
def test_a_file_that_is_none_names_its_line(text: str) -> None:
    write(text)
    with pytest.raises(ConfigError, match=r"line [123]: .*Write KEY = VALUE"):
        read_file(config_path())


@pytest.mark.parametrize(("key", "value"), [("controlplane_port", "seventy"), ("tls", "perhaps")])
def test_a_wrong_value_names_where_it_stands(key: str, value: str) -> None:
    path = write(f"[default]\ntoken = t\n{key} = {value}\n")
    with pytest.raises(ConfigError, match=f"{key} in {path} is '{value}'"):
        resolve(environment={})


def test_a_token_never_travels_in_the_clear() -> None:
    with pytest.raises(ConfigError, match="unencrypted to far"):
        resolve("t", "far.example", environment={})
    with pytest.raises(ConfigError, match="unencrypted to far"):
        resolve("t", environment={"LEVERS9_HTTP_URL": "http://far.example"})


@pytest.mark.parametrize("host", ["localhost", "127.0.0.2", "::1", "::ffff:127.0.0.1"])
def test_a_token_travels_in_the_clear_to_this_machine(host: str) -> None:
    shown = f"[{host}]" if ":" in host else host
    assert resolve("t", host, environment={}).http_url == f"http://{shown}:1994"


def test_a_running_dev_is_found_without_configuration() -> None:
    write_dev(os.getpid())
    settings = resolve(environment={})
    assert (settings.token, settings.http_url, settings.origin) == ("d", "http://127.0.0.1:6", "levers9 dev")


def test_a_configuration_comes_before_a_running_dev() -> None:
    write_dev(os.getpid())
    assert resolve(environment={"LEVERS9_TOKEN": "t"}).token == "t"


def test_a_dev_that_has_ended_is_not_found() -> None:
    write_dev(2**22 + 1)  # no process has so high an id
    with pytest.raises(ConfigError, match="no `levers9 dev` runs here"):
        resolve(environment={})


def test_a_client_without_a_token_says_what_to_do() -> None:
    with pytest.raises(ConfigError, match="levers9 login"):
        Client()


def test_a_client_takes_what_it_is_given() -> None:
    client = Client("t", "127.0.0.1", 7001, False)
    assert client.settings.stream_url == "ws://127.0.0.1:7001/v1/stream?peer=client"
