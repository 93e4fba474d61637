"""The error trees: each class is described, and each has its HTTP status."""

import errno

import pytest

from encoder.errors import EmptyTextError, ProviderError
from index import errors as index_errors
from service.errors import PROBLEM_TYPES, EncodingFailedError, SettingsError
from service.problem_responses import service_error


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (EmptyTextError(), "invalid-input"),
        (index_errors.DocumentError("title", "is too long"), "invalid-input"),
        (index_errors.LexicalIndexNotReadyError(), "not-ready"),
        (index_errors.EngineError("qdrant", "refuses"), "engine-failed"),
        (index_errors.DatabaseFailedError("postgresql", "is away"), "storage-failed"),
        (index_errors.StorageFullError("data", "no room"), "storage-full"),
        (OSError(errno.ENOSPC, "no room"), "storage-full"),
        (index_errors.DamagedDocumentError("store", "bees", "text"), "document-damaged"),
        (index_errors.SnapshotError("is changed"), "internal-error"),
        (ProviderError("none"), "internal-error"),
        (SettingsError("a secret"), "internal-error"),
        (EncodingFailedError(), "encoding-failed"),
        (ValueError("a text"), "internal-error"),
    ],
)
def test_every_error_becomes_a_problem(error: Exception, name: str) -> None:
    shown = service_error(error, {})
    assert shown.problem_type is PROBLEM_TYPES[name]
    assert ("request_id" in str(shown)) is (name in ("internal-error", "encoding-failed"))


def test_problem_types_are_described_and_are_errors() -> None:
    for name, kind in PROBLEM_TYPES.items():
        assert kind.type == f"/problems/{name}"
        assert 400 <= kind.status <= 507
        assert kind.title
        assert kind.description.endswith(".")
