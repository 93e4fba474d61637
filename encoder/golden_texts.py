"""The texts of the golden batch: short, long, and of every kind of writing that comes in."""

_PROSE = (
    "The harbour was built where two rivers meet. For three hundred years its quays were of wood, "
    "and every generation replaced them. In 1871 the council voted for stone! Who would pay? "
    "The merchants said that the city should, the city said that the merchants should, and in the "
    "end a loan of 40,000 guilders was raised at 4.5 per cent. Dr. A. J. Smit, the engineer, "
    "reported every month: the piles were driven to a depth of eleven metres, i.e. well below the "
    "mud, and no ship was delayed by more than a day. "
)
_TECHNICAL = (
    "A snapshot names the sequence number of the last change that it contains. On start-up the "
    "server reads the newest snapshot whose checksum is right, then replays the changes that came "
    "after it. If no snapshot can be read, the index is built again from the store; this takes "
    "longer, but loses nothing. Deleted rows leave a tombstone until the next compaction. "
)
_TABLE = "\n".join(f"| row {n} | {n * 37 % 101} | {n / 7:.3f} | item-{n:04x} |" for n in range(40))
_CODE = "def mean(values):\n    total = 0.0\n    for v in values:\n        total += v\n    return 0"
_OTHER = (
    "Die Brücke wurde im Frühjahr gesperrt. L'été fut très sec; les récoltes ont souffert. "
    "今日は天気がいいです。明日は雨が降るでしょう。 Это короткое предложение. 😀 🚀"
)

GOLDEN_TEXTS = (
    "Yes.",
    _PROSE,
    _TECHNICAL,
    _OTHER,
    f"# Results\n\n{_TABLE}\n\n{_CODE}\n",
    "word " * 300,
    (_PROSE + "\n\n" + _TECHNICAL) * 6,
)
