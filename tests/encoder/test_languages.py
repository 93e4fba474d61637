"""Sentences and words of texts of our own in many languages, and the table of the docs on them."""

import re
from pathlib import Path
from typing import NamedTuple
from unicodedata import normalize

import pytest

from encoder.reranker.sentence_ranking import split_for_ranking
from encoder.sentences import split_sentences
from encoder.terms.segmentation import words_of
from evaluation.systems import lexical_system

DOCS = Path(__file__).parents[2] / "docs/reranking.md"


class Language(NamedTuple):
    """A row of TABLE; `sentences` is "set" if only its own setting `language` finds them."""

    name: str
    sentences: str
    text: str
    words: str


# Code, name, whether sentences are found, sentences separated by "/", words of the first one.
TABLE = """
en|English|yes|Dr. Smith came on 3 May./He left at noon./Why?|dr smith came on 3 may
de|German|set|Dr. Weber kam z.B. am 3. Mai an./Die Donau stieg./Warum?|dr weber kam z b am 3 mai an
fr|French|set|Il a lu p. ex. des romans./L'été fut chaud./Pourquoi ?|il a lu p ex des romans
es|Spanish|yes|El Sr. García llegó ayer./¿Por qué vino?/¡Qué día!|el sr garcia llego ayer
it|Italian|set|Il sig. Rossi è arrivato./L'albero è alto./Perché?|il sig rossi e arrivato
nl|Dutch|set|Dhr. Jansen kwam bijv. op 3 mei./Het was warm./Waarom?|dhr jansen kwam bijv op 3 mei
pl|Polish|set|Prof. Nowak był np. w mieście./Było ciepło./Dlaczego?|prof nowak był np w miescie
ru|Russian|set|Проф. Иванов был в 1990 г. в Омске./Почему?|проф иванов был в 1990 г в омске
el|Greek|set|Ο κ. Παπάς ήρθε./Γιατί ήρθε;/Έκανε ζέστη.|ο κ παπας ηρθε
tr|Turkish|yes|Dr. Yılmaz dün geldi./Neden geç kaldı?/Hava sıcaktı.|dr yılmaz dun geldi
ar|Arabic|yes|وصل القطار إلى المدينة./لماذا تأخر؟/كان الجو حارا.|وصل القطار الى المدينة
he|Hebrew|yes|הרכבת הגיעה לעיר./למה איחר?/היה חם.|הרכבת הגיעה לעיר
fa|Persian|yes|قطار به شهر رسید./چرا دیر آمد؟/هوا گرم بود.|قطار به شهر رسید
ur|Urdu|yes|ٹرین شہر پہنچی۔/کیوں؟/موسم گرم تھا۔|ٹرین شہر پہنچی
hi|Hindi|yes|रेलगाड़ी शहर पहुँची।/क्यों देर हुई?/मौसम गर्म था।|रेलगाडी शहर पहुँची
ko|Korean|yes|기차가 도시에 도착했습니다./왜 늦었습니까?/더웠습니다.|기차가 도시에 도착했습니다
zh|Chinese|yes|火车到达了城市。/为什么晚点？/天气很热！|火车 到达 了 城市
ja|Japanese|yes|列車は町に着きました。/なぜ遅れましたか？/暑かったです。|列車 は 町 に 着 きました
th|Thai|no|รถไฟมาถึงเมืองแล้ว/ทำไมมาช้า/อากาศร้อนมาก|รถไฟ มา ถึง เมือง แล้ว
lo|Lao|no|ລົດໄຟມາຮອດເມືອງແລ້ວ/ເປັນຫຍັງຊ້າ/ອາກາດຮ້ອນ|ລົດໄຟ ມາຮອດ ເມືອງ ແລ້ວ
km|Khmer|no|រថភ្លើងមកដល់ទីក្រុង។/ហេតុអ្វីយឺត?/អាកាសធាតុក្តៅ។|រថភ្លើង មកដល់ ទីក្រុង
my|Burmese|yes|ရထားမြို့သို့ရောက်သည်။/ဘာကြောင့်နောက်ကျသလဲ။/ရာသီဥတုပူသည်။|ရထား မြို့ သို့ ရောက် သည်
"""
LANGUAGES = {
    code: Language(*fields)
    for code, *fields in (line.split("|") for line in TABLE.strip().splitlines())
}
SPACED = {code: "" if code in ("zh", "ja") else " " for code in LANGUAGES}


def read(code: str, setting: str) -> list[str]:
    text = LANGUAGES[code].text.replace("/", SPACED[code])
    return [text[start:end] for start, end in split_sentences(text, setting)]


@pytest.mark.parametrize("code", LANGUAGES)
def test_sentences_and_words_are_found_as_the_docs_say(code: str) -> None:
    first = LANGUAGES[code]
    expected = first.text.split("/")
    assert (read(code, code) == expected) == (first.sentences != "no")
    assert (read(code, "en") == expected) == (first.sentences == "yes")
    # Korean syllables are taken apart.
    assert [normalize("NFC", word) for word in words_of(expected[0])] == first.words.split()


def test_the_table_of_the_docs_is_that_of_these_texts() -> None:
    rows = re.findall(r"^\| (\w+) \| `(\w\w)` \| ([^|]+) \|", DOCS.read_text("utf-8"), re.M)
    said = {"yes": "yes", "set": "with `language`", "no": "no"}
    assert rows == [(item.name, code, said[item.sentences]) for code, item in LANGUAGES.items()]


@pytest.mark.parametrize("code", LANGUAGES)
def test_words_find_the_text_of_a_query_and_make_a_graph(code: str) -> None:
    texts = [language.text.replace("/", SPACED[other]) for other, language in LANGUAGES.items()]
    query = LANGUAGES[code].text.split("/")[0]
    scores = lexical_system([*texts, query], [""] * (len(texts) + 1)).score([len(texts)])[0]
    assert scores[:-1].argmax() == list(LANGUAGES).index(code)
    assert any(split_for_ranking(query, language=code).words)
