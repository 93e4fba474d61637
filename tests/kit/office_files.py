"""DOCX and EPUB files made by hand."""

import io
import zipfile
from collections.abc import Mapping

_WORD = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_RELATIONS = f"""<?xml version="1.0" encoding="UTF-8" standalone="yes"?>
<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">
<Relationship Id="rId1" Type="{_OFFICE}/officeDocument" Target="word/document.xml"/>
</Relationships>"""


def archive(parts: Mapping[str, str | bytes]) -> bytes:
    """A zip archive."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in parts.items():
            file.writestr(name, content)
    return data.getvalue()


def docx_parts(body: str, *, title: str = "", notes: str = "") -> dict[str, str | bytes]:
    """The parts of a document whose body and footnotes are this XML, with the prefix w."""
    parts: dict[str, str | bytes] = {
        "_rels/.rels": _RELATIONS,
        "word/document.xml": f"<w:document {_WORD}><w:body>{body}</w:body></w:document>",
        "docProps/core.xml": '<p:coreProperties xmlns:p="p" xmlns:dc="dc">'
        f"<dc:title>{title}</dc:title></p:coreProperties>",
    }
    if notes:
        parts["word/footnotes.xml"] = f"<w:footnotes {_WORD}>{notes}</w:footnotes>"
    return parts


def paragraph(text: str, style: str = "") -> str:
    """The XML of a paragraph of a DOCX."""
    properties = f'<w:pPr><w:pStyle w:val="{style}"/></w:pPr>' if style else ""
    return f'<w:p>{properties}<w:r><w:t xml:space="preserve">{text}</w:t></w:r></w:p>'


def epub_parts(chapters: Mapping[str, str], *, title: str = "A book") -> dict[str, str | bytes]:
    """The parts of a book of these chapters: XHTML by the name of its file, in their order."""
    items = "".join(
        f'<item id="c{number}" href="{name.replace(" ", "%20")}"'
        ' media-type="application/xhtml+xml"/>'
        for number, name in enumerate(chapters)
    )
    spine = "".join(f'<itemref idref="c{number}"/>' for number in range(len(chapters)))
    return {
        "mimetype": "application/epub+zip",
        "META-INF/container.xml": '<container xmlns="c"><rootfiles>'
        '<rootfile full-path="OEBPS/book.opf"/></rootfiles></container>',
        "OEBPS/book.opf": '<package xmlns="o" xmlns:dc="dc"><metadata>'
        f"<dc:title>{title}</dc:title><dc:title>Second</dc:title></metadata><manifest>"
        '<item id="nav" href="nav.xhtml" media-type="application/xhtml+xml" properties="nav"/>'
        '<item id="css" href="style.css" media-type="text/css"/>'
        f'{items}</manifest><spine><itemref idref="nav"/>{spine}</spine></package>',
        "OEBPS/nav.xhtml": "<html><body><nav>Contents</nav></body></html>",
        **{f"OEBPS/{name}": content for name, content in chapters.items()},
    }
