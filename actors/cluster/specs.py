"""What a person may say of a cluster that joins: what Kubernetes would refuse later is refused at once, and why."""

from __future__ import annotations

import re
from typing import Final

from ...errors import INVALID, Refused
from ...model.clusters import ClusterSpec, check_name
from ...model.selectors import parse

LONGEST: Final = 500  # characters of a selector or of an image's name
_LABEL: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_CARD: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_IMAGE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]*")


def check(spec: ClusterSpec) -> None:
    """Raises `Refused` for what no cluster can be."""
    check_name(spec.name)
    if not spec.gpu_type:
        raise Refused("Which cards does it have?", fix="Give their type, such as --gpu GB200.", code=INVALID)
    if not spec.namespace:
        raise Refused("A namespace without a name.", fix="Leave it out: it is `levers9` then.", code=INVALID)
    _check("type of card", spec.gpu_type, _CARD, "Write 1 to 63 of A-Z, a-z, 0-9, '.', '_' and '-', such as GB200.")
    _check("namespace", spec.namespace, _LABEL, "Write 1 to 63 of a-z, 0-9 and '-', such as levers9.")
    if spec.worker_image:
        _check("image", spec.worker_image, _IMAGE, "Write it as in a pod, such as registry.example/levers9/worker:1.")
    if spec.pull_secret:
        fix = "Write the name of a secret in the namespace: of a-z, 0-9, '.' and '-'."
        _check("secret's name", spec.pull_secret, _SUBDOMAIN, fix)
    _check_selector(spec.selector)


def _check(what: str, word: str, form: re.Pattern[str], fix: str) -> None:
    _check_length(word)
    if not form.fullmatch(word):
        raise Refused(f"{word[:40]!r} is no {what}.", "Kubernetes would not take it.", fix, INVALID)


def _check_selector(selector: str) -> None:
    _check_length(selector)
    if not selector.isprintable():
        raise Refused(f"{selector[:40]!r} selects no nodes.", fix="Write it in one line.", code=INVALID)
    parse(selector)


def _check_length(word: str) -> None:
    if len(word) > LONGEST:
        raise Refused(f"{word[:40]!r}… is too long.", fix=f"Write at most {LONGEST} characters.", code=INVALID)
