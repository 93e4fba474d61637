"""Webhooks: delivered, signed and in order; tried again; and to nobody who must not get one."""

import json
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

import service.standing.webhooks
from service.standing.targets import AllowedTargets
from service.standing.webhooks import retry_seconds
from tests.kit.waiting import wait_until
from tests.kit.webhook_receiver import Answer, Receiver, status

PATH = "/standing-queries"
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
LOCAL = ("127.0.0.0/8", "localhost")

MakeClient = Callable[..., Any]


def with_limits(client: Any, attempts: int = 24, seconds: float = 60.0) -> Any:
    webhooks = client.app.state.engine.default.standing.webhooks
    webhooks.attempts, webhooks.answer_seconds = attempts, seconds
    return client


def make(client: Any, url: str, **webhook: Any) -> dict[str, Any]:
    body = {"text": "A plan.", "min_score": -1, "webhook": {"url": url, **webhook}}
    response = client.post(PATH, json=body)
    assert response.status_code == 201, response.text
    made: dict[str, Any] = response.json()
    return made


def put(client: Any, *names: str) -> None:
    documents = [{"id": name, "text": f"A text on {name}."} for name in names]
    assert client.post("/index", json={"documents": documents}).status_code == 200


def wait_for(client: Any, query_id: str, **expected: Any) -> dict[str, Any]:
    """Wait until the webhook of a query says this."""
    seen: list[dict[str, Any]] = []

    def holds() -> bool:
        seen.append(client.get(f"{PATH}/{query_id}").json()["webhook"])
        return expected.items() <= seen[-1].items()

    wait_until(holds, expected)
    return seen[-1]


def resume(client: Any, query_id: str) -> None:
    assert client.post(f"{PATH}/{query_id}/resume").status_code == 200


def test_events_are_delivered_signed_and_in_their_order(make_client: MakeClient) -> None:
    client = make_client(webhook_hosts=LOCAL)
    with Receiver() as receiver:
        url = f"http://localhost:{receiver.port}/path?token=hidden"
        own, theirs = make(client, url), make(client, url, secret=SECRET)
        assert own["webhook"]["secret"].startswith("whsec_")
        assert theirs["webhook"]["secret"] == SECRET
        assert own["webhook"]["url"] == f"http://localhost:{receiver.port}"
        put(client, "a")
        put(client, "b")
        messages = receiver.take(4)
        for made, secret in ((own, own["webhook"]["secret"]), (theirs, SECRET)):
            mine = [message for message in messages if message.is_signed_by(secret)]
            assert [item.document for item in mine] == ["a", "b"]
            events = client.get(f"{PATH}/{made['id']}/events").json()["events"]
            assert [json.loads(item.body)["data"] for item in mine] == events
            wait_for(client, made["id"], delivered=events[-1]["number"], secret=None)
        assert len({message.headers["webhook-id"] for message in messages}) == 4
        assert {message.path for message in messages} == {"/path?token=hidden"}
        assert json.loads(messages[0].body)["type"] == "document.matched"


def drip(handler: BaseHTTPRequestHandler) -> None:
    """Answer so slowly that no single byte is late."""
    for _ in range(600):
        handler.wfile.write(b"H")
        handler.wfile.flush()
        time.sleep(0.1)


def answer_without_end(handler: BaseHTTPRequestHandler) -> None:
    """Accept, with a body that nobody should read."""
    handler.send_response(200)
    handler.end_headers()
    while True:
        handler.wfile.write(b"x" * 65_536)


FAILURES: dict[str, tuple[Answer, str]] = {
    "an error": (status(500, body=b"x" * 1_000_000), "the answer was 500"),
    "slow": (drip, "there was no answer in time"),
    "hangs up": (
        lambda handler: handler.connection.shutdown(socket.SHUT_RDWR),
        "the answer broke off or is not HTTP",
    ),
    "no HTTP": (
        lambda handler: handler.wfile.write(b"220 ready for mail\r\n\r\n"),
        "the answer broke off or is not HTTP",
    ),
}


@pytest.mark.parametrize("case", FAILURES)
def test_after_the_last_attempt_events_wait_until_it_is_resumed(
    make_client: MakeClient, case: str
) -> None:
    answer, failure = FAILURES[case]
    seconds = 2 if case == "slow" else 60
    client = with_limits(make_client(webhook_hosts=LOCAL), attempts=1, seconds=seconds)
    with Receiver() as receiver:
        receiver.answers = [answer, status(200)]
        made = make(client, f"http://127.0.0.1:{receiver.port}/")["id"]
        put(client, "a")
        put(client, "b")
        wait_for(client, made, state="failed", attempts=1, failure=failure, retry_at=None)
        assert [item.document for item in receiver.take(1)] == ["a"]
        resume(with_limits(client, attempts=1, seconds=60), made)
        messages = receiver.take(2)
        assert [message.document for message in messages] == ["a", "a", "b"]
        assert len({message.headers["webhook-id"] for message in messages}) == 2
        wait_for(client, made, state="active", attempts=0, failure=None)


def test_it_is_tried_again_by_itself(
    make_client: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service.standing.webhooks, "_FIRST_SECONDS", 0.01)
    client = make_client(webhook_hosts=LOCAL)
    with Receiver() as receiver:
        receiver.answers = [status(500), status(503), status(200)]
        made = make(client, f"http://127.0.0.1:{receiver.port}/")["id"]
        put(client, "a")
        messages = receiver.take(3)
        assert {message.document for message in messages} == {"a"}
        wait_for(client, made, state="active", attempts=0)
    metric = client.app.state.engine.metrics.webhook_deliveries
    for outcome, count in (("retried", 2), ("delivered", 1)):
        assert metric.labels("default", outcome)._value.get() == count


def test_the_times_between_attempts_double_up_to_an_hour() -> None:
    for attempts, seconds in ((1, 5), (2, 10), (5, 80), (10, 2_560), (11, 3_600), (10_000, 3_600)):
        waits = {retry_seconds(attempts) for _ in range(50)}
        assert len(waits) > 1
        assert all(0.75 * seconds <= wait <= 1.25 * seconds for wait in waits)


def test_a_receiver_that_is_dead_gets_everything_when_it_is_back(make_client: MakeClient) -> None:
    client = make_client(webhook_hosts=LOCAL)
    with Receiver() as receiver:
        port = receiver.port
    made = make(client, f"http://127.0.0.1:{port}/")["id"]
    put(client, "a")
    found = wait_for(client, made, state="retrying", failure="no connection was made")
    assert found["retry_at"] is not None
    put(client, "b")
    with Receiver(port) as receiver:
        resume(client, made)
        assert [item.document for item in receiver.take(2)] == ["a", "b"]


def test_a_redirect_is_not_followed_and_a_body_not_read(make_client: MakeClient) -> None:
    client = with_limits(make_client(webhook_hosts=LOCAL), attempts=1)
    with Receiver() as receiver, Receiver() as elsewhere:
        location = ("Location", f"http://127.0.0.1:{elsewhere.port}/")
        receiver.answers = [status(307, location), answer_without_end]
        made = make(client, f"http://127.0.0.1:{receiver.port}/")["id"]
        put(client, "a")
        failure = "the answer was 307 (redirects are not followed)"
        wait_for(client, made, state="failed", failure=failure)
        resume(client, made)
        wait_for(client, made, state="active", failure=None)
        assert elsewhere.messages == []


def test_one_that_hangs_delays_no_other(make_client: MakeClient) -> None:
    client = with_limits(make_client(webhook_hosts=LOCAL), seconds=60)
    with Receiver() as receiver, Receiver() as slow:
        slow.answers = [drip]
        make(client, f"http://127.0.0.1:{slow.port}/")
        make(client, f"http://127.0.0.1:{receiver.port}/")
        put(client, "a")
        slow.take(1)
        put(client, "b")
        assert [item.document for item in receiver.take(2)] == ["a", "b"]


@pytest.mark.parametrize("trusted", [True, False])
def test_certificates_are_verified(
    make_client: MakeClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trusted: bool
) -> None:
    certificate = tmp_path / "certificate.pem"
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=localhost"
    command += " -addext subjectAltName=DNS:localhost"
    files = ("-keyout", str(certificate), "-out", str(tmp_path / "own.pem"))
    subprocess.run([*command.split(), *files], check=True, capture_output=True)
    with certificate.open("a") as file:
        file.write((tmp_path / "own.pem").read_text())
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "own.pem"))
    client = with_limits(make_client(webhook_hosts=LOCAL), attempts=1)
    with Receiver(certificate=certificate) as receiver:
        made = make(client, f"https://localhost:{receiver.port}/")["id"]
        put(client, "a")
        if trusted:
            assert [item.document for item in receiver.take(1)] == ["a"]
        else:
            wait_for(client, made, state="failed", failure="its certificate is not valid")
            assert receiver.messages == []


@pytest.mark.parametrize(
    ("host", "failure"),
    [
        ("localhost", "its address is not public, and not one of webhook_hosts"),
        ("hooks.invalid", "its name does not resolve"),
    ],
)
def test_a_name_is_checked_when_the_connection_is_made(
    make_client: MakeClient, host: str, failure: str
) -> None:
    client = with_limits(make_client(webhook_hosts=(host,)), attempts=1)
    client.app.state.engine.default.standing.webhooks._allowed = AllowedTargets(())
    with Receiver() as receiver:
        made = make(client, f"https://{host}:{receiver.port}/")["id"]
        put(client, "a")
        wait_for(client, made, state="failed", failure=failure)
        assert receiver.messages == []


def test_a_name_that_changes_its_address_reaches_no_other(
    make_client: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first, third and fifth answer of the resolver is allowed, the others are not."""
    real, asked = socket.getaddrinfo, []

    def resolve(host: Any, *arguments: Any, **options: Any) -> Any:
        if host == "rebinding.example":
            asked.append(host)
            host = "127.0.0.1" if len(asked) % 2 else "127.0.0.2"
        return real(host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    client = with_limits(make_client(webhook_hosts=("127.0.0.1/32",)), attempts=1)
    with Receiver() as receiver, socket.create_server(("127.0.0.2", receiver.port)) as inside:
        inside.setblocking(False)
        made = make(client, f"http://rebinding.example:{receiver.port}/")["id"]
        put(client, "a")
        wait_for(client, made, state="failed", failure="must be https, or one of webhook_hosts")
        resume(client, made)
        assert [item.document for item in receiver.take(1)] == ["a"]
        with pytest.raises(BlockingIOError):
            inside.accept()
        assert len(asked) == 3


def test_what_is_removed_is_told_no_more(make_client: MakeClient) -> None:
    client, gate = make_client(webhook_hosts=LOCAL), threading.Event()

    def hold(handler: BaseHTTPRequestHandler) -> None:
        gate.wait(120)
        status(204)(handler)

    with Receiver() as receiver:
        receiver.answers = [hold]
        url = f"http://127.0.0.1:{receiver.port}/"
        removed, other = make(client, url)["id"], make(client, url)["id"]
        put(client, *"abc")
        receiver.take(2)
        assert client.delete(f"{PATH}/{removed}").status_code == 204
        gate.set()
        wait_for(client, other, delivered=client.get(f"{PATH}/events").json()["last"])
        assert len(receiver.messages) == 4
        assert client.post(f"{PATH}/{removed}/resume").status_code == 404


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("url", "http://example.com/"), ("url", "https://127.0.0.1/")),
        *(("url", "https://localhost/"), ("url", "https://2130706433/")),
        *(("url", "https://192.88.99.1/"), ("url", "https://example.com:0/")),
        *(("url", "https://user:password@example.com/"), ("url", "https://example.com/#part")),
        *(("url", "https://example.com:99999/"), ("url", "https://example.com\\@localhost/")),
        *(("url", "file:///etc/passwd"), ("url", "https://example.com/" + "x" * 2_048)),
        *(("secret", ""), ("secret", "whsec_AAAA"), ("secret", "A" * 40)),
        *(("secret", "whsec_" + "A" * 100), ("secret", "whsec_" + "!" * 32)),
    ],
)
def test_a_wrong_url_or_secret_is_refused(library: Any, field: str, value: str) -> None:
    webhook = {"url": "https://example.com/", field: value}
    response = library.post(PATH, json={"text": "A plan.", "min_score": 0, "webhook": webhook})
    assert response.status_code == 422
    assert response.json()["errors"][0]["pointer"] == f"#/webhook/{field}"
    assert field == "url" or len(value) < 12 or value not in response.text
    assert library.get(PATH).json()["queries"] == []
