"""Files whose encoding nothing tells, as programs of different countries write them."""

from collections.abc import Iterator

import pytest

from loom_worker.backends.documents.text import decode
from tests.unit.backends.documents.made import Folder

PROSE = {
    "ja": "図書館は火曜日が休みです。本は二週間まで借りられますが、辞書は館内で読んでください。傘は入口に置けます。",
    "zh": "图书馆星期二休息。书可以借两个星期，词典请在馆内阅读。下雨天雨伞放在门口。",
    "ru": "Библиотека закрыта по вторникам. Книги выдаются на две недели, словари читают в зале. Зонты — у входа.",
    "bg": "Библиотеката не работи във вторник. Книгите се дават за две седмици; речниците се четат тук.",
    "pl": "Biblioteka jest zamknięta we wtorki. Książki wypożyczamy na dwa tygodnie, słowniki czyta się na miejscu.",
    "hu": "A könyvtár kedden zárva tart. A könyveket két hétre kölcsönözzük; eső esetén ernyőtartó a bejáratnál.",
    "de": "Die Bücherei hat dienstags geschlossen. Bücher verleihen wir für zwei Wochen, Wörterbücher bleiben hier.",
    "fr": "La bibliothèque est fermée le mardi. Les dictionnaires se lisent à l’étage ; le café, près de la fenêtre.",
    "es": "La biblioteca cierra los martes. Según la señora Núñez, el diccionario se lee aquí. ¿Está lloviendo?",
}
WORDS = {
    "ja": "東京 港区役所 山本 静かな部屋 ﾆﾎﾝｺﾞ ﾄｼｮｶﾝ コピー機 貸出中 雑誌の棚 ┌──┐│本│└──┘",
    "zh": "北京 上海 李明 阅览室 杂志架 已借出 复印机 词典",
    "ru": "Москва Тверь Смирнова ЧИТАЛЬНЫЙ журнал выдана словарь полка «Нева» ─── Юрий",
    "bg": "Варна зала речник Петър дадена списание",
    "pl": "Łódź Wąchock półka książka słownik źródło późno Żaneta",
    "hu": "Győr Fertőd könyv szótár olvasó űrlap erdő ünnep",
    "de": "Lübeck Straße Größe Käthe Öffnung später Bücher Maß",
    "fr": "Orléans élève prêté déjà forêt leçon Zoë où",
    "es": "Málaga León señor niño página jamás según aquí",
}
WRITTEN = (
    *(("cp932", "ja"), ("euc-jp", "ja"), ("gb18030", "zh"), ("cp1251", "ru"), ("cp1251", "bg"), ("koi8-r", "ru")),
    *(("cp1250", "pl"), ("cp1250", "hu"), ("cp1252", "de"), ("mac-roman", "fr"), ("mac-roman", "es")),
    *(("utf-16-le", "ja"), ("utf-16-be", "ru"), ("utf-16-le", "de"), ("utf-16-be", "zh")),
)


def contents(prose: str, words: list[str]) -> Iterator[str]:
    """Prose, a table of digits, a long head in ASCII before three words, and what programs write for each other."""
    yield f"{prose}\n" * 8
    yield "id;amount;date;name\n" + "".join(
        f"{at};{at * 7.3:.2f};2031-04-02;{words[at % len(words)]}\n" for at in range(40)
    )
    yield "name,qty\r" + "item,1\r" * 900 + "".join(f"{word},12\r" for word in words[:3])
    yield "{\n" + ",\n".join(f'  "key_{at}": "{word}"' for at, word in enumerate(words * 6)) + "\n}\n"


FILES = [(name, text) for name, each in WRITTEN for text in contents(PROSE[each], WORDS[each].split(" "))]


def test_sixty_files_of_an_encoding_that_nothing_tells_are_read_and_the_guess_is_stated() -> None:
    wrong = []
    for name, text in FILES:
        data = text.encode(name, "ignore")
        assert len(data) >= 400
        found, encoding = decode(data)
        if found != data.decode(name).replace("\r", "\n") or not encoding.startswith("guessed "):
            wrong.append((name, text[:40], encoding))
    assert (len(FILES), wrong) == (60, [])


@pytest.mark.cases(
    ("data", "text", "encoding"),
    [
        ("Größe".encode("utf-16"), "Größe", ""),
        ("Größe".encode("utf-32"), "Größe", ""),
        ("one\ntwo\n".encode("utf-16-be"), "one\ntwo\n", "guessed utf-16-be"),
        ("one\ntwo\n".encode("utf-32-le"), "one\ntwo\n", "guessed utf-32-le"),
        ("本の貸出\n".encode("iso2022_jp"), "本の貸出\n", ""),
        ("本,ﾎﾝ\n".encode("iso2022_jp_ext"), "本,ﾎﾝ\n", ""),
        ("책의 대출\n".encode("iso2022_kr"), "책의 대출\n", ""),
        ("“It’s £5 – or so…”".encode("cp1252"), "“It’s £5 – or so…”", "guessed cp1252"),
        ("Größe, 東京 und Кафе 😀 ".encode() * 9 + b"\xff", "Größe, 東京 und Кафе 😀 " * 9 + "\ufffd", "guessed utf-8"),
        ("สวัสดีครับ ผมอ่านหนังสือทุกวัน\n".encode("cp874") * 9, "สวัสดีครับ ผมอ่านหนังสือทุกวัน\n" * 9, "guessed cp874"),
        (b"a," + bytes(range(0x80, 0x100)), "a," + "\ufffd" * 128, "unknown"),
    ],
)
def test_marks_damage_and_what_fits_no_encoding_are_told(data: bytes, text: str, encoding: str) -> None:
    assert decode(data) == (text, encoding)


def table(*words: str) -> str:
    return "id,qty,x\n" + "".join(f"A{at},{at * 7},{words[at % len(words)]}\n" for at in range(40))


def test_a_table_with_two_words_of_its_language_is_guessed_or_unknown() -> None:
    words = {
        "cp1250": "Škoda;Žižkov",
        "cp1251": "№5;№7 Љиљана;Ђорђе Ѓорѓи;Ќиро Воўк;Алесь",
        "cp1252": "20°C;21°C £5;£7 ½;¼ 5µm;±2 Ísafjörður;Þór",
        "cp1255": "שרה;ירושלים",
        "cp1257": "Žydrūnas;Panevėžys Ģirts;Lāsma;Ņina",
        "gb18030": "男;女 臺北;高雄;繁體 元 台;双;支 小学;学校",  # the last three are UTF-8, too
        "euc-jp": "男;女 有;無 1990年;1991年",
        "cp932": "男;女 １２３;ＡＢＣ ｶﾅ;ﾈｺ",
    }
    files = [(name, table(*pair.split(";"))) for name, pairs in words.items() for pair in pairs.split(" ")]
    files += [("utf-16-le", each * 20) for each in ("книгиназалечитают", "ספריהסגורה", "წიგნი\n")]
    assert [text[-9:] for name, text in files if decode(text.encode(name)) != (text, f"guessed {name}")] == []
    assert decode(table("医師", "寿司").encode("euc-jp"))[1] == "unknown"


def test_utf_8_of_one_word_is_no_guess() -> None:
    words = "é ő Ž Ω 5µm 20°C №5 😀 Łódź știință Iğdır Nguyễn Lǚ Ђорђе қала Слѣдъ Θεός דוד مُحَمَّد Հայ [ˈkæt] Hawaiʻi"
    every = [*words.split(" "), "e\u0301te\u0301", "Z\u030co\u0328", "a bell rings:\x07", "\x1b[31mred\x1b[0m"]
    assert [word for word in every if decode(word.encode()) != (word, "")] == []


def test_a_guessed_encoding_stands_in_the_list_in_passages_and_over_the_text(folder: Folder) -> None:
    folder.write("a.csv", "品名,数量\n緑茶のペットボトル,12\n".encode("cp932"))
    folder.write("b.txt", b"word " + bytes(range(0x80, 0x100)))
    folder.write("c.txt", "緑茶")
    listed = {each["path"]: each.get("encoding") for each in folder.call("list")["documents"]}
    assert listed == {"a.csv": "guessed cp932", "b.txt": "unknown", "c.txt": None}
    found = folder.call("search", query="緑茶 word")["passages"]
    assert {each["path"]: each.get("encoding") for each in found} == listed
    assert "encoding: guessed cp932)" in folder.read("a.csv").splitlines()[0]
    assert "encoding: unknown)" in folder.read("b.txt").splitlines()[0]
