"""Small Debian packages, made for a test."""

import io
import tarfile
from collections.abc import Mapping
from pathlib import Path

FREE = """Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/

Files: *
Copyright: 2020 A. Author
License: Expat
"""


def write_deb(
    path: Path,
    files: Mapping[str, str | bytes],
    links: Mapping[str, str] | None = None,
    *,
    source: str = "",
    copyright_file: str = FREE,
    compression: str = "xz",
) -> Path:
    """Write a package named after its file, whose files are under usr/share/.

    Args:
        path: ends in .deb.
        files: by path below usr/share.
        links: by path below usr/share, what a symbolic link holds.
        source: the source package, if it has another name.
        copyright_file: its copyright file; none when empty.
        compression: of the files: xz, gz, or another one, of which only the name is written.
    """
    name = path.stem
    control = f"Package: {name}\nVersion: 1.0-1\nDescription: a\n b\n"
    control += f"Source: {source} (1.0)\n" if source else ""
    if copyright_file:
        files = {**files, f"doc/{name}/copyright": copyright_file}
    below = {f"usr/share/{key}": value for key, value in files.items()}
    known = compression in ("xz", "gz")
    members = {
        "debian-binary": b"2.0\n",
        "control.tar.gz": _tar({"control": control}, {}, "gz"),
        f"data.tar.{compression}": _tar(below, links or {}, compression) if known else b"?" * 99,
    }
    with path.open("wb") as stream:
        stream.write(b"!<arch>\n")
        for member, content in members.items():
            head = f"{member:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(content):<10}`\n"
            stream.write(head.encode() + content + b"\n" * (len(content) % 2))
    return path


def _tar(files: Mapping[str, str | bytes], links: Mapping[str, str], compression: str) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode=f"w:{compression}") as archive:  # type: ignore[call-overload]
        for name, content in files.items():
            data = content.encode() if isinstance(content, str) else content
            member = tarfile.TarInfo(f"./{name}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
        for name, target in links.items():
            member = tarfile.TarInfo(f"./usr/share/{name}")
            member.type = tarfile.SYMTYPE
            member.linkname = target
            archive.addfile(member)
    return packed.getvalue()
