"""The dashboards are laid out, described, linked and say their units."""

from collections import Counter
from typing import Any

COLUMNS = 24

Dashboards = list[dict[str, Any]]
Panels = list[dict[str, Any]]


def test_the_dashboards_are_those_an_operator_looks_for(dashboards: Dashboards) -> None:
    assert {dashboard["title"] for dashboard in dashboards} == {
        "Longmatch: overview",
        "Longmatch: encoder",
        "Longmatch: index and quality",
        "Longmatch: ingest",
    }
    assert len({dashboard["uid"] for dashboard in dashboards}) == len(dashboards)


def test_each_dashboard_links_to_the_others_and_keeps_what_is_chosen(
    dashboards: Dashboards,
) -> None:
    for dashboard in dashboards:
        [link] = dashboard["links"]
        assert set(link["tags"]) <= set(dashboard["tags"])
        assert link["includeVars"]
        assert link["keepTime"]


def test_every_panel_is_described_and_has_its_own_number(dashboards: Dashboards) -> None:
    for dashboard in dashboards:
        numbers = [panel["id"] for panel in dashboard["panels"]]
        assert len(set(numbers)) == len(numbers)
        for panel in dashboard["panels"]:
            assert panel["title"]
            if panel["type"] != "row":
                assert len(panel["description"]) > 20, panel["title"]


def test_no_query_is_asked_twice(panels: Panels) -> None:
    asked = Counter(target["expr"] for panel in panels for target in panel["targets"])
    twice = {query for query, count in asked.items() if count > 1}
    assert not twice


def test_every_panel_that_draws_numbers_has_a_unit(panels: Panels) -> None:
    drawn = [panel for panel in panels if panel["type"] != "table"]
    assert drawn
    for panel in drawn:
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]


def test_panels_fill_their_rows_and_cover_one_another_nowhere(dashboards: Dashboards) -> None:
    for dashboard in dashboards:
        taken: dict[tuple[int, int], str] = {}
        for panel in dashboard["panels"]:
            place = panel["gridPos"]
            for x in range(place["x"], place["x"] + place["w"]):
                for y in range(place["y"], place["y"] + place["h"]):
                    assert (x, y) not in taken, (panel["title"], taken[x, y])
                    taken[x, y] = panel["title"]
        height = max(y for _, y in taken) + 1
        assert set(taken) == {(x, y) for x in range(COLUMNS) for y in range(height)}


def test_data_source_can_be_chosen(dashboards: Dashboards) -> None:
    for dashboard in dashboards:
        [variable] = [v for v in dashboard["templating"]["list"] if v["type"] == "datasource"]
        for panel in dashboard["panels"]:
            if panel["type"] != "row":
                assert panel["datasource"] == {
                    "type": "prometheus",
                    "uid": f"${{{variable['name']}}}",
                }
