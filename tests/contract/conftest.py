"""Stores and vector indexes under the contracts."""

import pytest

from tests.kit.vector_kinds import KINDS, IndexKind


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> IndexKind:
    return KINDS[request.param]
