"""Files of Debian packages (.deb), read without installing or unpacking them, and of folders."""

import io
import lzma
import posixpath
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from index.corpus.formats.content import MAX_FILE_BYTES
from index.document import SkippedInput
from index.errors import CorpusError
from index.progress import Progress
from training.sources.licences import documentation_licences

_MAGIC = b"!<arch>\n"
_HEADER = 60  # bytes before each member of the archive that a .deb is
_COPYRIGHT = "usr/share/doc/{}/copyright"
_DAMAGED = (tarfile.TarError, lzma.LZMAError, zlib.error, EOFError, ValueError)


@dataclass(frozen=True, slots=True)
class PackagedFile:
    """A file of a package; a link has the path that it leads to instead of data."""

    path: str
    data: bytes = b""
    link: str = ""


@dataclass(frozen=True, slots=True)
class Package:
    """A .deb, or a folder.

    Attributes:
        name: of the package, or of the folder.
        path: where it is.
        group: the source package; empty for a folder.
        metadata: of each document; package, version and licence, but nothing for a folder.
    """

    name: str
    path: Path
    group: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)


def find_packages(sources: Sequence[Path]) -> list[Path]:
    """Return the .deb files of sources; a folder in which there is none stands for itself.

    Raises:
        CorpusError: a source is missing, or is neither a folder nor a .deb file.
    """
    found = []
    for source in sources:
        if source.is_dir():
            found += sorted(source.rglob("*.deb")) or [source]
        elif source.suffix == ".deb" and source.is_file():
            found.append(source)
        else:
            raise CorpusError(f"{source}: is neither a folder nor a .deb file")
    return found


def open_packages(paths: Sequence[Path], progress: Progress) -> list[Package]:
    """Read name and licence of packages; those without a free licence are skipped and reported.

    A package whose copyright file is a link into another package has the licence of that one, if it
    is among them. A folder has no licence: its documents are the user's own.

    Args:
        paths: as `find_packages` returns them.
        progress: is notified.
    """
    progress.started("reading licences", len(paths), unit="packages")
    folders = [Package(path.name, path) for path in paths if path.is_dir()]
    heads = []
    for path in paths:
        if not path.is_dir():
            try:
                heads.append(_read_head(path))
            except (CorpusError, OSError) as error:
                progress.skipped(SkippedInput(path.name, str(error)))
        progress.advanced(1)
    copyrights = {head.name: head.copyright_file for head in heads if head.copyright_file}
    opened = []
    for head in heads:
        licences = documentation_licences(
            head.copyright_file or copyrights.get(head.documented_by, "")
        )
        if licences is None:
            progress.skipped(SkippedInput(head.path.name, "has no licence that is known as free"))
            continue
        metadata = {"package": head.name, "version": head.version, "licence": list(licences)}
        opened.append(Package(head.name, head.path, head.source, metadata))
    return folders + opened


def read_files(package: Package, wanted: Callable[[str], bool]) -> Iterator[PackagedFile]:
    """Yield the files and links of a package whose paths are wanted, without a leading "./".

    Raises:
        CorpusError: a .deb is damaged, or compressed in a way that is not known.
        OSError: a file cannot be read.
    """
    if package.path.is_dir():
        yield from _folder_files(package.path, wanted)
        return
    with _open_data(package.path) as archive:
        for member in archive:
            path = posixpath.normpath(member.name)
            if not wanted(path):
                continue
            if member.issym():
                link = posixpath.normpath(posixpath.join(posixpath.dirname(path), member.linkname))
                yield PackagedFile(path, link=link)
            elif member.islnk():
                yield PackagedFile(path, link=posixpath.normpath(member.linkname))
            elif member.isfile() and member.size <= MAX_FILE_BYTES:
                yield PackagedFile(path, _read_member(archive, member))


@dataclass(frozen=True, slots=True)
class _Head:
    path: Path
    name: str
    source: str
    version: str
    copyright_file: str
    documented_by: str  # the package whose folder of documentation this one links to


def _read_head(path: Path) -> _Head:
    fields = _control_fields(path)
    name = fields.get("package", path.stem)
    text, link = "", ""
    own = (_COPYRIGHT.format(name), posixpath.dirname(_COPYRIGHT.format(name)))
    for one in read_files(Package(name, path), own.__contains__):
        text = text or one.data.decode("utf-8", errors="replace")
        link = one.link or link
    parts = link.split("/")
    return _Head(
        path=path,
        name=name,
        source=fields.get("source", name).split()[0],
        version=fields.get("version", ""),
        copyright_file=text,
        documented_by=parts[3] if len(parts) > 3 else "",
    )


def _control_fields(path: Path) -> dict[str, str]:
    with _open_tar(path, "control.tar") as archive:
        for member in archive:
            if posixpath.normpath(member.name) == "control":
                lines = _read_member(archive, member).decode("utf-8", errors="replace").splitlines()
                pairs = (line.partition(":") for line in lines if not line[:1].isspace())
                return {key.lower(): value.strip() for key, _, value in pairs}
    raise CorpusError("has no control file")


def _read_member(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    stream = archive.extractfile(member)
    return stream.read() if stream else b""


def _folder_files(folder: Path, wanted: Callable[[str], bool]) -> Iterator[PackagedFile]:
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if not wanted(name):
            continue
        if path.is_symlink():
            target = posixpath.join(posixpath.dirname(name), path.readlink().as_posix())
            yield PackagedFile(name, link=posixpath.normpath(target))
        elif path.is_file() and path.stat().st_size <= MAX_FILE_BYTES:
            yield PackagedFile(name, path.read_bytes())


def _open_data(path: Path) -> Any:
    return _open_tar(path, "data.tar")


@contextmanager
def _open_tar(path: Path, prefix: str) -> Iterator[tarfile.TarFile]:
    """Open a member of the archive that a .deb is, a compressed tar file.

    Raises:
        CorpusError: the file is damaged, or compressed in a way that is not known.
    """
    try:
        name, data = _find_member(path, prefix)
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:*") as archive:
            yield archive
    except tarfile.ReadError as error:
        kind = name.removeprefix(prefix).lstrip(".") or "tar"
        raise CorpusError(f"its content ({kind}) is damaged, or not known to Python") from error
    except _DAMAGED as error:
        raise CorpusError(f"is damaged: {error}") from error


def _find_member(path: Path, prefix: str) -> tuple[str, bytes]:
    with path.open("rb") as stream:
        if stream.read(len(_MAGIC)) != _MAGIC:
            raise CorpusError("is not a Debian package")
        while len(header := stream.read(_HEADER)) == _HEADER:
            name = header[:16].decode("ascii", errors="replace").strip().rstrip("/")
            size = int(header[48:58])
            if name.startswith(prefix):
                data = stream.read(size)
                if len(data) < size:
                    raise CorpusError("is cut off")
                return name, data
            stream.seek(size + size % 2, io.SEEK_CUR)
    raise CorpusError(f"has no {prefix}")
