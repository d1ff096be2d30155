"""What `levers9 dev` takes from a file, and what stays its own."""

from __future__ import annotations

from pathlib import Path

from levers9.daemons.dev import with_file
from levers9.daemons.settings import Settings

FILE = """
state_dir = "/srv"
http_port = 80
external_url = "https://levers9.example"
external_ca = "/srv/ca.pem"

[attached_clusters]
clusters_per_workspace = 2

[[pools]]
name = "home"
"""


def test_a_file_says_by_which_address_attached_clusters_find_it_and_not_where_its_state_is(tmp_path: Path) -> None:
    path = tmp_path / "dev.toml"
    path.write_text(FILE)
    ours = Settings(state_dir="/ours", http_port=0)
    found = with_file(ours, path)
    assert (found.external_url, found.external_ca) == ("https://levers9.example", "/srv/ca.pem")
    assert (found.attached_clusters.clusters_per_workspace, [pool.name for pool in found.pools]) == (2, ["home"])
    assert (found.state_dir, found.http_port) == ("/ours", 0)
