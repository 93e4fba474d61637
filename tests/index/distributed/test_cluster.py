"""What encoders get of the machines of a cluster, and addresses where nothing listens."""

import pytest

from index.distributed.cluster import (
    Allotment,
    ClusterOptions,
    allot,
    check_cluster,
    reason_of,
)
from index.errors import ClusterError
from tests.kit.process_fixtures import free_port

HEAD = (0, 0)  # of a cluster whose head does no work
PLAIN = (8, 0)
LARGE = (32, 4)


@pytest.mark.parametrize(
    ("options", "machines", "expected"),
    [
        (ClusterOptions(), [PLAIN], Allotment(1, 8)),
        (ClusterOptions(), [HEAD, PLAIN, LARGE], Allotment(2, 8)),
        (ClusterOptions(actors=4), [PLAIN], Allotment(4, 2)),
        (ClusterOptions(actors=2, threads=3), [PLAIN], Allotment(2, 3)),
        (ClusterOptions(on_gpu=True), [PLAIN, LARGE], Allotment(4, 8, 1)),
        (ClusterOptions(actors=2, on_gpu=True), [PLAIN, LARGE], Allotment(2, 16, 1)),
    ],
)
def test_allotted_machines(
    options: ClusterOptions, machines: list[tuple[int, int]], expected: Allotment
) -> None:
    assert allot(options, machines) == expected


@pytest.mark.parametrize(
    ("options", "machines"),
    [
        *((ClusterOptions(), []), (ClusterOptions(), [HEAD])),
        (ClusterOptions(threads=9), [PLAIN, PLAIN]),
        (ClusterOptions(actors=3, threads=5), [PLAIN, PLAIN]),
        (ClusterOptions(on_gpu=True), [PLAIN]),
        (ClusterOptions(actors=5, on_gpu=True), [LARGE]),
    ],
)
def test_too_few_machines_are_refused(
    options: ClusterOptions, machines: list[tuple[int, int]]
) -> None:
    with pytest.raises(ClusterError, match="no room for"):
        allot(options, machines)


@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_an_address_where_nothing_listens_is_refused(scheme: str) -> None:
    address = f"{scheme}127.0.0.1:{free_port()}"
    with pytest.raises(ClusterError, match=f"Ray at {address}: cannot be reached"):
        check_cluster(ClusterOptions(address))


def test_a_reason_is_one_line() -> None:
    assert reason_of(ValueError("first\nsecond")) == "first"
    assert reason_of(ValueError('a trace\n  File "x.py", line 3\nKeyError: 5\n')) == "KeyError: 5"
    assert reason_of(TimeoutError()) == "TimeoutError"
