"""Tables of figures as Markdown."""

from collections.abc import Sequence


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Format a Markdown table; floats are shortened, all but the first column right-aligned."""
    cells = [list(header), *([short_number(cell) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    lines = [
        [row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))]
        for row in (cells[0], rule, *cells[1:])
    ]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def short_number(value: object) -> str:
    """Format a number with three significant digits, and anything else as it is."""
    if not isinstance(value, float):
        return str(value)
    return f"{float(f'{value:.3g}'):,.0f}" if abs(value) >= 100 else f"{value:.3g}"
