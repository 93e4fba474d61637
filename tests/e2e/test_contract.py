"""Schemathesis asks the real server everything that the OpenAPI document allows, and more."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from service.keys import SCOPES
from tests.kit.calibrations import calibrated
from tests.kit.process_fixtures import add_key
from tests.kit.tiers import Tier

ROOT = Path(__file__).parents[2]
SETTINGS = ROOT / "tests/kit/schemathesis.toml"
HOOKS = "tests.kit.schemathesis_hooks"
SOME_PHASES = "examples,fuzzing,stateful"
EVERY_PHASE = f"{SOME_PHASES},coverage"  # which takes a minute by itself
EXAMPLES = 100  # of an operation in each phase of a sweep; with 1,000 a run took over an hour
# A request without a key is a wrong one by the document, and right where there are no keys.
OF_KEYS = "ignored_auth,negative_data_rejection"
# The routes of a collection are those without the prefix: a sweep asks both.
OF_A_COLLECTION = r"--exclude-path-regex=^/collections/\{collection\}/"


@pytest.mark.parametrize("keyless", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_every_kind_of_request_is_answered_as_documented(
    serve: Any,
    tiny_checkpoint: Path,
    tiny_reranker: Path,
    tmp_path: Path,
    tier: Tier,
    keyless: bool,
) -> None:
    """With all checks, but that of keys where there are none; every case in a sweep."""
    checkpoint, data = calibrated(tiny_checkpoint, tmp_path)
    key = "none is needed" if keyless else add_key(data, *SCOPES)
    with serve(data, checkpoint, reranker=tiny_reranker, open_information=False) as server:
        ended = subprocess.run(
            [
                *(Path(sys.executable).with_name("schemathesis"), f"--config-file={SETTINGS}"),
                *("run", f"{server.url}/openapi.json", "--continue-on-failure", "--no-color"),
                f"--header=Authorization: Bearer {key}",
                *([f"--exclude-checks={OF_KEYS}"] if keyless else []),
                f"--phases={EVERY_PHASE if tier.sweep else SOME_PHASES}",
                *(f"--max-examples={EXAMPLES if tier.sweep else 1}", f"--seed={tier.seed}"),
                *([] if tier.sweep else [OF_A_COLLECTION]),
            ],
            cwd=tmp_path,
            env=os.environ | {"SCHEMATHESIS_HOOKS": HOOKS, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
        )
        log = server.log.read_text()
    assert ended.returncode == 0, ended.stdout[-60_000:] + ended.stderr[-2_000:]
    assert "Tested: 0" not in ended.stdout
    assert "Traceback" not in log
