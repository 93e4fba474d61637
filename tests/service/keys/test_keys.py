"""API keys and their file."""

import json
import logging
import stat
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from index.directory.data_directory import KEY_FILE
from service.errors import KeyFileError
from service.keys import ApiKey, KeyRing, Scope, change_keys, make_key, read_keys, split_token

READ: frozenset[Scope] = frozenset(["read"])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / KEY_FILE


def add(path: Path, scopes: frozenset[Scope] = READ, expires: datetime | None = None) -> str:
    key, token = make_key("someone", scopes, expires)
    change_keys(path, lambda keys: (time.sleep(0.02), keys.update({key.id: key})))  # it may race
    return token


def revoke(path: Path, token: str) -> None:
    parts = split_token(token)
    assert parts is not None
    change_keys(path, lambda keys: keys.__delitem__(parts[0]))


def test_a_key_is_found_by_its_token_alone(path: Path) -> None:
    tokens = [add(path) for _ in range(3)]
    ring = KeyRing(path)
    found = [ring.find(token) for token in tokens]
    assert len({key.id for key in found if key is not None}) == 3
    first, second = (token.rpartition("_") for token in tokens[:2])
    assert ring.find(f"{first[0]}_{second[2]}") is None  # the secret of another key


@pytest.mark.parametrize(
    "change",
    [
        *(lambda token: token[:-1] + ("A" if token[-1] != "A" else "B"), lambda token: token[:-1]),
        *(lambda token: token + "A", lambda token: token.upper(), lambda token: token + "\n"),
        *(lambda token: "lm_00000000_" + token[12:], lambda token: token.replace("lm_", "lm_é")),
        lambda token: "A" * 1_000_000,
    ],
)
def test_no_other_token_is_accepted(path: Path, change: object) -> None:
    token = add(path)
    assert KeyRing(path).find(token) is not None
    assert KeyRing(path).find(change(token)) is None  # type: ignore[operator]


def test_secrets_are_compared_in_constant_time(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token, compared = add(path), []
    monkeypatch.setattr(
        "service.keys.hmac.compare_digest", lambda *given: bool(compared.append(given))
    )
    assert KeyRing(path).find(token) is None  # nothing else says that it is right
    ((first, other),) = compared
    assert first == other
    assert len(first) == 64


def test_a_secret_is_not_kept(path: Path) -> None:
    token = add(path)
    parts = split_token(token)
    assert parts is not None
    assert parts[1] not in path.read_text()
    assert len(parts[1]) * 6 >= 256
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_revoked_and_an_expired_key_are_not_found(path: Path) -> None:
    ring = KeyRing(path)
    assert not ring.required
    kept, revoked = add(path), add(path)
    expired = add(path, expires=datetime.now(UTC) - timedelta(seconds=1))
    later = add(path, expires=datetime.now(UTC) + timedelta(days=1))
    assert ring.find(revoked) is not None
    revoke(path, revoked)
    found = [ring.find(item) is not None for item in (kept, revoked, expired, later)]
    assert found == [True, False, False, True]
    revoke(path, kept)
    revoke(path, expired)
    revoke(path, later)
    assert ring.required  # from the first key on
    assert ring.find(kept) is None


def test_a_file_that_vanishes_opens_nothing(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    token = add(path)
    ring = KeyRing(path)
    path.unlink()
    with caplog.at_level(logging.ERROR):
        assert ring.required
    assert ring.find(token) is None
    assert "was removed" in caplog.text


def test_a_file_that_is_damaged_changes_nothing(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    token = add(path)
    ring = KeyRing(path)
    path.write_text("{")
    with caplog.at_level(logging.ERROR):
        assert ring.find(token) is not None
    assert "stay as they were" in caplog.text
    with pytest.raises(KeyFileError):
        KeyRing(path)


@pytest.mark.parametrize(
    "content",
    [
        *("", "{}", '{"format": 2, "keys": []}', '{"format": 1, "keys": [{}]}'),
        *('{"format": 1, "keys": 3}', "[" * 100_000),
        json.dumps({"format": 1, "keys": [{"id": "a", "scopes": ["all"]}]}),
    ],
)
def test_a_damaged_file_is_refused(path: Path, content: str) -> None:
    path.write_text(content)
    with pytest.raises(KeyFileError, match=KEY_FILE):
        read_keys(path)
    with pytest.raises(KeyFileError):
        add(path)
    assert path.read_text() == content


@pytest.mark.parametrize("name", ["", "  ", "a" * 65, "a\nb", "a\x1b[31m"])
def test_a_name_that_cannot_be_shown_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="name"):
        make_key(name, READ, None)


def test_keys_that_are_made_at_once_are_all_kept(path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        tokens = list(pool.map(lambda _: add(path), range(8)))
    ring = KeyRing(path)
    assert all(ring.find(token) is not None for token in tokens)


def test_a_change_that_fails_changes_nothing(path: Path) -> None:
    token = add(path)

    def fail(keys: dict[str, ApiKey]) -> None:
        keys.clear()
        raise RuntimeError

    with pytest.raises(RuntimeError):
        change_keys(path, fail)
    assert KeyRing(path).find(token) is not None
