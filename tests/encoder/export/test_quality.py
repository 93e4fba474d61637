import dataclasses
import json
from pathlib import Path

import pytest

from encoder.checkpoint import QUALITY
from encoder.errors import QualityError
from encoder.export.quality import Quality, check_quality, write_quality

GOOD = Quality("wiki", 900, 300, 12_345, 0, neighbours=0.98, queries=9, ndcg=0.4, ndcg_fp32=0.4)


def test_what_is_within_the_limits_passes() -> None:
    check_quality(GOOD, "int8")
    check_quality(dataclasses.replace(GOOD, ndcg=0.3981), "int8")
    check_quality(dataclasses.replace(GOOD, ndcg=0.9), "int8")  # a gain is no loss
    check_quality(dataclasses.replace(GOOD, queries=0, ndcg=None, ndcg_fp32=None), "int8")
    check_quality(dataclasses.replace(GOOD, ndcg=0.0, ndcg_fp32=0.0), "int8")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"neighbours": 0.9799}, r"int8/block_encoder.onnx .*97\.99% .* under 98%"),
        ({"neighbours": float("nan")}, "neighbours"),
        ({"ndcg": 0.3979}, r"nDCG@10 is 0\.3979 and that of fp32 0\.4000, .* over 0\.5%"),
        ({"ndcg": float("nan")}, "nDCG"),
    ],
)
def test_what_is_not_is_refused_with_figure_and_limit(
    change: dict[str, float], message: str
) -> None:
    with pytest.raises(QualityError, match=message):
        check_quality(dataclasses.replace(GOOD, **change), "int8")


def test_reports_of_other_precisions_stay(tmp_path: Path) -> None:
    write_quality(tmp_path, {"int8": GOOD})
    write_quality(tmp_path, {"fp16": dataclasses.replace(GOOD, neighbours=1.0)})
    report = json.loads((tmp_path / QUALITY).read_text())
    assert {p: r["neighbours"] for p, r in report.items()} == {"int8": 0.98, "fp16": 1.0}
    assert report["int8"]["limits"] == {"neighbours": 0.98, "ndcg_loss": 0.005}
    assert report["int8"]["documents"] == 300
