"""The licences of a Debian package's documentation, as its file debian/copyright states them.

The machine-readable format is https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/.
Of it counts what applies to all files, and to files of documentation. In older files, and for names
that are not known, the wording decides.
"""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

# How the names of licences begin that permit copies, changes and changed copies of the text.
_FREE = re.compile(
    r"[al]?gpl|gnu-?(gpl|lgpl|all-permissive)|0?bsd|revisedbsd|mit\b|expat|x11|isc|apache"
    r"|cc0|cc-by(-sa)?(-\d|$)|public[ _-]?domain|pd$|artistic|perl|mpl|zlib|psf|python"
    r"|fsf|permissive|gfdl-niv|gfdl-[\d.+]+-no-invariant|bsl|boost|postgresql|curl|openldap|oldap"
    r"|epl|edl|cpl|cddl|linux-man-pages|unlicense|wtfpl|tcl|openssl|openssh|zsh|ruby|lppl|w3c|hpnd"
    r"|ntp$|beerware|unlimited",
    re.IGNORECASE,
)
# How a licence is recorded, and what it says.
_WORDINGS = (
    ("GPL", r"gnu general public licen[sc]e|common-licenses/gpl"),
    ("LGPL", r"gnu (lesser|library) general public licen[sc]e|common-licenses/lgpl"),
    ("Apache-2.0", r"apache license,? version 2|common-licenses/apache"),
    ("EPL", r"(eclipse|ibm) public licen[sc]e"),
    ("MPL", r"mozilla public licen[sc]e|common-licenses/mpl"),
    ("Artistic", r"artistic licen[sc]e|common-licenses/artistic"),
    ("PSF-2", r"python software foundation license"),
    ("BSD", r"redistribution and use in source and binary forms|common-licenses/bsd"),
    ("Expat", r"permission is hereby granted, free of charge, to any person"),
    (
        "permissive",
        r"permission to use, copy, modify,? (and|and/or|distribute|sell)"
        r"|hereby grant permission to use, copy, modify, distribute"
        r"|granted to copy and distribute modified versions",
    ),
    ("public domain", r"(in|into|to) the public domain"),
)
_NOT_FREE = re.compile(
    r"invariant sections|for non-?commercial|may not be (modified|changed|sold)"
    r"|(no|without) modification is permitted",
    re.IGNORECASE,
)
_NO_INVARIANTS = re.compile(r"(no|without(\s+any)?)\s+invariant\s+sections", re.IGNORECASE)
_DOCUMENTATION = re.compile(
    r"(^|[/*._-])(docs?|documentation|man|manpages|manual|pod)([/*._-]|$)"
    r"|\.(\d\w*|rst|html|txt|pod|md|xml|adoc)$",
    re.IGNORECASE,
)


def documentation_licences(copyright_file: str) -> tuple[str, ...] | None:
    """Return the licences of a package's documentation, sorted; None if one is not free.

    Free is what permits copies, changes and distribution of changed copies without conditions on
    the purpose. A licence that is neither known by name nor recognised by its wording is not.
    """
    paragraphs = list(_paragraphs(copyright_file))
    if not paragraphs or "format" not in paragraphs[0]:
        return _by_wording(copyright_file) or None
    wordings = _wordings(paragraphs)
    given = [
        (one["license"].partition("\n")[0].strip(), one["license"])
        for one in _of_documentation(paragraphs)
    ]
    names: set[str] = set()
    for name, text in given:
        free = (_free_choice(name, wordings),) if name else _by_wording(text)
        if not all(free) or not free:
            return None
        names.update(free)
    return tuple(sorted(names)) or None


class _Conditions(NamedTuple):
    """What has to be met together: `A and B`."""

    names: tuple[str, ...]


def _free_choice(expression: str, wordings: Mapping[str, str]) -> str:
    """Return what applies of an expression such as "GPL-2+ or Artistic, and Expat"; "" if not free.

    Of alternatives one free one is enough. A comma binds less than any word, `and` more than `or`.
    """
    chosen = []
    for part in re.split(r",\s*and\s+", expression.replace("and/or", "and")):
        choices = (
            _Conditions(tuple(re.split(r"\s+and\s+", choice.strip(" ,"))))
            for choice in re.split(r",?\s+or\s+", part)
        )
        free = [one for one in choices if all(_is_free(name, wordings) for name in one.names)]
        if not free:
            return ""
        chosen.append(" or ".join(" and ".join(one.names) for one in free))
    return ", and ".join(chosen)


def _is_free(name: str, wordings: Mapping[str, str]) -> bool:
    return bool(name) and bool(_FREE.match(name) or _by_wording(wordings.get(name.lower(), "")))


def _by_wording(text: str) -> tuple[str, ...]:
    """Return the free licences that a text has the wording of; none if it forbids something."""
    flat = re.sub(r"[\s*#]+", " ", text)
    if _NOT_FREE.search(_NO_INVARIANTS.sub("", flat)):
        return ()
    return tuple(name for name, words in _WORDINGS if re.search(words, flat, re.IGNORECASE))


def _of_documentation(paragraphs: list[dict[str, str]]) -> list[dict[str, str]]:
    """Return the paragraphs of files that cover documentation; all of them if none says so."""
    files = [one for one in paragraphs if "files" in one and "license" in one]
    covering = [
        one
        for one in files
        if any(pattern == "*" or _DOCUMENTATION.search(pattern) for pattern in one["files"].split())
    ]
    return covering or files


def _wordings(paragraphs: list[dict[str, str]]) -> dict[str, str]:
    """Return the texts of licences by name, in lower case."""
    texts = {}
    for one in paragraphs:
        name, _, text = one.get("license", "").partition("\n")
        if text.strip():
            texts[name.strip().lower()] = text
    return texts


def _paragraphs(text: str) -> Iterator[dict[str, str]]:
    """Yield the paragraphs of a file of fields, with their names in lower case."""
    for block in re.split(r"\n[ \t]*\n", text.strip()):
        fields: dict[str, str] = {}
        name = ""
        for line in block.splitlines():
            key, colon, value = line.partition(":")
            if line[:1].isspace() and name:
                fields[name] += f"\n{line.strip()}"
            elif colon and re.fullmatch(r"[A-Za-z-]+", key):
                name = key.lower()
                fields[name] = value.strip()
        if fields:
            yield fields
