import json
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
import typer

from benchmarks.common import RESULTS, ROOT
from benchmarks.table import TABLES, main

KEPT = sorted(RESULTS.glob("*.json"))
DECIMAL = re.compile(r"(?<![\w.])\d*\.\d+(?![\w.])")
PRINTED = re.compile(r"\d[\d,]*(?:\.\d+)?")


def test_every_benchmark_has_a_result() -> None:
    kept = {json.loads(path.read_text(encoding="utf-8"))["benchmark"] for path in KEPT}
    assert {"encoder", "index", "load"} <= kept <= set(TABLES)


@pytest.mark.parametrize("path", KEPT, ids=lambda path: str(path.name))
def test_a_result_can_be_printed_and_names_no_path(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    record = json.loads(text)
    assert "| --" in TABLES[record["benchmark"]](record)
    assert not any(place in text for place in ('"/', "/tmp", "/home", "site-packages"))


def test_results_are_printed_without_any_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    wanted = {re.split(r"[^\w-]", line)[0] for some in extras.values() for line in some}
    modules = {
        name
        for name, packages in packages_distributions().items()
        if wanted.intersection(packages) and name not in {"faiss", "onnxruntime"}
    }
    assert {"torch", "psycopg", "bm25s", "sklearn"} <= modules
    code = f"""
import runpy, sys
sys.modules.update(dict.fromkeys({sorted(modules)}))  # to import one of them is an error
sys.argv = ["table"]
runpy.run_module("benchmarks.table", run_name="__main__")
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert b"### quality" in done.stdout


def not_printed(page: str, printed: str) -> list[str]:
    """Return the decimals in tables of a page that round no number of a printed text.

    What a paper reports stands in columns that say so, and is not checked.
    """
    numbers = [float(number.replace(",", "")) for number in PRINTED.findall(printed)]
    missing, header = [], None
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line[:1] == "|" else None
        if cells is None or header is None:
            header = cells
            continue
        for name, cell in zip(header, cells, strict=True):
            for decimal in DECIMAL.findall(cell) if "paper" not in name else ():
                half = 0.5 * 10.0 ** -len(decimal.split(".")[1]) + 1e-9
                if not any(abs(number - float(decimal)) <= half for number in numbers):
                    missing.append(decimal)
    return missing


def test_figures_of_readme_tables_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    main(None)
    printed = capsys.readouterr().out
    assert not_printed((ROOT / "README.md").read_text(encoding="utf-8"), printed) == []


def test_a_result_that_is_not_there_is_refused() -> None:
    with pytest.raises(typer.BadParameter, match=r"colde-1\.json: there is no such result"):
        main(["colde-1"])
