import pytest

from encoder.errors import ParityError
from encoder.golden import MAXIMUM_DIFFERENCE, MINIMUM_COSINE, Parity, check_parity

PERFECT = {
    "block_cosine": 1.0,
    "block_difference": 0.0,
    "document_cosine": 1.0,
    "document_difference": 0.0,
}


@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8"])
def test_the_limits_themselves_pass(precision: str) -> None:
    cosine, difference = MINIMUM_COSINE[precision], MAXIMUM_DIFFERENCE[precision]
    check_parity(Parity(cosine, difference, cosine, difference), precision)


@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8"])
@pytest.mark.parametrize(
    ("figure", "value"),
    [
        ("block_cosine", 0.9),
        ("document_cosine", 0.9),
        ("block_difference", 0.2),
        ("document_difference", 0.2),
        ("block_cosine", float("nan")),
        ("document_difference", float("nan")),
    ],
)
def test_each_figure_alone_refuses(precision: str, figure: str, value: float) -> None:
    with pytest.raises(ParityError, match=f"{precision} {figure.split('_')[0]}"):
        check_parity(Parity(**(PERFECT | {figure: value})), precision)
