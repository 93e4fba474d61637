"""The error trees: each class is described, and each has its HTTP status."""

import inspect
from types import ModuleType

from encoder import errors as encoder_errors
from index import errors as index_errors
from service import errors as service_errors
from service.errors import PROBLEM_TYPES
from service.problem_responses import problem_of

MODULES = (encoder_errors, index_errors, service_errors)


def errors_of(module: ModuleType) -> list[type[Exception]]:
    return [
        kind
        for _, kind in inspect.getmembers(module, inspect.isclass)
        if issubclass(kind, Exception) and kind.__module__ == module.__name__
    ]


def test_every_error_has_a_problem_type() -> None:
    for module in MODULES:
        for kind in errors_of(module):
            assert PROBLEM_TYPES[problem_of(kind).name] is problem_of(kind), kind


def test_problem_types_are_described_and_are_errors() -> None:
    for name, kind in PROBLEM_TYPES.items():
        assert kind.uri == f"/problems/{name}"
        assert 400 <= kind.status <= 507
        assert kind.title
        assert kind.description.endswith(".")
