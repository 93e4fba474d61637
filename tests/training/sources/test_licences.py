"""Which licences of documentation are free, by the copyright file of a package."""

import pytest

from training.sources.licences import documentation_licences

FORMAT = "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\n"


def files(pattern: str, licence: str) -> str:
    return f"Files: {pattern}\nCopyright: 2020 A. Author\nLicense: {licence}\n\n"


@pytest.mark.parametrize(
    "name",
    [
        *("GPL-2+", "LGPL-2.1", "AGPL-3+", "BSD-3-clause", "MIT", "Expat", "Apache-2.0", "CC0-1.0"),
        *("CC-BY-4.0", "CC-BY-SA-3.0", "public-domain", "Artistic or GPL-1+", "GFDL-NIV-1.3+"),
        *("GPL-2+ with OpenSSL exception", "GFDL-1.3+-no-invariant", "Linux-man-pages-copyleft"),
        *("GPL-2+ and Expat", "Zlib or custom", "custom and mine or MIT", "MIT or mine, and ISC"),
    ],
)
def test_free_licences(name: str) -> None:
    assert documentation_licences(FORMAT + files("*", name)) is not None


@pytest.mark.parametrize(
    "name",
    [
        *("custom", "CC-BY-NC-4.0", "CC-BY-ND-4.0", "CC-BY-NC-SA-4.0", "GFDL-1.3+", "unclear"),
        *("GPL-2 and custom", "MIT or ISC, and custom", "BSD-3-clause and/or custom", ""),
    ],
)
def test_other_licences(name: str) -> None:
    assert documentation_licences(FORMAT + files("*", name)) is None


def test_what_covers_documentation_counts() -> None:
    text = FORMAT + files("*", "GPL-3+") + files("src/md5.c", "custom")
    assert documentation_licences(text) == ("GPL-3+",)
    assert documentation_licences(text + files("doc/*", "CC-BY-4.0")) == ("CC-BY-4.0", "GPL-3+")
    assert documentation_licences(text + files("man/en/a.1 x.c", "custom")) is None
    assert documentation_licences(FORMAT + files("src/x.c", "ISC")) == ("ISC",)


def test_a_choice_is_recorded_by_what_is_free() -> None:
    text = FORMAT + files("*", "custom or GPL-1+ or Artistic, and Expat")
    assert documentation_licences(text) == ("GPL-1+ or Artistic, and Expat",)


def test_an_unknown_name_is_free_by_its_wording() -> None:
    wording = " Permission is hereby granted, free of\n charge, to any person obtaining ...\n"
    text = FORMAT + files("*", "Custom") + "License: Custom\n" + wording
    assert documentation_licences(text) == ("Custom",)
    assert documentation_licences(FORMAT + files("*", f"\n{wording}").strip()) == ("Expat",)
    refused = text + " You may use it for non-commercial purposes.\n"
    assert documentation_licences(refused) is None


@pytest.mark.parametrize(
    ("text", "licences"),
    [
        ("see `/usr/share/common-licenses/GPL-2'.", ("GPL",)),
        ("under the GNU Lesser General\n * Public License", ("LGPL",)),
        ("Redistribution and use in source and binary forms, with or without", ("BSD",)),
        ("the GNU General Public License; GFDL with no Invariant Sections.", ("GPL",)),
        ("This manual is in the public domain.", ("public domain",)),
        ("Eclipse Public License, or the Artistic Licence", ("EPL", "Artistic")),
    ],
)
def test_files_in_no_format_are_read_by_their_wording(text: str, licences: tuple[str, ...]) -> None:
    assert documentation_licences(f"It was packaged by me.\n\n{text}\n") == licences


@pytest.mark.parametrize(
    "text",
    [
        "",
        "All rights reserved.",
        "GNU General Public License; manual under the GFDL, Invariant Sections being History.",
        "Permission to use, copy, modify and distribute for noncommercial purposes",
    ],
)
def test_other_wordings_are_not_free(text: str) -> None:
    assert documentation_licences(text) is None
