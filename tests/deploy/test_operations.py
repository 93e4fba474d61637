"""The operator's page says all that there is to set."""

import re

import pytest

from service.settings import Settings


@pytest.mark.parametrize("name", sorted(Settings.model_fields))
def test_every_setting_is_documented_with_its_default(name: str, operations: str) -> None:
    default = Settings.model_fields[name].default
    shown = "not set" if default in (None, ()) else f"`{default}`"
    row = f"| `LONGMATCH_{name.upper()}` | {shown} |"
    assert row in operations, f"docs/operations.md has no row that begins with: {row}"


def test_no_setting_is_documented_that_there_is_not(operations: str) -> None:
    documented = set(re.findall(r"`LONGMATCH_([A-Z0-9_]+)`", operations))
    assert documented == {name.upper() for name in Settings.model_fields}
