"""Take files to a machine without a network, in parts of limited size, and join them there.

    python -m benchmarks.gpu.carry split FOLDER-OR-FILE … -o PARTS --megabytes 60
    python -m benchmarks.gpu.carry join PARTS -o FOLDER

`split` writes one archive of all that is given, cut into parts, with a manifest of their digests
in the first part. Each part is a folder of its own, part-000, part-001 and so on, so that one at a
time can be taken along. `join` needs nothing but Python: it checks every part, says which are
missing or damaged, and unpacks only the whole archive.
"""

import argparse
import hashlib
import io
import json
import sys
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

MANIFEST = "manifest.json"
DATA = "data"
_MEGABYTE = 2**20
_COPIED = 2**20  # bytes at a time


class CarryError(Exception):
    """Parts are missing or damaged, or an archive is not what `split` writes."""


def part_folder(number: int) -> str:
    """Return the name of the folder of a part."""
    return f"part-{number:03}"


class _PartWriter(io.RawIOBase):
    """Divides what is written into files of at most so many bytes."""

    def __init__(self, folder: Path, size: int) -> None:
        self.parts: list[dict[str, Any]] = []
        self._folder, self._size = folder, size
        self._file: IO[bytes] | None = None
        self._room = 0
        self._digest = hashlib.sha256()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        written = 0
        while written < len(view):
            if self._room == 0:
                self._next()
            piece = view[written : written + self._room]
            assert self._file is not None  # `_next` opened it
            self._file.write(piece)
            self._digest.update(piece)
            self._room -= len(piece)
            written += len(piece)
        return len(view)

    def close(self) -> None:
        self._finish()
        super().close()

    def _next(self) -> None:
        self._finish()
        place = self._folder / part_folder(len(self.parts))
        place.mkdir(parents=True)
        self._file = (place / DATA).open("xb")
        self._room, self._digest = self._size, hashlib.sha256()

    def _finish(self) -> None:
        if self._file is not None:
            size = self._size - self._room
            self.parts.append({"bytes": size, "sha256": self._digest.hexdigest()})
            self._file.close()
            self._file = None


def split(sources: Sequence[Path], parts: Path, size: int) -> int:
    """Write files and folders as parts, and return how many.

    Args:
        sources: each unpacked under its own name.
        parts: a new folder.
        size: bytes of a part, its manifest not counted.

    Raises:
        CarryError: `parts` is there already, two sources have one name, or one is missing.
    """
    names = [source.resolve().name for source in sources]
    if len({*names}) < len(names):
        raise CarryError(f"two of these have the same name: {', '.join(names)}")
    missing = [str(source) for source in sources if not source.exists()]
    if missing:
        raise CarryError(f"{', '.join(missing)}: not there")
    if parts.exists():
        raise CarryError(f"{parts}: is there already")
    with (
        _PartWriter(parts, size) as writer,
        tarfile.open(fileobj=writer, mode="w|", dereference=True) as archive,
    ):
        for source, name in zip(sources, names, strict=True):
            archive.add(source, name)
    manifest = json.dumps({"parts": writer.parts}, indent=1)
    (parts / part_folder(0) / MANIFEST).write_text(manifest + "\n", encoding="utf-8")
    return len(writer.parts)


def join(parts: Path, target: Path) -> list[str]:
    """Check all parts, unpack what they hold into a folder, and return its names.

    Raises:
        CarryError: a part is missing or damaged, or something of these names is there already.
    """
    listed = _read_manifest(parts)
    bad = [
        part_folder(number)
        for number, part in enumerate(listed)
        if _digest_of(parts / part_folder(number) / DATA) != part["sha256"]
    ]
    if bad:
        raise CarryError(f"missing or damaged: {', '.join(bad)}; take these again")
    target.mkdir(parents=True, exist_ok=True)
    names = []
    with tarfile.open(fileobj=_Joined(parts, len(listed)), mode="r|") as archive:
        for member in archive:
            top = member.name.partition("/")[0]
            if top not in names:
                if (target / top).exists():
                    raise CarryError(f"{target / top}: is there already")
                names.append(top)
            archive.extract(member, target, filter="data")
    return names


class _Joined(io.RawIOBase):
    """Reads the parts one after the other."""

    def __init__(self, parts: Path, count: int) -> None:
        self._pieces = _pieces(parts, count)
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._rest:
            self._rest = next(self._pieces, b"")
        size = min(len(buffer), len(self._rest))
        buffer[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size


def _pieces(parts: Path, count: int) -> Iterator[bytes]:
    for number in range(count):
        with (parts / part_folder(number) / DATA).open("rb") as file:
            while piece := file.read(_COPIED):
                yield piece


def _read_manifest(parts: Path) -> list[dict[str, Any]]:
    path = parts / part_folder(0) / MANIFEST
    try:
        listed: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["parts"]
    except (OSError, ValueError, KeyError) as error:
        raise CarryError(f"{path}: cannot be read: {error}") from error
    return listed


def _digest_of(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


def main(arguments: Sequence[str] | None = None) -> int:
    """Split or join, as the arguments say; return the exit status."""
    parser = argparse.ArgumentParser(description="Carry files to a machine without a network.")
    commands = parser.add_subparsers(dest="command", required=True)
    splitting = commands.add_parser("split", help="Cut files and folders into parts.")
    splitting.add_argument("sources", nargs="+", type=Path, help="Files and folders.")
    splitting.add_argument("-o", "--output", required=True, type=Path, help="A new folder.")
    splitting.add_argument("--megabytes", type=int, default=60, help="Of a part, in MiB.")
    joining = commands.add_parser("join", help="Check the parts and unpack what they hold.")
    joining.add_argument("parts", type=Path, help="The folder with the folders of the parts.")
    joining.add_argument("-o", "--output", required=True, type=Path, help="A folder.")
    given = parser.parse_args(arguments)
    try:
        if given.command == "split":
            count = split(given.sources, given.output, given.megabytes * _MEGABYTE)
            print(f"{count} parts in {given.output}")
        else:
            print(f"unpacked: {', '.join(join(given.parts, given.output))}")
    except CarryError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
