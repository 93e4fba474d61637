"""When and how the clients repeat requests, over real sockets."""

import json
import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from longmatch import (
    ConflictError,
    ConnectionFailedError,
    DeadlineExceededError,
    Document,
    InvalidRequestError,
    LongmatchError,
    NotFoundError,
    RateLimitedError,
    ResponseError,
    Retry,
    ServerError,
    UnavailableError,
)
from longmatch.retries import retry_after

from tests.kit.fault_proxy import Answer, Drop, FaultProxy, Trickle, fault_proxy, problem
from tests.kit.waiting import TIMEOUT_S

VERSION_OF_MODEL = b'{"id": "m", "object": "model", "created": 0, "owned_by": "longmatch"}'
GOOD = Answer(200, VERSION_OF_MODEL)
INDEXED = Answer(
    200, b'{"indexed": 1, "documents": [], "timings": {}, "checkpoint": "c", "generation": 1}'
)
JOB = {
    **{"id": "j", "accepted": 1, "size": 1, "state": "cancelled", "progress": 1.0, "indexed": 0},
    **{"unchanged": 0, "truncated": 0, "failed": 0, "detail": None, "created": "", "ended": ""},
}
DOCUMENT = Document("ants", "Ants dig.")
FAST = Retry(attempts=4, first_seconds=0.01)


@pytest.fixture
def proxy() -> Iterator[FaultProxy]:
    with fault_proxy() as server:
        yield server


@pytest.fixture
def client(make_longmatch: Callable[..., Any], proxy: FaultProxy) -> Any:
    return make_longmatch(proxy.url, retry=FAST, timeout=TIMEOUT_S)


def overloaded(seconds: object) -> Answer:
    return problem(503, "overloaded", **{"retry-after": str(seconds)})


@pytest.mark.parametrize(
    "failure",
    [
        *(overloaded(0), problem(429, "rate-limited", **{"retry-after": "0"})),
        *(problem(503, "not-ready"), Answer(502, b"<html>bad gateway</html>"), Answer(504, b"")),
        *(Answer(408, b""), Drop(read=False), Drop()),
    ],
)
def test_what_passes_is_repeated(client: Any, proxy: FaultProxy, failure: Any) -> None:
    proxy.will(failure, failure, GOOD)
    assert client.model("m").id == "m"
    assert len(proxy.seen) == 3


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (problem(422, "invalid-input"), InvalidRequestError),
        (problem(404, "document-not-found"), NotFoundError),
        (problem(409, "job-ended"), ConflictError),
        (problem(500, "internal-error"), ServerError),
        (Answer(302, b"", {"location": "/elsewhere"}), InvalidRequestError),
        (Answer(200, b"<html>a page</html>"), ResponseError),
        (Answer(200, b"no gzip", {"content-encoding": "gzip"}), ResponseError),
    ],
)
def test_what_stays_is_not_repeated(
    client: Any, proxy: FaultProxy, answer: Answer, error: type[LongmatchError]
) -> None:
    proxy.will(answer)
    with pytest.raises(error):
        client.model("m")
    assert len(proxy.seen) == 1


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"id": 7}, "answer.id is not str"),
        ({"id": None}, "answer.id is not str"),
        ({"created": True}, "answer.created is not int"),
        ({"owned_by": ...}, "answer has no owned_by"),
    ],
)
def test_an_answer_with_another_field_is_refused_once(
    client: Any, proxy: FaultProxy, changed: dict[str, Any], message: str
) -> None:
    fields = json.loads(VERSION_OF_MODEL) | changed
    content = {name: value for name, value in fields.items() if value is not ...}
    proxy.will(Answer(200, json.dumps(content).encode()))
    with pytest.raises(ResponseError, match=message):
        client.model("m")
    assert len(proxy.seen) == 1


def test_attempts_are_limited(client: Any, proxy: FaultProxy) -> None:
    proxy.will(*[overloaded(0)] * 9)
    with pytest.raises(UnavailableError) as caught:
        client.model("m")
    assert len(proxy.seen) == FAST.attempts
    assert (caught.value.retry_after, caught.value.type) == (0, "/problems/overloaded")
    proxy.will(*[overloaded(0)] * 9)
    with pytest.raises(UnavailableError):
        client.with_retry(Retry(attempts=1)).model("m")
    assert len(proxy.seen) == 1


def test_nobody_listens(make_longmatch: Callable[..., Any]) -> None:
    with fault_proxy() as server:
        url = server.url
    with pytest.raises(ConnectionFailedError, match="ConnectError"):
        make_longmatch(url, retry=FAST).model("m")


@pytest.mark.parametrize("as_date", [False, True])
def test_the_server_says_how_long_to_wait(client: Any, proxy: FaultProxy, as_date: bool) -> None:
    """The clock of this server is a year behind: its date counts from its own."""
    now = datetime.now(UTC).replace(microsecond=0) - timedelta(days=365)
    after: object = format_datetime(now + timedelta(seconds=1), usegmt=True) if as_date else 1
    proxy.will(
        problem(429, "x", **{"retry-after": str(after), "date": format_datetime(now, usegmt=True)}),
        GOOD,
    )
    client.model("m")
    first, second = proxy.seen
    assert second.time - first.time >= 1


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        *(("3", 3.0), ("Wed, 21 Oct 2015 07:28:10 GMT", 10.0)),
        *(("Wed, 21 Oct 2015 07:27:00 GMT", 0.0), ("soon", None), ("-1", None), ("", None)),
        ("٣", None),
    ],
)
def test_retry_after_is_read(given: str, expected: float | None) -> None:
    headers = {"retry-after": given, "date": "Wed, 21 Oct 2015 07:28:00 GMT"}
    assert retry_after(headers) == expected


def test_waits_grow_are_random_and_are_limited() -> None:
    retry = Retry(first_seconds=1.0, max_seconds=4.0)
    for attempt, most in ((1, 1.0), (2, 2.0), (3, 4.0), (9, 4.0)):
        waits = [retry.wait(attempt, None) for _ in range(200)]
        assert 0 <= min(waits) < most * 0.2
        assert most * 0.8 < max(waits) <= most
    waits = [retry.wait(1, 7.0) for _ in range(200)]
    assert min(waits) >= 7.0
    assert max(waits) <= 8.0
    assert len(set(waits)) > 100


def test_a_wait_beyond_the_deadline_is_not_begun(client: Any, proxy: FaultProxy) -> None:
    proxy.will(problem(429, "rate-limited", **{"retry-after": "3600"}))
    with pytest.raises(RateLimitedError) as caught:
        client.model("m")
    assert (caught.value.retry_after, caught.value.status) == (3600, 429)
    assert caught.value.detail == "on purpose"
    assert len(proxy.seen) == 1


@pytest.mark.parametrize("head", [True, False])
def test_a_slow_answer_ends_with_the_time_of_the_call(
    client: Any, proxy: FaultProxy, head: bool
) -> None:
    proxy.will(Trickle(30.0, head))
    with pytest.raises(DeadlineExceededError):
        client.with_timeout(3.0).model("m")
    assert len(proxy.seen) == 1


def test_the_deadline_is_sent_to_the_server(client: Any, proxy: FaultProxy) -> None:
    proxy.will(overloaded(0), problem(504, "deadline-passed"))
    with pytest.raises(DeadlineExceededError):
        client.model("m")
    first, second = (int(request.headers["x-request-timeout-ms"]) for request in proxy.seen)
    assert 0 < second <= first <= 1000 * TIMEOUT_S
    proxy.will(GOOD)
    client.with_timeout(None).model("m")
    assert "x-request-timeout-ms" not in proxy.seen[0].headers


def test_a_write_is_repeated_under_its_key(client: Any, proxy: FaultProxy) -> None:
    proxy.will(Drop(), problem(409, "idempotency-key-in-use"), overloaded(0), INDEXED)
    client.index([DOCUMENT])
    assert len({request.headers["idempotency-key"] for request in proxy.seen}) == 1
    assert len({request.body for request in proxy.seen}) == 1
    assert len(proxy.seen) == 4
    before = proxy.seen[0].headers["idempotency-key"]
    proxy.will(INDEXED, INDEXED)
    client.index([DOCUMENT])
    client.index([DOCUMENT], idempotency_key="mine")
    after = [request.headers["idempotency-key"] for request in proxy.seen]
    assert after[0] != before
    assert after[1] == "mine"


def test_an_upload_is_sent_again_from_its_beginning(client: Any, proxy: FaultProxy) -> None:
    documents = (Document(f"d{n}", random.Random(n).randbytes(4_000).hex()) for n in range(200))
    accepted = Answer(202, b'{"id": "j", "accepted": 200, "size": 9}')
    proxy.will(Drop(), Drop(read=False), overloaded(0), accepted)
    sent: list[tuple[int, int]] = []
    client.upload(documents, progress=lambda done, size: sent.append((done, size)))
    assert len({request.body for request in proxy.seen if request.body}) == 1
    assert len({request.headers["idempotency-key"] for request in proxy.seen}) == 1
    [size] = {size for _, size in sent}
    assert size == len(proxy.seen[-1].body) > 400_000
    assert [done for done, _ in sent].count(0) == 4
    assert sent[-1] == (size, size)


def test_a_deletion_or_cancellation_done_unseen_is_done(client: Any, proxy: FaultProxy) -> None:
    missing, ended = problem(404, "document-not-found"), problem(409, "job-ended")
    proxy.will(Drop(), missing)
    client.delete("ants")
    for script in ([missing], [overloaded(0), missing]):
        proxy.will(*script)
        with pytest.raises(NotFoundError):
            client.delete("ants")
    proxy.will(Drop(), ended, Answer(200, json.dumps(JOB).encode()))
    assert client.cancel_job("j").state == "cancelled"
    proxy.will(ended)
    with pytest.raises(ConflictError):
        client.cancel_job("j")


def test_readiness_is_read_once_unless_waited_for(client: Any, proxy: FaultProxy) -> None:
    good = Answer(200, b'{"status": "ready", "documents": 1, "generation": 1, "degraded": []}')
    proxy.will(problem(503, "not-ready"), good)
    with pytest.raises(UnavailableError):
        client.ready()
    proxy.will(problem(503, "not-ready"), Drop(read=False), good)
    assert client.wait_until_ready(timeout=120).documents == 1
    proxy.will(*[problem(503, "not-ready")] * 9)
    with pytest.raises(DeadlineExceededError):
        client.wait_until_ready(timeout=0)
    assert not client.is_alive()
