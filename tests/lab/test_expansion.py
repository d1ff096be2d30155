"""What a container's process is given."""

import pytest

from levers9.kube.objects import Resources
from levers9.lab.expansion import MountPaths, PodPlace, expand, field_of, quantity, resource_of
from levers9.lab.objects import Container, Pod, PodMeta, PodSpec, ResourceRef

PLACE = PodPlace(node="tray-0", host_ip="127.77.0.1", pod_ip="127.77.0.2")
POD = Pod(
    metadata=PodMeta(name="one", namespace="ns", uid="u1", labels={"b": "2", "a": "1"}),
    spec=PodSpec(service_account_name="agent"),
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$(NAME)", "value"),
        ("a$(NAME)b$(NAME)", "avaluebvalue"),
        ("$(OTHER)", "$(OTHER)"),
        ("$$(NAME)", "$(NAME)"),
        ("$NAME ${NAME}", "$NAME ${NAME}"),
        ("100$", "100$"),
    ],
)
def test_references_are_expanded_as_kubernetes_does(text: str, expected: str) -> None:
    assert expand(text, {"NAME": "value"}) == expected


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("metadata.name", "one"),
        ("metadata.namespace", "ns"),
        ("metadata.uid", "u1"),
        ("metadata.labels['a']", "1"),
        ("metadata.annotations['a']", ""),
        ("metadata.labels", 'a="1"\nb="2"'),
        ("spec.nodeName", "tray-0"),
        ("spec.serviceAccountName", "agent"),
        ("status.hostIP", "127.77.0.1"),
        ("status.podIP", "127.77.0.2"),
    ],
)
def test_a_pod_tells_its_fields(path: str, expected: str) -> None:
    assert field_of(POD, path, PLACE) == expected


def test_an_unknown_field_is_an_error() -> None:
    with pytest.raises(ValueError):
        field_of(POD, "spec.containers", PLACE)


@pytest.mark.parametrize(("text", "expected"), [("2", 2), ("1Gi", 2**30), ("1.5Ki", 1536)])
def test_quantities_are_read(text: str, expected: int) -> None:
    assert quantity(text) == expected * 10**9


@pytest.mark.parametrize("text", ["", "Gi", "1Xi", "one"])
def test_what_is_no_quantity_is_an_error(text: str) -> None:
    with pytest.raises(ValueError):
        quantity(text)


@pytest.mark.parametrize(
    ("resource", "divisor", "expected"),
    [
        ("limits.cpu", "1", "2"),
        ("limits.cpu", "1m", "1500"),
        ("requests.memory", "1Mi", "64"),
        ("limits.memory", "1Gi", "512"),  # none of its own: the node's
    ],
)
def test_a_container_learns_what_it_may_use(resource: str, divisor: str, expected: str) -> None:
    own = Container(name="main", resources=Resources(limits={"cpu": "1500m"}, requests={"memory": "64Mi"}))
    ref = ResourceRef(resource=resource, divisor=divisor)
    assert resource_of((own,), own, ref, {"memory": "512Gi"}) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/data", "/real/d"),
        ("/data/", "/real/d/"),
        ("cat /data/x > /data/y", "cat /real/d/x > /real/d/y"),
        ("--path=/data/x", "--path=/real/d/x"),
        ("/database", "/database"),
        ("/srv/data", "/srv/data"),
        ("/data/inner/x", "/real/i/x"),
        ("https://host/data", "https://host/data"),
    ],
)
def test_the_path_of_a_mount_becomes_where_it_really_is(text: str, expected: str) -> None:
    assert MountPaths({"/data": "/real/d", "/data/inner": "/real/i"}).rewrite(text) == expected


def test_without_mounts_nothing_changes() -> None:
    assert MountPaths({}).rewrite("/data") == "/data"
