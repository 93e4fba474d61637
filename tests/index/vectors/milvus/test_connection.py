"""Addresses of a Milvus, and what is said when it cannot be used."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from index.errors import VectorEngineError
from index.vectors.milvus.connection import MilvusAddress, MilvusConnection, parse_milvus_url
from tests.tools.milvus import MilvusServer
from tests.tools.process_fixtures import free_port


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("milvus://host", MilvusAddress("http://host:19530")),
        ("milvus://host:1/db", MilvusAddress("http://host:1", "db")),
        ("milvus+tls://[::1]:2/", MilvusAddress("https://[::1]:2")),
        ("milvus://u:p%40s@h/d", MilvusAddress("http://h:19530", "d", "u:p@s")),
        ("milvus:///a/b%20c.db", MilvusAddress("/a/b c.db")),
    ],
)
def test_addresses(url: str, address: MilvusAddress) -> None:
    assert parse_milvus_url(url) == address
    assert address.is_lite == url.endswith(".db")


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("redis://host", "none of the forms"),
        ("milvus", "none of the forms"),
        ("milvus://host?a=b", "none of the forms"),
        ("milvus://host:99999", "no number up to 65535"),
        ("milvus://host/a/b", "no name of a database"),
        ("milvus:///folder", "ends in .db"),
        ("milvus:///folder/.db", "ends in .db"),
        ("milvus+tls:///folder.db", "names no host"),
        ("milvus://u:secret@/folder.db", "names no host"),
    ],
)
def test_other_addresses_are_refused(url: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint) as caught:
        parse_milvus_url(url)
    assert "secret" not in str(caught.value)


def test_a_password_is_not_shown() -> None:
    address = parse_milvus_url("milvus://user:secret@127.0.0.1:1")
    assert "secret" not in f"{address} {address!r}"


def test_one_that_is_down_is_an_error_in_time() -> None:
    url = f"milvus://127.0.0.1:{free_port()}"
    with pytest.raises(VectorEngineError, match=r"Milvus at http://127.0.0.1:\d+: ") as caught:
        MilvusConnection(parse_milvus_url(url, seconds=0.3))
    assert not caught.value.answered
    assert "\n" not in str(caught.value)


def test_one_that_hangs_is_an_error_in_time(milvus_server: MilvusServer) -> None:
    connection = MilvusConnection(parse_milvus_url(milvus_server.url, seconds=0.5))
    connection.check()
    assert connection.problem is None
    milvus_server.signal(signal.SIGSTOP)
    started = time.monotonic()
    try:
        with pytest.raises(VectorEngineError, match="in time") as caught:
            connection.check()
    finally:
        milvus_server.signal(signal.SIGCONT)
    assert time.monotonic() - started < 10  # and not forever
    assert not caught.value.answered
    assert connection.problem == str(caught.value)
    connection.check()
    assert connection.problem is None
    connection.close()


def test_what_it_refuses_is_an_answer(milvus_address: MilvusAddress) -> None:
    connection = MilvusConnection(milvus_address)
    with pytest.raises(VectorEngineError, match="nothing_of_this_name") as caught:
        connection.call("describe_collection", "nothing_of_this_name")
    assert caught.value.answered
    connection.close()


@pytest.mark.parametrize("version", ["v2.2.16", "1.0", "unknown", ""])
def test_an_older_or_unknown_version_is_refused(
    milvus_address: MilvusAddress, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pymilvus.MilvusClient.get_server_version", lambda *a, **k: version)
    with pytest.raises(VectorEngineError, match=r"2\.3 or later|no known version"):
        MilvusConnection(milvus_address)


@pytest.mark.parametrize("version", ["v2.3.5-lite", "v2.6.0", "3.0.1-rc1"])
def test_a_newer_version_is_used(
    milvus_address: MilvusAddress, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pymilvus.MilvusClient.get_server_version", lambda *a, **k: version)
    connection = MilvusConnection(milvus_address)
    assert not connection.is_lite
    connection.close()


def test_a_lite_of_another_process_is_in_use(milvus_server: MilvusServer, tmp_path: Path) -> None:
    (tmp_path / "lite.db").symlink_to(milvus_server.folder)
    with pytest.raises(VectorEngineError, match=r"lite\.db: in use by another process"):
        MilvusConnection(parse_milvus_url(f"milvus://{tmp_path}/lite.db"))


def test_a_file_is_no_lite(tmp_path: Path) -> None:
    (tmp_path / "old.db").write_text("SQLite format 3")
    with pytest.raises(VectorEngineError, match=r"old\.db: is a file, of a Milvus Lite before 3"):
        MilvusConnection(parse_milvus_url(f"milvus://{tmp_path}/old.db"))


def test_a_lite_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(VectorEngineError, match=r"lite\.db: cannot be opened: "):
        MilvusConnection(parse_milvus_url(f"milvus://{tmp_path}/file/lite.db"))


@pytest.mark.parametrize(
    ("url", "extra"), [("milvus://host", "milvus"), ("milvus:///tmp/x.db", "milvus-lite")]
)
def test_an_extra_that_is_missing_is_named(
    url: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("index.optional_dependencies.find_spec", lambda name: None)
    with pytest.raises(VectorEngineError, match=rf"pip install 'longmatch\[{extra}\]'"):
        MilvusConnection(parse_milvus_url(url))


def test_nothing_of_milvus_is_imported_without_one() -> None:
    script = (
        "import sys, index.directory.data_directory, service.settings\n"
        "print([one for one in ('pymilvus', 'milvus_lite', 'grpc') if one in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert done.stdout.strip() == b"[]"
