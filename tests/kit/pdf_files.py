"""PDF files made by hand."""

import zlib
from collections.abc import Sequence
from contextlib import closing
from io import BytesIO

from pypdfium2 import PdfDocument, PdfImage, PdfMatrix


def pdf(pages: list[str], *, info: str = "", encrypted: bool = False) -> bytes:
    """A PDF by hand: one line of Helvetica for each line of each page.

    A line that begins with `/F1 20:` is in a type of 20 points instead of 12.
    """
    kids = " ".join(f"{4 + 2 * number} 0 R" for number in range(len(pages)))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for number, page in enumerate(pages):
        lines = " ".join(map(_show, page.split("\n")))
        content = f"BT /F1 12 Tf 14 TL 72 720 Td {lines} ET"
        objects += [
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] "
            f"/Resources << /Font << /F1 3 0 R >> >> /Contents {5 + 2 * number} 0 R >>",
            f"<< /Length {len(content)} >>\nstream\n{content}\nendstream",
        ]
    objects.append(f"<< {info} >>")
    trailer = f"/Size {len(objects) + 1} /Root 1 0 R /Info {len(objects)} 0 R"
    if encrypted:
        trailer += (
            f" /ID [<{'00' * 16}> <{'00' * 16}>] /Encrypt << /Filter /Standard /V 1 /R 2 /P -4"
            f" /O <{'11' * 32}> /U <{'22' * 32}> >>"
        )
    return _with_cross_references([part.encode("latin-1") for part in objects], trailer)


def _show(line: str) -> str:
    font, separator, text = line.partition(":")
    if separator and font.startswith("/F1"):
        return f"{font} Tf 22 TL ({text}) Tj T* /F1 12 Tf 14 TL"
    return f"({line}) Tj T*"


def scanned(content: bytes) -> bytes:
    """A PDF of the first page of another, and of a picture of it."""
    with closing(PdfDocument(content)) as source, closing(PdfDocument.new()) as made:
        made.import_pages(source, [0])
        width, height = source[0].get_size()
        page, picture = made.new_page(width, height), PdfImage.new(made)
        picture.set_bitmap(source[0].render(scale=3))
        picture.set_matrix(PdfMatrix().scale(width, height))
        page.insert_obj(picture)
        page.gen_content()
        written = BytesIO()
        made.save(written)
        return written.getvalue()


def pdf_of_operators(operator: bytes, count: int) -> bytes:
    """A PDF of one page, whose compressed content repeats an operator."""
    content = zlib.compress(operator * count, 9)
    head = f"<< /Length {len(content)} /Filter /FlateDecode >>\nstream\n".encode()
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R >>",
        head + content + b"\nendstream",
    ]
    return _with_cross_references(objects, f"/Size {len(objects) + 1} /Root 1 0 R")


def _with_cross_references(objects: Sequence[bytes], trailer: str) -> bytes:
    data = b"%PDF-1.4\n"
    table = f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n"
    for number, content in enumerate(objects, start=1):
        table += f"{len(data):010} 00000 n \n"
        data += b"%d 0 obj\n%b\nendobj\n" % (number, content)
    end = f"{table}trailer\n<< {trailer} >>\nstartxref\n{len(data)}\n%%EOF\n"
    return data + end.encode("latin-1")
