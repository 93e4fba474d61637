from dataclasses import replace

import pytest

from encoder.errors import ParityError
from encoder.golden import MAXIMUM_DIFFERENCE, MINIMUM_COSINE, Parity, check_parity


@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8"])
def test_the_limits_pass_and_each_figure_alone_refuses(precision: str) -> None:
    cosine, difference = MINIMUM_COSINE[precision], MAXIMUM_DIFFERENCE[precision]
    limits = Parity(cosine, difference, cosine, difference)
    check_parity(limits, precision)
    for level in ("block", "document"):
        for figure, wrong in (("cosine", 0.9), ("difference", 0.2)):
            for value in (wrong, float("nan")):
                changed = replace(limits, **{f"{level}_{figure}": value})
                with pytest.raises(ParityError, match=f"{precision} {level}"):
                    check_parity(changed, precision)
