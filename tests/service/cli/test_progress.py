import io
import json
import re

import pytest
from rich.console import Console

from index.document import SkippedInput, printable
from service.cli.options import print_json
from service.cli.progress import SKIPPED_SHOWN, show_progress, show_training


def plain(text: str) -> str:
    """Remove the colours."""
    return re.sub("\x1b\\[[0-9;]*m", "", text)


def shown(*, terminal: bool, refusals: int = 0) -> str:
    output = io.StringIO()
    console = Console(file=output, force_terminal=terminal, width=120, soft_wrap=True)
    with show_progress(console) as progress:
        progress.started("encoding", 7)
        progress.advanced(3, tokens=1_000)
        for number in range(refusals):
            progress.skipped(SkippedInput(f"line {number}", "[bold]bad[/]\x1b[2J"))
        progress.advanced(4, tokens=1_000)
    return output.getvalue()


def test_a_terminal_gets_a_bar_and_a_log_gets_lines() -> None:
    assert shown(terminal=False) == "encoding: 7 documents\n"
    text = plain(shown(terminal=True))
    assert "7/7 documents" in text
    assert "tokens/s" in text
    assert "documents/s" not in text[text.index("7/7") :]


@pytest.mark.parametrize("terminal", [True, False])
def test_what_a_step_counts_is_named_with_its_rate(
    terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.cli.progress.SECONDS_BETWEEN_LINES", 0.0)
    output = io.StringIO()
    console = Console(file=output, force_terminal=terminal, width=120, soft_wrap=True)
    with show_progress(console) as progress:
        progress.started("scoring pairs", 20, unit="pairs")
        progress.advanced(20)
        progress.started("reading", None)
        progress.advanced(3)
    text = plain(output.getvalue())
    assert "20/20 pairs, " in text
    assert "pairs/s" in text
    assert "documents/s" in text
    assert "tokens/s" not in text


def test_refusals_are_plain_text_and_not_endless() -> None:
    text = shown(terminal=False, refusals=SKIPPED_SHOWN + 5)
    assert text.count("[bold]bad[/]") == SKIPPED_SHOWN
    assert "\x1b" not in text
    assert "skipped 5 more" in text


def test_printable_keeps_every_letter() -> None:
    assert printable("Ünï\xa0漢字\u3000😀\n\x1b\x9b\u202e") == "Ünï\xa0漢字\u3000😀" + "\ufffd" * 4


def test_json_is_escaped_where_it_would_garble_a_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    title = "Ünï 漢字 😀 \x1b[2J \x9b2J \x7f \u202e \ue000 \U000e0001 \ud800 \n"
    print_json({"title": title})
    printed = capsys.readouterr().out
    assert json.loads(printed) == {"title": title}
    assert all(map(str.isprintable, printed.split("\n")))
    assert "Ünï 漢字 😀" in printed


@pytest.mark.parametrize("terminal", [True, False])
def test_a_training_run_shows_steps_losses_and_validations(
    terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.cli.progress.SECONDS_BETWEEN_LINES", 0.0)
    output = io.StringIO()
    console = Console(file=output, force_terminal=terminal, width=120, soft_wrap=True)
    with show_training(console) as progress:
        progress.started(3, 8)
        progress.stepped(4, {"loss": 0.5})
        progress.validated(4, 0.25, best=True)
        progress.stepped(8, {"loss": 0.125})
    text = plain(output.getvalue())
    assert "8/8 steps, loss 0.1250" in text
    assert "step 4: validation 0.2500, the best so far" in text
    assert terminal or text.startswith("training: resuming after 3 of 8 steps\n")
