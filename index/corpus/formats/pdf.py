"""PDF, read by PDFium."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from math import hypot
from pathlib import Path
from typing import Any, NamedTuple

from index.corpus.formats.content import FileText, described, is_generic, plain_title
from index.corpus.formats.ocr import PROGRAM, deadline, languages, read_picture
from index.errors import CorpusError

MOST_UNREADABLE = 0.1  # share of the characters that are not white space


def read_pdf(path: Path) -> FileText:
    """Read the text of all pages of a PDF.

    The title is that of the properties if it stands on the first page with words, else the lines
    of the largest type there. The author of the properties must stand there, too.

    PDFium is not thread-safe, and a page can take memory and time without bound, or crash it:
    `index.corpus.file_reader` reads in a process of its own.

    Raises:
        CorpusError: it is encrypted or damaged, or has no text, or text of fonts that do not say
            which characters they have.
    """
    # Imported here: it loads a large shared library that a corpus without PDF does not need.
    import pypdfium2
    from pypdfium2.raw import FPDF_ERR_PASSWORD, FPDF_ERR_SECURITY

    until = deadline()
    try:
        with closing(pypdfium2.PdfDocument(path)) as pdf:
            fields = pdf.get_metadata_dict()
            pages = [_read_page(pdf[number], until) for number in range(len(pdf))]
            readable = sum(1 for page in pages if page.text.strip())
            if len(_numbers(pages, _UNREADABLE)) < readable:
                pages = [p._replace(text="") if p.how == _UNREADABLE else p for p in pages]
            texts = [page.text for page in pages]
            first = next((n for n, text in enumerate(texts) if len(text.split()) >= _WORDS), 0)
            drawn = bool(pages) and pages[first].how == _BY_OCR
            lines = _typed_lines(pdf[first]) if pages and not drawn else []
    except pypdfium2.PdfiumError as error:
        encrypted = error.err_code in (FPDF_ERR_PASSWORD, FPDF_ERR_SECURITY)
        raise CorpusError("is encrypted" if encrypted else "is not a readable PDF") from error
    text = _join(texts)
    if (share := _share_unreadable(text)) > MOST_UNREADABLE:
        raise CorpusError(f"is not readable: {share:.0%} of its characters are {_NO_CHARACTERS}")
    if not text.strip():
        raise CorpusError(f"has no text; where its pages are pictures: {_HINT}")
    page = texts[first]
    title, author = fields.get("Title", ""), fields.get("Author", "")
    if not _stands_in(title, page) or _is_no_title(title):
        title = plain_title(page) if drawn else _largest(lines)
    made = _MADE.match(fields.get("CreationDate", ""))
    about = described(
        author if _stands_in(author, page) else "",
        "-".join(made.groups()) if made else "",
        len(pages),
    )
    remarks = _remark(pages, _BY_OCR, f"read by {PROGRAM}")
    remarks += _remark(pages, _PICTURE, f"without text, of pictures; {_HINT}")
    return FileText(title, text, about, remarks, _remark(pages, _UNREADABLE, _NO_CHARACTERS))


_HINT = f"{PROGRAM} reads such pages, if it is installed"
_NO_CHARACTERS = f"of fonts that do not say which characters they have; {_HINT}"
_WORDS = 10  # of a page that is not only a cover
_MADE = re.compile(r"D:(\d{4})(\d\d)(\d\d)")


_AS_TEXT, _BY_OCR, _PICTURE, _UNREADABLE = range(4)


class _Page(NamedTuple):
    """The text of a page, and how it has been read; a picture or an unreadable one has not."""

    text: str
    how: int


def _read_page(page: Any, until: float) -> _Page:
    with closing(page), closing(page.get_textpage()) as text_page:
        text: str = compose_accents(text_page.get_text_bounded().replace("\r\n", "\n"))
        unreadable = _share_unreadable(text) > MOST_UNREADABLE
        if not unreadable and (text.strip() or not _has_picture(page)):
            return _Page(text, _AS_TEXT)
        seen = _read_drawn(page, until)
    if seen is not None:
        return _Page(seen, _BY_OCR)
    return _Page(text, _UNREADABLE if unreadable else _PICTURE)


def _numbers(pages: list[_Page], how: int) -> list[int]:
    return [number for number, page in enumerate(pages, start=1) if page.how == how]


def _remark(pages: list[_Page], how: int, what: str) -> list[str]:
    """Return what is said of the pages that have been read like this; nothing if there are none."""
    numbers = _numbers(pages, how)
    shown = ", ".join(map(str, numbers[:_SHOWN]))
    more = f", … ({len(numbers)})" if len(numbers) > _SHOWN else ""
    return [f"page{'s' if len(numbers) > 1 else ''} {shown}{more} {what}"] if numbers else []


_SHOWN = 10
_POINTS, _DOTS = 72, 200  # an inch
_MOST_DOTS = 25_000_000  # of a page


def _has_picture(page: Any) -> bool:
    import pypdfium2.raw as pdfium

    return any(page.get_objects(filter=[pdfium.FPDF_PAGEOBJ_IMAGE], max_depth=3))


def _read_drawn(page: Any, until: float) -> str | None:
    """Return the text of a page that is drawn; None where it is too large or cannot be read."""
    if not languages():
        return None
    width, height = page.get_size()
    scale = _DOTS / _POINTS
    if width * height * scale * scale > _MOST_DOTS:
        return None
    drawn = page.render(scale=scale, grayscale=True)
    data = bytes(drawn.buffer)
    rows = (data[start : start + drawn.width] for start in range(0, len(data), drawn.stride))
    return read_picture(drawn.width, drawn.height, b"".join(rows), until)


# Accents that some fonts have as characters of their own, and as what they are combined.
_ACCENTS = {
    **{"\u00b4": "\u0301", "\u02c6": "\u0302", "\u02dc": "\u0303"},
    **{"\u00af": "\u0304", "\u02d8": "\u0306", "\u02d9": "\u0307", "\u00a8": "\u0308"},
    **{"\u02da": "\u030a", "\u02dd": "\u030b", "\u02c7": "\u030c", "\u00b8": "\u0327"},
    **{"\u02db": "\u0328", "\u02cb": "\u0300"},
}
# A quotation mark may be a grave accent only within a word.
_GRAVE = re.compile(r"(?<=[^\W\d_])`(?=[aeiou])")
_ACCENT = f"[{''.join(_ACCENTS)}]"
_ANY_ACCENT = re.compile(_ACCENT)
_LETTER = r"[^\W\d_]"
_SEPARATE = re.compile(
    rf"(?P<before>{_ACCENT})(?P<letter>{_LETTER})"
    rf"|(?P<base>{_LETTER})(?P<between>{_LETTER}?)(?P<after>{_ACCENT})(?!\w)"
)
_DOTLESS = {"\u0131": "i", "\u0237": "j"}


def compose_accents(text: str) -> str:
    """Combine the accents that a page draws as separate characters with their letters."""
    text = _GRAVE.sub("\u02cb", text) if "`" in text else text
    # The pattern stops at every letter.
    return _SEPARATE.sub(_compose, text) if _ANY_ACCENT.search(text) else text


def _compose(found: re.Match[str]) -> str:
    if found["before"]:
        return _accented(found["letter"], found["before"]) or found[0]
    between, accent = found["between"], found["after"]
    if between and (whole := _accented(between, accent)):
        return found["base"] + whole
    whole = _accented(found["base"], accent)
    return whole + between if whole else found[0]


def _accented(letter: str, accent: str) -> str:
    whole = unicodedata.normalize("NFC", _DOTLESS.get(letter, letter) + _ACCENTS[accent])
    return whole if len(whole) == 1 else ""


_EDGE_LINES = 2  # at the top and the bottom of a page, where running headers are
_LEAST_PAGES = 3  # that have a running header
_LEAST_SHARE = 0.4  # of the pages; left and right pages may have different ones
_NUMBER = re.compile(r"\d+")
_HYPHEN = "\x02"  # of PDFium: a hyphen at the end of a line
_BROKEN = re.compile(r"(?<![\w-])(?P<left>[\w-]*\w)(?:\x02|-\n|\xad\n)(?P<right>\w[\w-]*)")


def _join(pages: list[str]) -> str:
    """Join pages without their running headers and page numbers, and words that lines break."""
    text = "\n".join(_without_running_lines(pages))
    whole = _BROKEN.sub(" ", text)  # parts of words are no words
    vocabulary = Counter(re.findall(r"[\w-]*\w", whole.casefold()))

    def join(found: re.Match[str]) -> str:
        left, right = found["left"], found["right"]
        hyphen = "-" if _is_compound(left, right, vocabulary) else ""
        return f"{left}{hyphen}{right}"

    return _BROKEN.sub(join, text).replace(_HYPHEN, "-")


def _is_compound(left: str, right: str, vocabulary: Counter[str]) -> bool:
    """Return whether a hyphen at the end of a line is part of the word."""
    first, second = left.casefold(), right.casefold()
    if len(left) == 1 or "-" in left or not left[-1].isalpha() or not right[0].islower():
        return left[-1].isalnum() and not (left.isupper() and right.isupper() and len(left) > 1)
    if joined := vocabulary[first + second]:
        return joined < vocabulary[f"{first}-{second}"]
    parts = vocabulary[first] and vocabulary[second] and min(len(first), len(second)) >= 4
    return bool(vocabulary[f"{first}-{second}"] or parts)


def _without_running_lines(pages: list[str]) -> Iterator[str]:
    """Yield pages without the lines at their edges that most of them have, but for numbers."""
    lines = [page.split("\n") for page in pages]
    edges = [_edges(page) for page in lines]
    counts = Counter(
        form
        for page, numbers in zip(lines, edges, strict=True)
        for form in {_form(page[n]) for n in numbers}
    )
    least = max(_LEAST_PAGES, _LEAST_SHARE * len(pages))
    for number, (page, numbers) in enumerate(zip(lines, edges, strict=True)):
        running = {n for n in numbers if counts[_form(page[n])] >= least}
        if number == 0:  # where the title may be what is repeated on the pages that follow
            running = {n for n in running if not any(map(str.isalpha, page[n]))}
        if len(running) == sum(map(bool, map(str.strip, page))):  # of a page of nothing else
            running = set()
        yield "\n".join(line for n, line in enumerate(page) if n not in running)


def _edges(page: list[str]) -> list[int]:
    """Return the numbers of the first and the last lines of a page that are not empty."""
    filled = [number for number, line in enumerate(page) if line.strip()]
    return sorted({*filled[:_EDGE_LINES], *filled[-_EDGE_LINES:]})


def _form(line: str) -> str:
    return _NUMBER.sub("0", " ".join(line.split()))


def _share_unreadable(text: str) -> float:
    """Return the share of characters without a meaning: controls, private use, replacement."""
    visible = "".join(text.split())
    unreadable = sum(
        count
        for character, count in Counter(visible).items()
        if character == "\ufffd" or unicodedata.category(character) in ("Cc", "Co", "Cn", "Cs")
    )
    return unreadable / max(len(visible), 1)


def _stands_in(words: str, page: str) -> bool:
    """Return whether the letters of a field stand on a page, in one piece."""
    letters = _letters(words)
    return len(letters) > 3 and letters in _letters(page)


def _letters(text: str) -> str:
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    return "".join(character for character in decomposed if character.isalnum())


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of a page, and the size of its type in points: of the larger letters in it."""

    text: str
    size: float
    letters: int


_MOST_CHARACTERS = 20_000  # of a page whose sizes are examined
_LARGER_LETTERS = 0.85  # quantile: small capitals have their size by their large ones


def _typed_lines(page: Any) -> list[_Line]:
    import pypdfium2.raw as pdfium

    matrix = pdfium.FS_MATRIX()
    turned = page.get_rotation() in (90, 270)
    lines: list[tuple[list[str], list[float]]] = [([], [])]
    with closing(page.get_textpage()) as text_page:
        for index in range(min(text_page.count_chars(), _MOST_CHARACTERS)):
            pieces, sizes = lines[-1]
            character = chr(pdfium.FPDFText_GetUnicode(text_page, index))
            if character in "\r\n":
                lines.append(([], []))
                continue
            if pdfium.FPDFText_IsGenerated(text_page, index) != 1:
                pdfium.FPDFText_GetMatrix(text_page, index, matrix)
                if (abs(matrix.b) > abs(matrix.a)) != turned:  # written upwards at the margin
                    continue
                if character.isalpha():
                    size = pdfium.FPDFText_GetFontSize(text_page, index)
                    sizes.append(round(size * hypot(matrix.c, matrix.d), 1))
            pieces.append(character)
    return [_line(pieces, sizes) for pieces, sizes in lines if sizes]


def _line(pieces: list[str], sizes: list[float]) -> _Line:
    text = compose_accents(" ".join("".join(pieces).replace(_HYPHEN, "-").split()))
    return _Line(text, sorted(sizes)[int(_LARGER_LETTERS * (len(sizes) - 1))], len(sizes))


_LEAST_LARGER = 1.08  # than the text of the page
_SAME_SIZE = 0.9
_LEAST_LETTERS = 6  # of a title; not the large letter that an article begins with
_MOST_TITLE_LETTERS = 250


def _largest(lines: list[_Line]) -> str:
    """Return the lines of the largest type that can be a title, or ""."""
    sizes = Counter[float]()
    for line in lines:
        sizes[line.size] += line.letters
    if not sizes:
        return ""
    least = _LEAST_LARGER * sizes.most_common(1)[0][0]
    by_size = sorted(range(len(lines)), key=lambda n: -lines[n].size)
    for number in by_size:
        size = lines[number].size
        if size < least:
            break
        begin = end = number
        while begin > 0 and lines[begin - 1].size >= max(least, _SAME_SIZE * size):
            begin -= 1
        while end + 1 < len(lines) and lines[end + 1].size >= max(least, _SAME_SIZE * size):
            end += 1
        group = lines[begin : end + 1]
        letters = sum(line.letters for line in group)
        title = " ".join(line.text for line in group).rstrip(_MARKS)
        if _LEAST_LETTERS <= letters <= _MOST_TITLE_LETTERS and not _is_no_title(title):
            return title
    return ""


_MARKS = " *\u2217\u2020\u2021\u00a7\u00b6"  # of a note at the foot of the page
_LEAST_SHARE_OF_LETTERS = 0.6
_NO_TITLE = re.compile(
    r"(https?:|www\.|arxiv:|doi:|see discussions|(the )?proceedings of|this paper is included"
    r"|((table of )?contents|abstract|summary|general rights|introduction)$"
    r"|(chapter|kapitel|chapitre|part|section|file|volume|appendix) [\divxlc]+\.?$|journal of"
    r"|.{,60}\bjournal of \w+$)",
    re.IGNORECASE,
)


def _is_no_title(title: str) -> bool:
    """Return whether words in the place of a title are those of a publisher or a program."""
    letters = sum(map(str.isalpha, title))
    if letters < _LEAST_SHARE_OF_LETTERS * len(title.replace(" ", "")):
        return True
    return is_generic(title) or _NO_TITLE.match(title) is not None
