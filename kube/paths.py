"""Where the API server serves what: paths and queries. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from .face import Kind

T = TypeVar("T", bound=msgspec.Struct)
PAGE: Final = 500  # objects a page, as Kubernetes' own clients ask for


def collection(kind: Kind[T], namespace: str = "") -> str:
    """The path of all objects of a kind, in one namespace or, where it is "", in all of them."""
    root = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    if kind.namespaced and namespace:
        return f"{root}/namespaces/{quote(namespace, safe='')}/{kind.plural}"
    return f"{root}/{kind.plural}"


def single(kind: Kind[T], name: str, namespace: str = "", subresource: str = "") -> str:
    """The path of one object, or of a subresource of it, such as "status"."""
    path = f"{collection(kind, namespace)}/{quote(name, safe='')}"
    return f"{path}/{subresource}" if subresource else path


def query(parts: Mapping[str, str | int]) -> str:
    """`?key=value&…` of those that are set."""
    text = urlencode({key: value for key, value in parts.items() if value})
    return f"?{text}" if text else ""


def page_of(labels: str, fields: str, *, limit: int, after: str) -> str:
    """The query of one page of a list; `limit` 0 asks for everything at once, `after` is where to go on."""
    return query({"labelSelector": labels, "fieldSelector": fields, "limit": limit, "continue": after})


def watch_of(labels: str, fields: str, *, since: str, limit_s: int) -> str:
    """The query of a watch that the server ends after `limit_s`."""
    selected = {"labelSelector": labels, "fieldSelector": fields, "resourceVersion": since}
    return query({"watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": limit_s, **selected})


def typed(kind: Kind[T], body: Mapping[str, object]) -> dict[str, object]:
    """A body with the kind that it is of, as the API server wants it."""
    version = f"{kind.group}/{kind.version}" if kind.group else kind.version
    return {"apiVersion": version, "kind": kind.singular, **body}
