"""Debian packages and folders: what is in them, whose licence counts, what is refused."""

from pathlib import Path

import pytest

from index.document import SkippedInput
from index.errors import CorpusError
from index.progress import SilentProgress
from tests.tools.debian import FREE, write_deb
from training.sources.packages import find_packages, open_packages, read_files


class Skipped(SilentProgress):
    def __init__(self) -> None:
        self.inputs: list[SkippedInput] = []

    def skipped(self, skipped: SkippedInput) -> None:
        self.inputs.append(skipped)


@pytest.mark.parametrize("compression", ["xz", "gz"])
def test_a_package_is_read(tmp_path: Path, compression: str) -> None:
    deb = write_deb(
        tmp_path / "tool.deb",
        {"man/man1/tool.1": "page", "doc/tool/x.html": "<p>"},
        {"man/man1/alias.1": "tool.1", "man/man1/up.1": "../man8/up.8"},
        source="tools",
        compression=compression,
    )
    [package] = open_packages([deb], SilentProgress())
    assert (package.name, package.group) == ("tool", "tools")
    assert package.metadata == {"package": "tool", "version": "1.0-1", "licence": ["Expat"]}
    found = list(read_files(package, lambda path: "/man/" in path))
    assert [(one.path, one.data, one.link) for one in found] == [
        ("usr/share/man/man1/tool.1", b"page", ""),
        ("usr/share/man/man1/alias.1", b"", "usr/share/man/man1/tool.1"),
        ("usr/share/man/man1/up.1", b"", "usr/share/man/man8/up.8"),
    ]


def test_a_folder_is_read_without_a_licence(tmp_path: Path) -> None:
    (tmp_path / "pages/sub").mkdir(parents=True)
    (tmp_path / "pages/sub/a.1").write_text("page")
    (tmp_path / "pages/b.1").symlink_to("sub/a.1")
    [package] = open_packages(find_packages([tmp_path / "pages"]), SilentProgress())
    assert (package.name, package.group, package.metadata) == ("pages", "", {})
    found = {one.path: (one.data, one.link) for one in read_files(package, lambda _: True)}
    assert found["sub/a.1"] == (b"page", "")
    assert found["b.1"] == (b"", "sub/a.1")


def test_packages_are_found_at_any_depth(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    deb = write_deb(tmp_path / "a/b/x.deb", {})
    other = write_deb(tmp_path / "y.deb", {})
    (tmp_path / "none").mkdir()
    assert find_packages([tmp_path / "a", other, tmp_path / "none"]) == [
        deb,
        other,
        tmp_path / "none",
    ]
    for bad in (tmp_path / "missing", tmp_path / "missing.deb"):
        with pytest.raises(CorpusError, match="neither a folder nor a"):
            find_packages([bad])


def test_packages_without_a_free_licence_are_skipped(tmp_path: Path) -> None:
    free = write_deb(tmp_path / "free.deb", {})
    nonfree = write_deb(tmp_path / "nonfree.deb", {}, copyright_file=FREE.replace("Expat", "mine"))
    none = write_deb(tmp_path / "none.deb", {}, copyright_file="")
    progress = Skipped()
    assert [one.name for one in open_packages([free, nonfree, none], progress)] == ["free"]
    assert [one.where for one in progress.inputs] == ["nonfree.deb", "none.deb"]
    assert "licence" in progress.inputs[0].reason


def test_a_linked_copyright_file_is_that_of_the_other_package(tmp_path: Path) -> None:
    base = write_deb(tmp_path / "base.deb", {})
    folder = write_deb(tmp_path / "a.deb", {}, {"doc/a": "base"}, copyright_file="")
    file = write_deb(
        tmp_path / "b.deb", {}, {"doc/b/copyright": "../base/copyright"}, copyright_file=""
    )
    opened = open_packages([folder, file, base], SilentProgress())
    assert [one.metadata["licence"] for one in opened] == [["Expat"]] * 3
    assert not open_packages([folder], SilentProgress())


def test_what_is_no_package_is_skipped(tmp_path: Path) -> None:
    whole = write_deb(tmp_path / "whole.deb", {"man/man1/a.1": "x" * 9000}).read_bytes()
    (tmp_path / "cut.deb").write_bytes(whole[:-40])
    (tmp_path / "text.deb").write_bytes(b"text")
    (tmp_path / "empty.deb").write_bytes(b"!<arch>\n")
    damaged = bytearray(whole)
    damaged[-300:-200] = bytes(100)
    (tmp_path / "damaged.deb").write_bytes(damaged)
    write_deb(tmp_path / "zstd.deb", {}, compression="zst")
    (tmp_path / "whole.deb").unlink()
    progress = Skipped()
    assert not open_packages(find_packages([tmp_path]), progress)
    reasons = {one.where: one.reason for one in progress.inputs}
    assert "cut off" in reasons["cut.deb"]
    assert "not a Debian package" in reasons["text.deb"]
    assert "has no control.tar" in reasons["empty.deb"]
    assert "(xz) is damaged" in reasons["damaged.deb"]
    assert "(zst) is damaged, or not known to Python" in reasons["zstd.deb"]
