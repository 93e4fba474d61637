"""Sentences and words of texts of our own in many languages, and the table of the docs on them."""

import re
from pathlib import Path
from typing import NamedTuple
from unicodedata import normalize

import pytest

from encoder.reranker.sentence_ranking import split_for_ranking
from encoder.sentences import split_sentences
from evaluation.systems import lexical_system
from index.lexical.terms import words_of

ALWAYS, SET, NEVER = "yes", "with `language`", "no"
DOCS = Path(__file__).parents[2] / "docs/reranking.md"


class Language(NamedTuple):
    """A language.

    Attributes:
        name: in the docs.
        sentences: whether sentences are found, as the docs say it: always, only if `language` is
            set to this one, which has its abbreviations, or never.
        text: sentences, separated by "/".
        words: of the first sentence.
    """

    name: str
    sentences: str
    text: str
    words: str


LANGUAGES = {
    "en": Language(
        *("English", ALWAYS, "Dr. Smith came on 3 May./He left at noon./Why?"),
        "dr smith came on 3 may",
    ),
    "de": Language(
        *("German", SET, "Dr. Weber kam z.B. am 3. Mai an./Die Donau stieg./Warum?"),
        "dr weber kam z b am 3 mai an",
    ),
    "fr": Language(
        *("French", SET, "Il a lu p. ex. des romans./L'été fut chaud./Pourquoi ?"),
        "il a lu p ex des romans",
    ),
    "es": Language(
        *("Spanish", ALWAYS, "El Sr. García llegó ayer./¿Por qué vino?/¡Qué día!"),
        "el sr garcia llego ayer",
    ),
    "it": Language(
        *("Italian", SET, "Il sig. Rossi è arrivato./L'albero è alto./Perché?"),
        "il sig rossi e arrivato",
    ),
    "nl": Language(
        *("Dutch", SET, "Dhr. Jansen kwam bijv. op 3 mei./Het was warm./Waarom?"),
        "dhr jansen kwam bijv op 3 mei",
    ),
    "pl": Language(
        *("Polish", SET, "Prof. Nowak był np. w mieście./Było ciepło./Dlaczego?"),
        "prof nowak był np w miescie",
    ),
    "ru": Language(
        *("Russian", SET, "Проф. Иванов приехал в 1990 г. в Москву./Было тепло./Почему?"),
        "проф иванов приехал в 1990 г в москву",
    ),
    "el": Language(*("Greek", SET, "Ο κ. Παπάς ήρθε./Γιατί ήρθε;/Έκανε ζέστη."), "ο κ παπας ηρθε"),
    "tr": Language(
        *("Turkish", ALWAYS, "Dr. Yılmaz dün geldi./Neden geç kaldı?/Hava sıcaktı."),
        "dr yılmaz dun geldi",
    ),
    "ar": Language(
        *("Arabic", ALWAYS, "وصل القطار إلى المدينة./لماذا تأخر؟/كان الجو حارا."),
        "وصل القطار الى المدينة",
    ),
    "he": Language(*("Hebrew", ALWAYS, "הרכבת הגיעה לעיר./למה איחר?/היה חם."), "הרכבת הגיעה לעיר"),
    "fa": Language(
        *("Persian", ALWAYS, "قطار به شهر رسید./چرا دیر آمد؟/هوا گرم بود."), "قطار به شهر رسید"
    ),
    "ur": Language(*("Urdu", ALWAYS, "ٹرین شہر پہنچی۔/کیوں؟/موسم گرم تھا۔"), "ٹرین شہر پہنچی"),
    "hi": Language(
        *("Hindi", ALWAYS, "रेलगाड़ी शहर पहुँची।/क्यों देर हुई?/मौसम गर्म था।"), "रेलगाडी शहर पहुँची"
    ),
    "ko": Language(
        *("Korean", ALWAYS, "기차가 도시에 도착했습니다./왜 늦었습니까?/날씨가 더웠습니다."),
        "기차가 도시에 도착했습니다",
    ),
    "zh": Language(
        *("Chinese", ALWAYS, "火车到达了城市。/为什么晚点？/天气很热！"), "火车 到达 了 城市"
    ),
    "ja": Language(
        *("Japanese", ALWAYS, "列車は町に着きました。/なぜ遅れましたか？/天気は暑かったです。"),
        "列車 は 町 に 着 きました",
    ),
    "th": Language(*("Thai", NEVER, "รถไฟมาถึงเมืองแล้ว/ทำไมมาช้า/อากาศร้อนมาก"), "รถไฟ มา ถึง เมือง แล้ว"),
    "lo": Language(*("Lao", NEVER, "ລົດໄຟມາຮອດເມືອງແລ້ວ/ເປັນຫຍັງຊ້າ/ອາກາດຮ້ອນ"), "ລົດໄຟ ມາຮອດ ເມືອງ ແລ້ວ"),
    "km": Language(*("Khmer", NEVER, "រថភ្លើងមកដល់ទីក្រុង។/ហេតុអ្វីយឺត?/អាកាសធាតុក្តៅ។"), "រថភ្លើង មកដល់ ទីក្រុង"),
    "my": Language(
        *("Burmese", ALWAYS, "ရထားမြို့သို့ရောက်သည်။/ဘာကြောင့်နောက်ကျသလဲ။/ရာသီဥတုပူသည်။"),
        "ရထား မြို့ သို့ ရောက် သည်",
    ),
}
SPACED = {code: "" if code in ("zh", "ja") else " " for code in LANGUAGES}


def read(code: str, setting: str) -> list[str]:
    text = LANGUAGES[code].text.replace("/", SPACED[code])
    return [text[start:end] for start, end in split_sentences(text, setting)]


@pytest.mark.parametrize("code", LANGUAGES)
def test_sentences_and_words_are_found_as_the_docs_say(code: str) -> None:
    first = LANGUAGES[code]
    expected = first.text.split("/")
    assert (read(code, code) == expected) == (first.sentences in (ALWAYS, SET))
    assert (read(code, "en") == expected) == (first.sentences == ALWAYS)
    # Korean syllables are taken apart.
    assert [normalize("NFC", word) for word in words_of(expected[0])] == first.words.split()


def test_the_table_of_the_docs_is_that_of_these_texts() -> None:
    rows = re.findall(r"^\| (\w+) \| `(\w\w)` \| ([^|]+) \|", DOCS.read_text("utf-8"), re.M)
    assert rows == [
        (language.name, code, language.sentences) for code, language in LANGUAGES.items()
    ]


@pytest.mark.parametrize("code", LANGUAGES)
def test_words_find_the_text_of_a_query_and_make_a_graph(code: str) -> None:
    texts = [language.text.replace("/", SPACED[other]) for other, language in LANGUAGES.items()]
    query = LANGUAGES[code].text.split("/")[0]
    scores = lexical_system([*texts, query], [""] * (len(texts) + 1)).score([len(texts)])[0]
    assert scores[:-1].argmax() == list(LANGUAGES).index(code)
    assert any(split_for_ranking(query, language=code).words)
