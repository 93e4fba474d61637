import io

from rich.console import Console

from index.document import SkippedInput
from service.cli.progress import REFUSALS_SHOWN, printable, show_progress


def shown(*, terminal: bool, refusals: int = 0) -> str:
    output = io.StringIO()
    console = Console(file=output, force_terminal=terminal, width=120, soft_wrap=True)
    with show_progress(console) as progress:
        progress.started("encoding", 7)
        progress.advanced(documents=3, tokens=1_000)
        for number in range(refusals):
            progress.refused(SkippedInput(f"line {number}", "[bold]bad[/]\x1b[2J"))
        progress.advanced(documents=4, tokens=1_000)
    return output.getvalue()


def test_a_terminal_gets_a_bar() -> None:
    text = shown(terminal=True)
    assert "7/7" in text
    assert "tokens/s" in text


def test_a_log_gets_lines() -> None:
    assert shown(terminal=False) == "encoding 7 documents\n"


def test_refusals_are_plain_text_and_not_endless() -> None:
    text = shown(terminal=False, refusals=REFUSALS_SHOWN + 5)
    assert text.count("[bold]bad[/]") == REFUSALS_SHOWN
    assert "\x1b" not in text
    assert "refused 5 more" in text


def test_printable_keeps_every_letter() -> None:
    assert printable("Ünï 漢字 😀\n\x1b") == "Ünï 漢字 😀\ufffd\ufffd"
