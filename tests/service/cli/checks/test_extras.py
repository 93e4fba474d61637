"""A missing extra is named before any graph is loaded and any document is read."""

import sys
from importlib.metadata import distribution

import pytest
from packaging.requirements import Requirement

from index.optional_dependencies import EXTRAS
from tests.service.cli.checks.conftest import EVALUATE, FIT, RERANKER, TRAIN, error_of

# Each command line, and a module without which it cannot end.
EXTRAS_NEEDED = [
    ("index table.parquet", "pyarrow", "Parquet"),
    ("index postgresql://host/d --query select", "psycopg", "PostgreSQL"),
    (EVALUATE, "scipy", "evaluate"),
    (EVALUATE, "ir_measures", "evaluate QRELS"),
    ("evaluate corpus.jsonl --pairs pairs.jsonl", "sklearn", "--pairs"),
    (f"{EVALUATE} --baselines bm25", "bm25s", "--baselines bm25"),
    (f"{EVALUATE} --baselines lsa", "sklearn", "--baselines lsa"),
    (FIT, "sklearn", "lab fit-calibration"),
    ("tune data", "ir_measures", "tune"),
    ("tune data", "scipy", "tune"),
    ("reencode data --adapt --only-if-better", "ir_measures", "reencode --only-if-better"),
    (f"{TRAIN} --corpus links -o out", "torch", "lab train"),
    (f"{RERANKER} --corpus links -o out", "torch", "lab train"),
    ("lab create-checkpoint links.toml --bert bert -o out", "torch", "lab create-checkpoint"),
    ("lab export weights --precision int8", "onnxscript", "lab export"),
]


@pytest.mark.usefixtures("untouchable")
@pytest.mark.parametrize(("line", "module", "purpose"), EXTRAS_NEEDED)
def test_a_missing_extra_is_named_before_the_work(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    line: str,
    module: str,
    purpose: str,
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    found = error_of(line, monkeypatch, capsys)
    assert found.startswith(f"error: {purpose} needs the extra ")
    assert "pip install 'longmatch[" in found
    assert f"(missing: {module})" in found


def test_the_table_of_extras_is_that_of_the_distribution() -> None:
    """Every distribution of an extra is listed by the name under which it is imported."""
    imported = {
        "scikit-learn": "sklearn",
        "ir-measures": "ir_measures",
        "opentelemetry-sdk": "opentelemetry.sdk",
        "opentelemetry-exporter-otlp-proto-http": "opentelemetry.exporter.otlp.proto.http",
    }
    required = [Requirement(one) for one in distribution("longmatch").requires or ()]
    for extra, modules in EXTRAS.items():
        names = {
            imported.get(one.name, one.name.replace("-", "_"))
            for one in required
            if one.marker and one.marker.evaluate({"extra": extra})
        }
        assert names == set(modules)
