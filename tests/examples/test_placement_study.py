"""The study's simulator keeps to the cluster's limits and to the published figures; its chart shows every policy."""

from __future__ import annotations

import itertools
import sys
from io import StringIO
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
sys.path.insert(0, str(EXAMPLES))  # as it is for `python examples/placement_study.py`

from study import chart, trace  # noqa: E402
from study.findings import draw_findings, headline, meaning, table  # noqa: E402
from study.policies import OURS, POLICIES  # noqa: E402
from study.published import published  # noqa: E402
from study.simulator import DEMAND_PCT, fill, in_order  # noqa: E402
from study.trace import VARIANTS  # noqa: E402

from levers9.model.resources import CARD_MILLI  # noqa: E402

SVG = "{http://www.w3.org/2000/svg}"


class TestTrace:
    def test_the_cluster_has_1213_nodes_and_6212_gpus_in_any_order(self) -> None:
        for order in (None, np.random.default_rng(1)):
            nodes = trace.cluster(order)
            assert (len(nodes), sum(len(node.free_cards) for node in nodes)) == (1213, 6212)
            assert all(node.free_cards == [CARD_MILLI] * node.kind.capacity.gpu_count for node in nodes)

    def test_an_order_that_is_drawn_differs_from_that_of_the_file_and_can_be_drawn_again(self) -> None:
        makes = [[node.kind for node in trace.cluster(order)] for order in (None, *map(np.random.default_rng, (1, 1)))]
        assert makes[0] != makes[1] == makes[2]

    @pytest.mark.parametrize("variant", VARIANTS)
    def test_each_workload_parses_and_every_pod_asks_for_cards_that_some_node_has(self, variant: str) -> None:
        makes = {node.kind.capacity for node in trace.cluster()}
        asked = {msgspec.structs.replace(shape, cpu_milli=0, memory_mib=0) for shape in trace.pods(variant)}
        assert len(trace.pods(variant)) > 1000
        assert [shape for shape in asked if not any(make.fits(shape) for make in makes)] == []

    def test_a_list_of_card_models_that_repeats_one_allows_just_those_on_it(self) -> None:
        lists = {shape.gpu_types for shape in trace.pods("gpuspec33")}
        assert ("V100M16", "V100M32") in lists
        assert all(len(set(types)) == len(types) for types in lists)

    def test_the_models_of_a_list_are_as_good_as_each_other(self) -> None:
        assert {shape.preference(model) for shape in trace.pods("gpuspec33") for model in shape.gpu_types} == {0}


class TestPublished:
    def test_the_table_has_ten_seeds_of_each_policy_on_each_workload(self) -> None:
        assert set(published()) == set(itertools.product(VARIANTS, set(POLICIES) - {OURS}))
        assert {curves.shape for curves in published().values()} == {(10, DEMAND_PCT + 1)}

    @pytest.mark.parametrize(
        ("policy", "mean"),
        [("random", 87.47), ("dot_product", 90.85), ("clustering", 91.88), ("best_fit", 93.08), ("fgd", 95.39)],
    )
    def test_its_ends_are_those_that_the_paper_gives(self, policy: str, mean: float) -> None:
        assert published()["default", policy][:, -1].mean() == pytest.approx(mean, abs=0.01)


class TestReplay:
    @pytest.mark.slow
    @pytest.mark.parametrize("policy", sorted(set(POLICIES) - {OURS}))
    def test_a_replay_ends_near_the_published_figure(self, policy: str) -> None:
        ended = fill(policy, "default", 42)
        points = 1.0 if policy == "dot_product" else 0.5  # the published runs differ from one another by as much
        assert ended.allocated_pct[-1] == pytest.approx(published()["default", policy][:, -1].mean(), abs=points)

    @pytest.mark.slow
    @pytest.mark.parametrize("policy", POLICIES)
    def test_what_it_calls_allocated_is_free_no_more(self, policy: str) -> None:
        ended = fill(policy, "multigpu50", 42)
        nodes = ended.nodes.values()
        assert min(min(node.cpu_milli, node.memory_mib, *node.free_cards) for node in nodes) == 0
        allocated = 6_212_000 - sum(sum(node.free_cards) for node in nodes)
        assert 100 * allocated / 6_212_000 == pytest.approx(ended.allocated_pct[-1], abs=0.03)

    @pytest.mark.slow
    def test_it_counts_pods_by_what_they_want_of_cards(self) -> None:
        ended = fill("best_fit", "default", 42)
        assert set(ended.arrived) == {"no card", "a share", "one card", "several cards"}
        assert all(0 < ended.placed[name] <= count for name, count in ended.arrived.items())
        assert sum(len(node.uses) for node in ended.nodes.values()) == sum(ended.placed.values())

    def test_pods_come_in_the_order_of_the_file_again_and_again(self) -> None:
        known = trace.pods("multigpu50")
        assert tuple(itertools.islice(in_order("multigpu50"), len(known) + 2)) == (*known, *known[:2])

    @pytest.mark.slow
    def test_the_same_case_gives_the_same_curve_and_it_never_falls(self) -> None:
        first, again = (fill("random", "multigpu50", 7).allocated_pct for _ in range(2))
        assert first == again
        assert len(first) == DEMAND_PCT + 1
        assert first == sorted(first)

    @pytest.mark.slow
    def test_nothing_is_allocated_beyond_what_arrived(self) -> None:
        curve = fill("best_fit", "default", 3).allocated_pct
        assert all(allocated <= arrived + 0.2 for arrived, allocated in enumerate(curve))


def a_panel(name: str, *policies: str) -> chart.Panel:
    lines = []
    for place, policy in enumerate(policies):
        curve = np.minimum(np.arange(DEMAND_PCT + 1.0), 90 + place)
        lines.append(chart.Series(policy, curve, np.full(DEMAND_PCT + 1, 0.2), curve))
    return chart.Panel(name, "words & more <words>", lines)


class TestChart:
    def test_it_is_well_formed_with_a_line_and_a_name_for_each_policy(self) -> None:
        drawn = chart.draw(
            [a_panel("default", *POLICIES), a_panel("cpu050", "fgd")], 'A "title" & <more>', ["lead"], "s"
        )
        root = ElementTree.fromstring(drawn)
        lines = {
            panel.get("id"): [path.get("data-policy") for path in panel.iter(f"{SVG}path") if path.get("data-policy")]
            for panel in root.iter(f"{SVG}g")
        }
        assert {name: sorted(policies) for name, policies in lines.items()} == {
            "default": sorted(POLICIES),
            "cpu050": ["fgd"],
        }
        words = " ".join(text.text or "" for text in root.iter(f"{SVG}text"))
        assert all(chart.NAMED[policy] in words for policy in POLICIES)

    def test_everything_lies_inside_the_picture(self) -> None:
        root = ElementTree.fromstring(chart.draw([a_panel("default", *POLICIES)] * 17, "t", ["l"], "s"))
        height = float(root.get("height", "0"))
        texts = [(float(text.get("x", "-1")), float(text.get("y", "-1"))) for text in root.iter(f"{SVG}text")]
        assert all(0 <= x <= chart.WIDTH and 0 <= y <= height for x, y in texts)

    @given(st.lists(st.floats(0, 300), min_size=1, max_size=8).map(sorted))
    def test_names_never_overlap_and_keep_their_order(self, wanted: list[float]) -> None:
        placed = chart.spread(wanted, 16, least=20)
        assert placed[0] >= 20
        assert len(placed) == len(wanted)
        assert all(after - before > 16 - 1e-6 for before, after in itertools.pairwise(placed))

    def test_names_that_have_room_stay_beside_their_lines(self) -> None:
        assert chart.spread([10.0, 50.0, 100.0], 16, least=0) == [10.0, 50.0, 100.0]

    @pytest.mark.parametrize("policy", POLICIES)
    def test_each_colour_is_dark_enough_to_write_in(self, policy: str) -> None:
        assert contrast_with_white(chart.COLOURS[policy]) >= 4.5


def ending_at(*percents: float) -> list[list[float]]:
    """Curves that place everything up to there, and nothing after."""
    return [[min(float(arrived), percent) for arrived in range(DEMAND_PCT + 1)] for percent in percents]


class TestFindings:
    def test_the_table_gives_mean_deviation_published_and_difference(self) -> None:
        shown = Console(width=100, file=StringIO(), record=True)
        shown.print(table({("default", "best_fit"): ending_at(92.0, 93.0), ("cpu050", "fgd"): ending_at(95.0)}))
        text = shown.export_text()
        assert "92.50 ± 0.50" in text
        assert "93.08 ± 0.13" in text
        assert "-0.58" in text
        assert text.index("default") < text.index("cpu050")

    def test_the_table_fits_a_terminal_of_80_columns(self) -> None:
        shown = Console(width=80, file=StringIO(), record=True)
        shown.print(table({("gpushare100", "clustering"): ending_at(82.0)}))
        assert "…" not in shown.export_text()

    def test_the_title_names_the_best_and_the_worst_policy_and_the_gpus_they_leave(self) -> None:
        drawn = draw_findings({("default", "random"): ending_at(87.5), ("default", "fgd"): ending_at(95.0)})
        assert "FGD leaves 311 of 6,212 GPUs idle under overload, random placement 776" in drawn
        assert "2 replays" in drawn

    def test_a_single_policy_is_compared_with_none(self) -> None:
        assert headline(a_panel("default", "best_fit")) == "Best fit leaves 621 of 6,212 GPUs idle under overload"

    def test_each_workload_has_words_for_what_it_is(self) -> None:
        assert len({meaning(variant) for variant in VARIANTS}) == len(VARIANTS)
        assert meaning("cpu050") == "5 % of all pods want no GPU"


class TestStudy:
    @pytest.mark.slow
    def test_run_here_it_shows_how_far_it_is_and_says_where_the_chart_lies(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        import placement_study

        chart_file = tmp_path / "chart.svg"
        asked = "--local --variants multigpu20 --policies best_fit --seeds 1 --out"
        monkeypatch.setattr("sys.argv", ["placement_study.py", *asked.split(), str(chart_file)])
        placement_study.main()
        said = capsys.readouterr().out
        assert "1/1" in said
        assert "multigpu20" in said
        assert chart_file.name in said
        assert ElementTree.fromstring(chart_file.read_text()).tag == f"{SVG}svg"

    @pytest.mark.parametrize("wrong", ["0", "-3", "many"])
    def test_a_wrong_number_of_seeds_is_told_as_such(
        self, wrong: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        import placement_study

        monkeypatch.setattr("sys.argv", ["placement_study.py", "--seeds", wrong])
        with pytest.raises(SystemExit):
            placement_study.main()
        assert "--seeds" in capsys.readouterr().err

    def test_a_chart_without_a_folder_is_refused_before_the_work(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        import placement_study

        monkeypatch.setattr(
            "sys.argv", ["placement_study.py", "--local", "--out", str(tmp_path / "none" / "chart.svg")]
        )
        with pytest.raises(SystemExit):
            placement_study.main()
        assert "no folder" in capsys.readouterr().err

    def test_the_smallest_example_squares(self) -> None:
        import hello

        assert hello.square.local(7) == 49


def contrast_with_white(colour: str) -> float:
    """As WCAG 2 defines it."""
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 1.05 / (0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05)
