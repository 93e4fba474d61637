"""Manual pages: their text, their links, their aliases."""

import gzip
from collections.abc import Mapping
from pathlib import Path

import pytest

from index.errors import CorpusError
from index.progress import SilentProgress
from tests.tools.debian import write_deb
from training.sources.linked_document import LinkedDocument
from training.sources.man_pages import format_page, parse_page, read_man_pages
from training.sources.packages import find_packages, open_packages

PAGE = r""".TH {name} 1 "2020" "tools 1.0" "Manual"
.SH NAME
{name}, {name}x \- do a thing
.SH DESCRIPTION
.B {name}
reads \-\-long options. {text}
.SH SEE ALSO
{see}
.SH AUTHORS
A. Author
"""
MDOC = r""".Dd January 1, 2020
.Dt MD 1
.Os
.Sh NAME
.Nm md
.Nd a page of the other macros
.Sh DESCRIPTION
The text of it.
.Sh SEE ALSO
.Xr cp 1
"""


def page(name: str, see: str = "x", text: str = "") -> str:
    return PAGE.format(name=name, see=see, text=text)


def read(path: Path) -> dict[str, LinkedDocument]:
    packages = open_packages(find_packages([path]), SilentProgress())
    return {one.id: one for one in read_man_pages(packages, SilentProgress())}


def deb(
    path: Path, pages: Mapping[str, str | bytes], links: Mapping[str, str] | None = None
) -> Path:
    return write_deb(
        path,
        {f"man/{name}": text for name, text in pages.items()},
        {f"man/{name}": target for name, target in (links or {}).items()},
    )


def test_a_page_is_a_document_linked_to_what_it_sees(tmp_path: Path) -> None:
    deb(
        tmp_path / "tools.deb",
        {
            "man1/cp.1.gz": gzip.compress(
                page(
                    "cp", r"\fBmv\fR(1), \fIdd\fR(1), gone(3), cp(1)", "Use mv(1) or ls(1)."
                ).encode()
            ),
            "man1/mv.1": page("mv"),
            "man1/ls.1": page("ls"),
            "man8/dd.8": page("dd"),
            "man1/md.1": MDOC,
        },
    )
    found = read(tmp_path)
    cp = found["tools/cp.1"]
    assert cp.links == {"tools/mv.1", "tools/dd.8"}  # dd of this package, in another section
    assert cp.title == "cp(1): cp, cpx - do a thing"
    assert cp.text == (
        "NAME\n\ncp, cpx - do a thing\n\n"
        "DESCRIPTION\n\ncp reads --long options. Use mv(1) or ls(1)."
    )
    named = {cp.text[one.start : one.end]: one.target for one in cp.mentions}
    assert named == {"mv(1)": "tools/mv.1", "ls(1)": "tools/ls.1"}
    assert cp.metadata == {"package": "tools", "version": "1.0-1", "licence": ["Expat"]}
    assert found["tools/md.1"].links == {"tools/cp.1"}
    assert found["tools/md.1"].text.endswith("DESCRIPTION\n\nThe text of it.")


def test_aliases_are_the_page(tmp_path: Path) -> None:
    deb(
        tmp_path / "tools.deb",
        {
            "man1/real.1": page("real"),
            "man1/includes.1": ".so man1/real.1\n",
            "man1/a.1": page("a", "linked(1)"),
            "man1/b.1": page("b", "includes(1)"),
            "man1/c.1": page("c", "realx(1)"),
        },
        {"man1/linked.1": "between.1", "man1/between.1": "real.1", "man1/loop.1": "loop.1"},
    )
    found = read(tmp_path)
    assert set(found) == {f"tools/{name}.1" for name in ("real", "a", "b", "c")}
    assert all(found[f"tools/{name}.1"].links == {"tools/real.1"} for name in "abc")


def test_the_own_package_comes_first(tmp_path: Path) -> None:
    for name in ("one", "two"):
        deb(
            tmp_path / f"{name}.deb",
            {"man3/open.3x": page("open"), "man3/use.3": page("use", "open(3), other(3)")},
        )
    deb(
        tmp_path / "three.deb",
        {"man3/other.3": page("other"), "man3/see.3": page("see", "open(3)")},
    )
    found = read(tmp_path)
    assert found["two/use.3"].links == {"two/open.3x", "three/other.3"}
    assert found["three/see.3"].links == {"one/open.3x"}


def test_names_without_a_section_are_of_the_same_package(tmp_path: Path) -> None:
    see = r"Some::Module, perlthing and other."
    deb(
        tmp_path / "a.deb",
        {"man3/Some::Module.3pm": page("Some::Module", see), "man1/perlthing.1": page("perlthing")},
    )
    deb(tmp_path / "b.deb", {"man1/other.1": page("other")})
    assert read(tmp_path)["a/Some::Module.3pm"].links == {"a/perlthing.1"}


def test_translations_and_other_files_are_no_pages(tmp_path: Path) -> None:
    deb(
        tmp_path / "tools.deb",
        {
            "de/man1/a.1": page("a"),
            "man1/a.1": page("a"),
            "man1/b.2": "no macros here",
            "man1/c.1.gz": b"no gzip",
        },
    )
    assert set(read(tmp_path)) == {"tools/a.1"}


def test_pages_of_a_folder_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.1").write_text(page("a", "b(1)"))
    (tmp_path / "b.1").write_text(page("b"))
    found = read(tmp_path)
    assert found[f"{tmp_path.name}/a.1"].links == {f"{tmp_path.name}/b.1"}


def test_a_page_includes_no_files(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("the secret words\n")
    source = page("a", text=f"x\n.so {secret}\n'soquiet {secret}\n.mso {secret}\n")
    assert "secret words" not in format_page(source.encode())
    with pytest.raises(CorpusError, match="was not formatted"):
        format_page(b".ab stopped here\n")


def test_sections_that_say_nothing_about_the_page_are_left_out() -> None:
    formatted = """a(1)      Manual      a(1)

NAME
       a – do it

DESCRIPTION
       One.

           code


SEE ALSO
       b(1)

COPYRIGHT AND LICENSE
       Mine.

SEE ALSO, too
       c(1)

tools 1.0      2020      a(1)
"""
    found = parse_page(formatted)
    assert found.text == "NAME\n\na – do it\n\nDESCRIPTION\n\nOne.\n\n    code"
    assert found.see_also.split() == ["b(1)", "c(1)"]
    assert (found.names, found.summary) == (("a",), "a – do it")
    assert parse_page("").text == ""
