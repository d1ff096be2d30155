"""The study's simulator keeps to the cluster's limits and to the published figures; its chart shows every policy."""

from __future__ import annotations

import itertools
import sys
from io import StringIO
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
sys.path.insert(0, str(EXAMPLES))  # as it is for `python examples/placement_study.py`

from placement import chart, trace  # noqa: E402
from placement.findings import draw_findings, headline, meaning, table  # noqa: E402
from placement.policies import POLICIES, UNFIT, Fgd, typical_shapes  # noqa: E402
from placement.published import published  # noqa: E402
from placement.simulator import DEMAND_PCT, Scores, fill  # noqa: E402
from placement.trace import CARD_MILLI, VARIANTS, Cluster, Shapes, empty_cluster, fits, workload  # noqa: E402

SVG = "{http://www.w3.org/2000/svg}"


def nodes(cards: int, count: int = 2, cpu_milli: int = 64_000) -> Cluster:
    """A small cluster of equal nodes."""
    return Cluster(
        cpu_milli=np.full(count, cpu_milli),
        memory_mib=np.full(count, 100_000),
        card_milli=np.tile(np.where(np.arange(trace.NODE_CARDS) < cards, CARD_MILLI, 0), (count, 1)),
        cards=np.full(count, cards),
        model=np.zeros(count, dtype=int),
        kinds=[set() for _ in range(count)],
    )


def shapes(*wanted: tuple[int, int, int]) -> Shapes:
    """Requests as (cpu_milli, cards, card_milli), each as common as the others."""
    cpu, cards, milli = (np.array(column) for column in zip(*wanted))
    ones = np.ones(len(wanted), dtype=int)
    return Shapes(cpu, ones, cards, milli, np.ones((len(wanted), 1), dtype=bool), ones)


def placing(policy: str, cluster: Cluster, asked: Shapes) -> Scores:
    return Scores(POLICIES[policy](asked, np.random.default_rng(0)), cluster, asked)


class TestTrace:
    def test_the_cluster_has_1213_nodes_and_6212_gpus_in_any_order(self) -> None:
        cluster = empty_cluster(np.random.default_rng(1))
        assert (len(cluster.cards), cluster.cards.sum(), cluster.card_milli.sum()) == (1213, 6212, 6_212_000)

    @pytest.mark.parametrize("variant", VARIANTS)
    def test_each_workload_parses_and_every_pod_fits_an_empty_cluster_by_its_gpus(self, variant: str) -> None:
        asked, pods = workload(variant)
        assert asked.pods.sum() == len(pods)
        assert asked.allowed.any(axis=1).all()
        assert asked.cards.max() <= trace.NODE_CARDS

    def test_a_list_of_card_models_that_repeats_one_allows_just_those_on_it(self) -> None:
        asked, _ = workload("gpuspec33")
        two = [trace.models().index(model) for model in ("V100M16", "V100M32")]
        assert any(np.flatnonzero(row).tolist() == two for row in asked.allowed)


class TestPublished:
    def test_the_table_has_ten_seeds_of_each_policy_on_each_workload(self) -> None:
        assert set(published()) == set(itertools.product(VARIANTS, POLICIES))
        assert {curves.shape for curves in published().values()} == {(10, DEMAND_PCT + 1)}

    @pytest.mark.parametrize(
        ("policy", "mean"),
        [("random", 87.47), ("dot-product", 90.85), ("gpu-clustering", 91.88), ("best-fit", 93.08), ("fgd", 95.39)],
    )
    def test_its_ends_are_those_that_the_paper_gives(self, policy: str, mean: float) -> None:
        assert published()["default", policy][:, -1].mean() == pytest.approx(mean, abs=0.01)


class TestPlacing:
    def test_a_share_takes_room_on_one_card_only(self) -> None:
        cluster = nodes(cards=4)
        assert placing("best-fit", cluster, shapes((1000, 1, 300))).place(0)
        assert sorted(cluster.card_milli.sum(axis=1)) == [3700, 4000]
        assert (cluster.card_milli[:, :4] < CARD_MILLI).sum() == 1

    def test_a_share_never_spans_two_cards(self) -> None:
        scores = placing("best-fit", nodes(cards=2, count=1), shapes((1000, 1, 600), (1000, 1, 500)))
        assert [scores.place(0), scores.place(0), scores.place(1)] == [True, True, False]

    def test_whole_cards_come_from_one_node(self) -> None:
        scores = placing("gpu-packing", nodes(cards=2), shapes((1000, 1, 1000), (1000, 4, 1000)))
        assert not scores.place(1)
        assert scores.place(0)

    def test_a_pod_for_another_card_model_fits_nowhere(self) -> None:
        cluster = nodes(cards=2)
        asked = shapes((1000, 1, 1000))
        other = Shapes(asked.cpu_milli, asked.memory_mib, asked.cards, asked.card_milli, ~asked.allowed, asked.pods)
        assert not fits(cluster, 0, other).any()

    def test_clustering_puts_shares_with_shares_and_whole_cards_apart(self) -> None:
        cluster = nodes(cards=4)
        scores = placing("gpu-clustering", cluster, shapes((1000, 1, 500), (1000, 1, 1000)))
        assert [scores.place(shape) for shape in (0, 1, 0, 1)] == [True] * 4
        assert cluster.kinds == [{trace.SHARE}, {1}]

    def test_fgd_takes_the_card_where_a_typical_pod_still_finds_room(self) -> None:
        cluster = nodes(cards=2, count=1)
        cluster.card_milli[0, :2] = (1000, 400)
        scores = placing("fgd", cluster, shapes((1000, 1, 400), (1000, 1, 1000)))
        assert scores.place(0)
        assert cluster.card_milli[0, :2].tolist() == [1000, 0]

    @given(st.lists(st.integers(0, 4), max_size=60), st.sampled_from(sorted(POLICIES)))
    def test_no_policy_ever_gives_more_than_there_is(self, arriving: list[int], policy: str) -> None:
        asked = shapes((4000, 0, 0), (2000, 1, 330), (2000, 1, 810), (8000, 1, 1000), (16_000, 2, 1000))
        cluster = nodes(cards=2, count=3)
        scores = placing(policy, cluster, asked)
        placed = [shape for shape in arriving if scores.place(shape)]
        assert min(cluster.cpu_milli.min(), cluster.memory_mib.min(), cluster.card_milli.min()) >= 0
        assert 6 * CARD_MILLI - cluster.card_milli.sum() == asked.gpu_milli[placed].sum()

    @pytest.mark.slow
    @given(st.lists(st.integers(0, 3), max_size=40), st.sampled_from(sorted(POLICIES)))
    def test_the_kept_scores_are_those_of_a_fresh_look_at_every_node(self, arriving: list[int], policy: str) -> None:
        asked = shapes((4000, 0, 0), (2000, 1, 330), (8000, 1, 1000), (16_000, 2, 1000))
        cluster = nodes(cards=2, count=3)
        scores = placing(policy, cluster, asked)
        for shape in arriving:
            scores.place(shape)
        assert (scores.table == placing(policy, cluster, asked).table).all()
        assert ([fits(cluster, node, asked) for node in range(3)] == (scores.table != UNFIT).T).all()


class TestFgd:
    def test_typical_shapes_are_the_commonest_that_make_up_95_percent(self) -> None:
        asked = Shapes(*(np.array([1, 2, 3]) for _ in range(4)), np.ones((3, 1), dtype=bool), pods=np.array([5, 90, 5]))
        assert typical_shapes(asked).pods.tolist() == [90, 5]

    def test_its_fragment_is_what_typical_pods_cannot_use(self) -> None:
        """Two cards, 1000 and 400 free: pods of 500 can't use the 400, pods without GPU can use nothing."""
        cluster = nodes(cards=2, count=1)
        cluster.card_milli[0, :2] = (1000, 400)
        policy = Fgd(shapes((1000, 1, 500), (1000, 0, 0)), np.random.default_rng(0))
        one = shapes((1000, 1, 400))
        levels = np.array([1000, 400])
        # Before: (400 + 1400) / 2 = 900. On the free card: (400 + 1000) / 2 = 700; on the other: (0 + 1000) / 2 = 500.
        expected = [int(100 / (1 + np.exp(-less / 1000))) for less in (200, 400)]
        assert policy._scores(cluster, 0, one, levels).tolist() == [expected]


class TestReplay:
    @pytest.mark.slow
    @pytest.mark.parametrize("policy", POLICIES)
    def test_a_replay_ends_near_the_published_figure(self, policy: str) -> None:
        ended = fill(policy, "default", 42)
        points = 1.0 if policy == "dot-product" else 0.5  # the published runs differ from one another by as much
        assert ended.allocated_pct[-1] == pytest.approx(published()["default", policy][:, -1].mean(), abs=points)
        assert ended.cluster.card_milli.min() == 0
        assert ended.cluster.cpu_milli.min() >= 0
        allocated = 6_212_000 - ended.cluster.card_milli.sum()
        assert 100 * allocated / 6_212_000 == pytest.approx(ended.allocated_pct[-1], abs=0.03)

    @pytest.mark.slow
    def test_the_same_case_gives_the_same_curve_and_it_never_falls(self) -> None:
        first, again = (fill("random", "multigpu50", 7).allocated_pct for _ in range(2))
        assert first == again
        assert len(first) == DEMAND_PCT + 1
        assert first == sorted(first)

    @pytest.mark.slow
    def test_nothing_is_allocated_beyond_what_arrived(self) -> None:
        curve = fill("best-fit", "default", 3).allocated_pct
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
        shown.print(table({("default", "best-fit"): ending_at(92.0, 93.0), ("cpu050", "fgd"): ending_at(95.0)}))
        text = shown.export_text()
        assert "92.50 ± 0.50" in text
        assert "93.08 ± 0.13" in text
        assert "-0.58" in text
        assert text.index("default") < text.index("cpu050")

    def test_the_table_fits_a_terminal_of_80_columns(self) -> None:
        shown = Console(width=80, file=StringIO(), record=True)
        shown.print(table({("gpushare100", "gpu-clustering"): ending_at(82.0)}))
        assert "…" not in shown.export_text()

    def test_the_title_names_the_best_and_the_worst_policy_and_the_gpus_they_leave(self) -> None:
        drawn = draw_findings({("default", "random"): ending_at(87.5), ("default", "fgd"): ending_at(95.0)})
        assert "FGD leaves 311 of 6,212 GPUs idle under overload, random placement 776" in drawn
        assert "2 replays" in drawn

    def test_a_single_policy_is_compared_with_none(self) -> None:
        assert headline(a_panel("default", "best-fit")) == "Best fit leaves 621 of 6,212 GPUs idle under overload"

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
        asked = "--local --variants multigpu20 --policies best-fit --seeds 1 --out"
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
