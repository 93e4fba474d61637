"""Text of strangers, made safe to look at: what would hide or reorder it is shown instead."""

import re

# Controls but tab and line ends; what embeds, overrides or isolates a direction; the zero-width
# no-break space; halves of surrogate pairs (UTF-8 has none); what is no character. Left alone are
# the marks U+200E and U+200F and the joiners, which honest texts need and which reorder nothing.
_TROUBLE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u202a-\u202e\u2066-\u206f\ufeff"
    "\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]"
)
_CONTROL_PICTURES = 0x2400
_DELETE = "\x7f"
_DELETE_PICTURE = "\u2421"


def visible(text: str) -> str:
    """Return a text with a picture of each control character and the code of the others.

    U+0000 becomes U+2400, its picture; U+202E becomes "[U+202E]". The result can be written as
    UTF-8. Markup is not touched: it is escaped where it goes into a page.
    """
    return _TROUBLE.sub(_picture, text)


def _picture(found: re.Match[str]) -> str:
    character = found[0]
    if character == _DELETE:
        return _DELETE_PICTURE
    if character < " ":
        return chr(_CONTROL_PICTURES + ord(character))
    return f"[U+{ord(character):04X}]"
