"""The dashboard is laid out, described and says its units."""

from typing import Any

COLUMNS = 24


def panels(dashboard: dict[str, Any]) -> list[dict[str, Any]]:
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def test_every_panel_is_described_and_has_its_own_number(dashboard: dict[str, Any]) -> None:
    numbers = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(numbers)) == len(numbers)
    for panel in panels(dashboard):
        assert panel["title"]
        assert len(panel["description"]) > 20, panel["title"]


def test_every_panel_that_draws_numbers_has_a_unit(dashboard: dict[str, Any]) -> None:
    drawn = [panel for panel in panels(dashboard) if panel["type"] != "table"]
    assert drawn
    for panel in drawn:
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]


def test_panels_fill_their_rows_and_cover_one_another_nowhere(dashboard: dict[str, Any]) -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert (x, y) not in taken, (panel["title"], taken[x, y])
                taken[x, y] = panel["title"]
    height = max(y for _, y in taken) + 1
    assert set(taken) == {(x, y) for x in range(COLUMNS) for y in range(height)}


def test_data_source_can_be_chosen(dashboard: dict[str, Any]) -> None:
    [variable] = [v for v in dashboard["templating"]["list"] if v["type"] == "datasource"]
    for panel in panels(dashboard):
        assert panel["datasource"] == {
            "type": "prometheus",
            "uid": f"${{{variable['name']}}}",
        }
