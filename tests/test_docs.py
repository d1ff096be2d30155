"""The pages: their examples are files that run, their links lead somewhere, their tables are those of the code."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from levers9.daemons.controlplane import _parser as controlplane_flags
from levers9.daemons.dev import _parser as dev_flags
from levers9.daemons.settings import TABLES, GuardTable, NodeTable, PoolTable, Settings
from levers9.model.reasons import Holder, HoldKind, Lack, Reason
from levers9.model.routes import ALLOWED, Route
from levers9.model.sentences import sentence
from levers9.model.states import CONTAINER_TRANSITIONS, TASK_TRANSITIONS, WORKER_TRANSITIONS, TokenKind
from levers9.model.tokens import PREFIXES
from levers9.sdk.config import KEYS, VARIABLES

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "wire" / "SPEC.md", *(ROOT / "docs").rglob("*.md")])
DECISIONS = sorted((ROOT / "docs" / "decisions").glob("*.md"))


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def fences(text: str, language: str) -> list[str]:
    """List the code blocks of one language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def prose(text: str) -> str:
    """Leave out code blocks and inline code, which hold no links."""
    return re.sub(r"`[^`\n]*`", "", re.sub(r"^ *```.*?^ *```$", "", text, flags=re.MULTILINE | re.DOTALL))


def anchors(text: str) -> set[str]:
    """The names by which headings are linked to."""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links(page: Path) -> Iterator[tuple[str, str]]:
    """Each link into the repository: its path, and its anchor."""
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page.read_text(encoding="utf-8"))):
        if "://" not in target:
            path, _, anchor = target.partition("#")
            yield path, anchor


def rows(text: str) -> list[list[str]]:
    """The cells of every table."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    for path, anchor in links(page):
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{path} does not exist"
        assert target.is_relative_to(ROOT), f"{path} leaves the repository"
        if anchor:
            assert anchor in anchors(target.read_text(encoding="utf-8")), f"{path} has no heading {anchor}"


def test_each_python_example_of_the_readme_is_a_file() -> None:
    files = {path.read_text(encoding="utf-8") for path in (ROOT / "examples").rglob("*.py")}
    examples = fences(text_of("README.md"), "python")
    assert examples
    assert [example for example in examples if example not in files] == []


@pytest.mark.parametrize("language", ["toml", "python"])
def test_each_example_about_queues_is_part_of_a_file_that_runs(language: str) -> None:
    """`tests/faults/test_ai_lab.py` runs them."""
    files = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "examples").glob("ai_lab.*"))]
    examples = fences(text_of("docs/how-to/queues-and-quotas.md"), language)
    assert examples
    assert [example for example in examples if not any(example in file for file in files)] == []


def test_the_readme_tells_a_hold_in_the_words_of_the_code() -> None:
    """`tests/faults/test_ai_lab.py` sees that this is what the example is held by."""
    train = Holder("train", containers=2, gpu_milli=8000, frees_by_s=60_060.0)  # 16:41
    lacks = (Lack("GB200", 8000),)
    hold = Reason(kind=HoldKind.QUOTA, quota="gpu", flavor="gb200", lacks=lacks, holders=(train,))
    assert f"\n- {sentence(hold, now_s=57_000.0)}\n" in text_of("README.md")


def test_the_readme_names_scripts_and_files_that_exist() -> None:
    named = re.findall(r"\b(?:scripts|examples|docs|bench)/[\w./-]*\w", text_of("README.md"))
    assert named
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_the_benches_on_the_page_exist() -> None:
    named = re.findall(r"`scripts/bench (\w+)`", text_of("docs/performance.md"))
    assert named
    assert [name for name in named if not (ROOT / "bench" / f"{name}.py").exists()] == []


def test_the_picture_is_an_svg_without_scripts() -> None:
    picture = text_of("docs/placement_study.svg")
    assert picture.startswith("<svg")
    assert "<script" not in picture


def test_decisions_are_numbered_once_and_say_what_was_decided() -> None:
    numbers = [page.name[:4] for page in DECISIONS]
    assert len(set(numbers)) == len(numbers)
    for page in DECISIONS:
        text = page.read_text(encoding="utf-8")
        assert text.startswith(f"# {page.name[:4]}: ")
        assert "**Decided.**" in text


def test_the_configuration_page_names_every_key_variable_and_flag_of_a_control_plane() -> None:
    page = text_of("docs/configuration.md")
    keys = {name for name in Settings.__struct_fields__ if name not in TABLES}
    variables = {f"LEVERS9_{name.upper()}" for name in keys}
    flags = {f"--{name.replace('_', '-')}" for name in keys}
    tables = (PoolTable, NodeTable, GuardTable)
    fields = {name for table in tables for name in table.__struct_fields__}
    wanted = {*keys, *TABLES, *fields, *variables, *flags}
    assert sorted(name for name in wanted if f"`{name}`" not in page) == []


def test_the_configuration_page_names_the_flags_of_both_daemons() -> None:
    page = text_of("docs/configuration.md")
    actions = [*controlplane_flags()._actions, *dev_flags()._actions]
    flags = {flag for action in actions for flag in action.option_strings if flag not in ("-h", "--help")}
    assert sorted(flag for flag in flags if flag not in page) == []


def test_the_configuration_page_names_what_the_sdk_reads() -> None:
    page = text_of("docs/configuration.md")
    assert [name for name in (*KEYS, *VARIABLES.values()) if f"`{name}`" not in page] == []


def test_the_security_page_has_the_table_of_the_code() -> None:
    table = [row for row in rows(text_of("docs/security.md")) if len(row) == len(TokenKind) + 1]
    kinds = [TokenKind(cell.strip("`")) for cell in table[0][1:]]
    on_page = {
        Route(row[0].strip("`")): frozenset(kind for kind, cell in zip(kinds, row[1:], strict=True) if cell == "yes")
        for row in table[2:]
    }
    assert on_page == ALLOWED


def test_the_security_page_names_each_kind_and_its_prefix() -> None:
    cells = {(row[0].strip("`"), row[1].strip("`")) for row in rows(text_of("docs/security.md")) if len(row) == 4}
    assert {(str(kind), prefix) for kind, prefix in PREFIXES.items()} <= cells


def test_the_lifecycles_are_those_of_the_tables() -> None:
    drawn = re.findall(r"^    (\w+) --> (\w+): (.+)$", text_of("docs/lifecycles.md"), re.MULTILINE)
    tables = (TASK_TRANSITIONS, CONTAINER_TRANSITIONS, WORKER_TRANSITIONS)
    known = [(state.name, follower.name, event.value) for table in tables for (state, event), follower in table.items()]
    assert sorted(drawn) == sorted(known)


def test_glossary_terms_are_in_order_and_named_once() -> None:
    terms = re.findall(r"^\| \*\*(.+?)\*\* \|", text_of("docs/glossary.md"), re.MULTILINE)
    assert terms == sorted(set(terms))
