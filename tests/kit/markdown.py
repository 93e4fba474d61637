"""What a Markdown page links to, names and asks the reader to run."""

import re
from collections.abc import Iterator

_FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`([^`]+)`")
_LINK = re.compile(r"\]\(([^)\s]+)\)|(?:src|srcset|href)=\"([^\"]+)\"")
_HEADING = re.compile(r"^#+\s+(.*)$", re.MULTILINE)
_OPTION = re.compile(r"(?<![\w-])--([a-z][a-z0-9-]*)")


def anchors(markdown: str) -> set[str]:
    """Return the anchors of the headings of a page, as GitHub and GitLab make them."""
    headings = _HEADING.findall(_FENCE.sub("", markdown))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links(markdown: str) -> list[str]:
    """Return the targets of all links and images of a page."""
    return [first or second for first, second in _LINK.findall(_FENCE.sub("", markdown))]


def code(markdown: str) -> Iterator[str]:
    """Yield the lines of code of a page: blocks, with continued lines joined, and inline code."""
    joined = markdown.replace("\\\n", " ")
    for block in _FENCE.finditer(joined):
        yield from block[0].splitlines()[1:-1]
    without = _FENCE.sub("", joined)
    prose = []
    for line in without.splitlines():
        if line.startswith("    "):
            yield line.strip()
        else:
            prose.append(line)
    yield from (" ".join(found.split()) for found in _INLINE.findall("\n".join(prose)))


def options_of(command: str) -> list[str]:
    """Return the long options of a command, without their hyphens."""
    return _OPTION.findall(command)
