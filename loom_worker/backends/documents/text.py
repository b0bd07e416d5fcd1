"""Plain text, Markdown, reStructuredText, CSV and JSON as their lines, HTML as text with its headings.

Short tables with few words of their language are guessed here: of 182 such files in the encodings of Europe and East
Asia, charset-normalizer alone read 68 %. It is asked where none of these fits, as with Arabic or Thai.

HTML is read by the standard library's parser, which builds no tree, so depth costs nothing; it runs no script and
fetches nothing. It yields what a browser would show, and text that is hidden by style.
"""

import codecs
import re
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from itertools import chain
from typing import BinaryIO

from loom_worker.backends.documents.extract import (
    MAX_CHARS,
    MAX_TITLE_CHARS,
    Extract,
    Line,
    Outline,
    UnreadableDocument,
)

_HASHES = re.compile(r" {0,3}(#{1,6})[ \t]+(.*?)[ \t]*#*$")
_FENCE = re.compile(r" {0,3}(```|~~~)")
_UNDERLINE = {"Markdown": re.compile(r"(=|-)\1{2,}\s*$"), "reStructuredText": re.compile(r"([^\w\s])\1{2,}\s*$")}
MAX_TEXT_BYTES = 4 * MAX_CHARS
"""Read of a text; no encoding takes more than four bytes for a character."""
SAMPLE_BYTES = 4096
"""A guess looks at this much, long runs of ASCII left out: 0.2 s for 5 MB."""
LEAST_WORTH = 0.55
"""Worth of a guess (-3 to 1): Russian has 0.75 to 0.85, Chinese names 0.6, what is read wrongly mostly less than 0."""

_BOMS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF32_LE: "utf-32", codecs.BOM_UTF32_BE: "utf-32"}
_BOMS |= {codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}  # last: one is how a mark of UTF-32 begins
_MEANT = {"gb2312": "gb18030", "gbk": "gb18030", "shift_jis": "cp932", "euc_kr": "cp949", "iso8859-1": "cp1252"}
"""Declared names that stand for a larger encoding, as browsers take them."""
_WIDE = "utf-32-le utf-32-be utf-16-le utf-16-be".split()
_WEST, _EAST = "cp1252 mac-roman cp850", "cp1250 iso8859-2 cp852"
_CYRILLIC = "cp1251 koi8-r koi8-u mac-cyrillic cp866 iso8859-5"
_NARROW = (
    "cp932 euc-jp gb18030 big5 cp949 cp1252 cp1251 koi8-r cp1255 cp1250 cp1254 cp1253 mac-roman koi8-u mac-cyrillic "
    "cp866 cp850 cp852 iso8859-2 iso8859-5 cp1257 iso8859-7"
).split()
# The letters of a language beyond ASCII, from frequent to rare: one language must account for all of a text.
_ALPHABETS = (
    *((_WEST, each) for each in "äöüßé éèàêçâôîûùëïœ áéíóúñü àèéìòù åäöé æøåé ãõáâàçéêíóôú".split()),
    *((_EAST, each) for each in "ąćęłńóśźż áčďéěíňóřšťúůýž áéíóöőúüű ăâîșțşţ čćđšž áčďéíľňóôšťúýžä".split()),
    *((_CYRILLIC, f"оеаинт{more}") for more in (" срвлкмдпуья бгзйжхчшщыэюцъфё", "і срвлкмдпуья бгзйжхчшщюцфєїґ")),
    *((_CYRILLIC, f"оеаинт{more}") for more in ("іўы срвлкмдпуья бгзйжхчшэюцфё", "ј срвлкмдпу љњћђбгзжхчшцџфѓќѕ")),
    *(("cp1257", each) for each in "ąčęėįšųūž āčēģīķļņšūž äöõüšž".split()),
    ("cp1255", "יוהלאתרבמשנד חעכקפטגסצזםןךףץ"),
    *((_WEST, "áéíóúöæ ýþð"), ("cp1254", "çğıöşüi"), ("cp1253 iso8859-7", "αοιετσν ηυρπκμλςάέήίόύώ βγδζθξφχψωϊ")),
)
_CHINESE = (
    "的一是不了在人有我他这中大来上国个到说们为子和你地出道也时年得就那要下以生会自着去之过家学对可里后小么心多天"
    "而能好都然没日起还发成事作当文开手用主行方前本见经面公同三已分将外明东南西北京海市省县区路号街司部张王李刘陈杨黄周"
    "元台双支个件条瓶袋箱套只片批张站男女是否无米位书水月星期四五六二性名姓码单价数量款型付收入品选择软硬"
)
_JAPANESE = (
    "日一国会人年大十二本中長出三同時政事自行社見月分議後前民生連五発間対上部東者党地合市業内相方四定今回新場金員"
    "九入選立開手米力学問高代明実円関決子動京全目表戦経通外言氏現理調体化田当主題下首意法来性要用制北南西東山川村藤佐"
    "円個枚台番号男女無良品名町道秒未済低数量単価商店株式"
)
_KOREAN = (
    "이다는에의을가한하고로지사서기대인정도를자어시은수나일그리있부아조상전해주들장제과보스구원성라관만공유소여"
    "개예니오무품호특화표회항치행후차남실합통중"
)
_MISPLACED = re.compile(
    r".[ךםןףץ]\w|.[כמנפצ]\W|[A-Za-z][\u0370-\u05ff]|.[\u0370-\u05ff][A-Za-z]|[^\uff66-\uff9f][\uff66-\uff9f][^\uff66-\uff9f]",
    re.DOTALL,
)
"""Final letters of Hebrew within a word and others at its end, scripts that mix, and one half-width kana alone."""
_BEFORE_WORDS, _AFTER_WORDS = "«„‘‚‹¿¡€£¥§°©№•×±¼½¾µ", "“”»›…™®–—·ªº²³"
_NO_EUC = re.compile(rb"[\xe0-\xff]|[\xc2-\xdf][\x80-\xa0]")
"""In UTF-8, a character that can't be two bytes of EUC-JP, EUC-KR or GB 2312 by chance."""
_FOREIGN_WORD = re.compile("[A-Za-z]*[\xc0-\u07ff][A-Za-z\xc0-\u07ff]*")
_USUAL_WORD = re.compile(
    "[\xc0-\u036f]*[A-Za-z][A-Za-z\xc0-\u036f]*|[\xc0-\xffšŽž]+|[\xc0-\u017f]{2,}|[\u0386-\u03a1\u03a3-\u03ce]+|"
    "[A-Za-z\u0400-\u045f\u048a-\u04ff]*[\u0400-\u045f][A-Za-z\u0400-\u045f\u048a-\u04ff]*|"
    "[\u0531-\u07ff]*[\u0531-\u0587\u05d0-\u05ea\u0620-\u064a]{2}[\u0531-\u07ff]*"
)
_CONTROLS = bytes({*range(1, 32)} - {*b"\t\n\r\f\x1b"})
_LONG_ASCII = re.compile(rb"([\x00-\x7f]{8})[\x00-\x7f]+([\x00-\x7f]{8})")


def read(file: BinaryIO, kind: str, _from_page: int) -> Extract:
    """The lines of a text, or a line for each block of a page; those of CSV stand under the names of the columns."""
    if kind == "HTML":
        return _read_html(file)
    text, encoding = decode(file.read(MAX_TEXT_BYTES))
    lines = text.removesuffix("\n").split("\n")
    if kind == "CSV":
        return Extract((Line(line, lines[0][:MAX_TITLE_CHARS]) for line in lines), encoding=encoding)
    if kind not in _UNDERLINE:
        return Extract(map(Line, lines), encoding=encoding)
    found = list(_with_headings(lines, _UNDERLINE[kind], has_hashes=kind == "Markdown"))
    title = next((line.heading for line in found if line.heading), "")
    return Extract(iter(found), title=title, encoding=encoding)


def _with_headings(lines: list[str], underline: re.Pattern[str], *, has_hashes: bool) -> Iterator[Line]:
    outline, path = Outline(), ""
    levels: dict[str, int] = {"=": 1, "-": 2} if has_hashes else {}
    fence = None
    for text, following in zip(lines, chain(lines[1:], [""]), strict=True):
        mark = _FENCE.match(text)
        if has_hashes and mark and fence in (None, mark[1]):
            fence = None if fence else mark[1]
        elif fence is None and has_hashes and (hashes := _HASHES.match(text)):
            path = outline.enter(len(hashes[1]), hashes[2])
        elif fence is None and (level := _level(text, underline.match(following), levels)):
            path = outline.enter(level, text)
        yield Line(text, path)


def _level(text: str, line: re.Match[str] | None, levels: dict[str, int]) -> int | None:
    """The level of a title over a line of punctuation; reStructuredText gives each mark the next level it meets."""
    is_title = line is not None and any(char.isalnum() for char in text) and len(text) <= MAX_TITLE_CHARS
    return levels.setdefault(line[1], len(levels) + 1) if line and is_title else None


def decode(data: bytes, *, declared: str | None = None) -> tuple[str, str]:
    """At most MAX_CHARS + 1 characters of text, and ``guessed cp932`` or ``unknown`` if nothing tells the encoding.

    Of an unknown one the ASCII characters are legible.

    Raises:
        UnreadableDocument: it holds NUL, as no text does.
    """
    marked = next((name for mark, name in _BOMS.items() if data.startswith(mark)), None)
    plain = "iso2022_kr" if b"\x1b$)C" in data else "iso2022_jp_ext" if b"\x1b$" in data else "utf-8"
    told = _by(marked, data) or _by(_of_text(declared), data)
    text, encoding = told or _by(plain, data), ""
    if text is None or "\0" in text or (told is None and plain == "utf-8" and _is_by_chance(data, text)):
        text, encoding = _guessed(data)
    return text[: MAX_CHARS + 1].replace("\r\n", "\n").replace("\r", "\n"), encoding


def _of_text(encoding: str | None) -> str | None:
    """None for codecs of bytes to bytes, such as zlib, and for those there are not."""
    try:
        name = codecs.lookup((encoding or "").lower().removeprefix("x-")).name
        return _MEANT.get(name, name) if b"a".decode(name) else None
    except (LookupError, UnicodeError):
        return None


def _by(encoding: str | None, data: bytes, errors: str = "strict") -> str | None:
    """None if the bytes are not of this encoding; a character cut by MAX_TEXT_BYTES is left out."""
    if encoding is None:
        return None
    try:
        text = codecs.getincrementaldecoder(encoding)(errors).decode(data, final=len(data) < MAX_TEXT_BYTES)
        return text.encode("utf-8", "replace").decode()  # some encodings give lone surrogates
    except (LookupError, UnicodeError):
        return None


def _is_by_chance(data: bytes, text: str) -> bool:
    """Whether these bytes are UTF-8, but at least half of the words beyond ASCII would be ones of no language."""
    words = [] if data.isascii() or _NO_EUC.search(data) else _FOREIGN_WORD.findall(text)
    return _is_wide(data) or sum(not _USUAL_WORD.fullmatch(word) for word in words) * 2 >= len(words) > 0


def _is_wide(data: bytes) -> bool:
    """Whether there are more control characters than in a text of one byte to a character."""
    return b"\0" in data or (len(data) - len(data.translate(None, _CONTROLS))) * 10 > len(data)


def _guessed(data: bytes) -> tuple[str, str]:
    for encoding in _fitting(data):
        text = _by(encoding, data, "replace") or "\0"
        if "\0" not in text and text.count("\ufffd") <= 1 + len(text) // 1000:
            return text.removeprefix("\ufeff"), f"guessed {encoding}"
    if b"\0" in data:
        raise UnreadableDocument("it holds binary data")
    return data.decode("ascii", "replace"), "unknown"


def _fitting(data: bytes) -> Iterator[str]:
    """Encodings that may be meant, the likeliest first; a rarer one must fit better."""
    is_wide = _is_wide(data)
    sample = (data if is_wide else _LONG_ASCII.sub(rb"\1\n\2", data))[:SAMPLE_BYTES]
    foreign = re.sub(r"[\x00-\x7f]", "", _by("utf-8", sample, "replace") or "")
    damage = foreign.count("\ufffd")
    if 0 < damage * 10 < len(foreign):
        yield "utf-8"
    names = _WIDE if is_wide else _NARROW if damage else _NARROW[1:5]  # UTF-8 by chance is EUC or Big5
    texts = {each: _by(each, sample, "replace") or "" for each in names}
    worths: dict[str, float] = {}
    for place, (encoding, text) in enumerate(texts.items()):
        if text.count("\ufffd") * 20 <= len(text):
            best = max(_worth(text, letters, has_ascii=is_wide) for letters in _letters()[encoding])
            worths[encoding] = best - place * 0.004
    ranked = sorted((each for each in worths if worths[each] >= LEAST_WORTH), key=lambda each: -worths[each])
    near = {re.sub(r"[\x00-\x7f]", "", texts[each]) for each in ranked if worths[each] > worths[ranked[0]] - 0.01}
    if len(near) > 1 and ranked[0] != "cp1252" and all(len({*each}) < 6 for each in near):
        return  # a toss of a coin would be wrong too often
    yield from ranked
    if not damage:
        yield "utf-8"
    elif not is_wide:
        import charset_normalizer  # 60 ms, for few files

        if found := charset_normalizer.from_bytes(sample).best():
            yield found.encoding.replace("_", "-")


def _worth(text: str, letters: dict[str, float], *, has_ascii: bool) -> float:
    """How well the text is one of these letters: the mean of its characters, those of ASCII left out unless told."""
    around = zip(" " + text, text, text[1:] + " ", strict=False)
    worths = [_worth_of(*each, letters) for each in around if has_ascii or each[1] > "\x7f"]
    return sum(worths) / len(worths) if worths else 0


def _worth_of(before: str, char: str, after: str, letters: dict[str, float]) -> float:
    worth = letters.get(low := char.lower()[:1], -1.0)
    if _MISPLACED.match(before + char + after):
        return -1
    if "\xc0" <= low <= "\u024f" and {each.isascii() for each in before + after if each.isalpha()} == {False}:
        worth -= 0.3  # words in these letters alone are rare
    if worth > 0 and char != low and before.isalpha():
        return -1 if before.islower() else worth - 0.065  # fewer words are in capitals
    if char in _BEFORE_WORDS + _AFTER_WORDS:
        return -1 if before.isalpha() and (char in _BEFORE_WORDS or after.isalpha()) else 1
    if "\u2500" <= char <= "\u259f":  # lines and boxes
        return 1 if char in (before, after) else 0.6 if before.isspace() or after.isspace() else -1
    return worth if char != "\ufffd" else -3


@cache
def _letters() -> dict[str, list[dict[str, float]]]:
    """For each encoding the letters of its languages, each language by itself, each letter with its worth."""
    found: dict[str, list[dict[str, float]]] = {}
    for encodings, alphabet in _ALPHABETS:
        tiers = zip(alphabet.split(), (1, 0.75, 0.5), strict=False)
        letters = {"’": 1.0, "\xa0": 0.6} | {char: worth for chars, worth in tiers for char in chars}
        for encoding in encodings.split():
            found.setdefault(encoding, []).append(letters)
    kana = dict.fromkeys(map(chr, (*range(0x3041, 0x3097), *range(0x30A1, 0x30FD))), 1.0)
    kana |= {chr(code): 1.0 if code < 0xFF80 or code > 0xFF9C else 0.5 for code in range(0xFF66, 0xFFA0)}
    kana |= dict.fromkeys("ｧｨｩｪｫｬｭｮｯ", 0.3)
    found["cp932"] = found["euc-jp"] = [_ideographs("euc_jp", range(0xB0, 0xD0), _JAPANESE) | kana]
    found["gb18030"] = [_ideographs("gb2312", range(0xB0, 0xD8), _CHINESE)]
    found["big5"] = [_ideographs("big5", range(0xA4, 0xC7), _CHINESE + _JAPANESE)]
    found["cp949"] = [_ideographs("euc_kr", range(0xB0, 0xC9), _KOREAN)]
    every = {char: worth for each in found.values() for letters in each for char, worth in letters.items()}
    others = (9, 10, 13, *range(32, 127), *range(0x460, 0x1100))  # ASCII, Cyrillic to Georgian
    every |= dict.fromkeys(map(chr, others), 1.0)
    return found | {encoding: [every] for encoding in _WIDE}


def _ideographs(encoding: str, rows: range, frequent: str) -> dict[str, float]:
    """The characters of these first bytes, which a standard's authors held for the common ones, and punctuation."""
    columns = (*range(0x40, 0x7F), *range(0xA1, 0xFF))
    common = bytes(byte for row in rows for column in columns for byte in (row, column)).decode(encoding, "ignore")
    likely = {char: 1.0 for char in frequent if encoding != "big5" or char in common}
    full_width = "　、。「」『』・《》" + "".join(map(chr, range(0xFF01, 0xFF5F)))
    return dict.fromkeys(full_width, 1.0) | dict.fromkeys(common, 0.62) | likely


CHUNK_CHARS = 64 * 1024
"""Fed to the parser at a time, so that the reader's time limit is heeded in between."""

_CHARSET = re.compile(rb"""(?i)<(?:meta\b|\?xml)[^<>]{0,200}?(?:charset|encoding)\s*=\s*["']?([\w.:-]{1,40})""")
_COMMENT = re.compile(rb"<!--.*?(?:-->|\Z)", re.DOTALL)
_BLOCKS = frozenset(
    """address article aside blockquote body br caption center dd details dialog div dl dt fieldset figcaption figure
    footer form h1 h2 h3 h4 h5 h6 head header hr html legend li main menu nav ol option p pre section summary table
    tbody tfoot thead tr ul""".split()
)
_SILENT = frozenset({"script", "style", "template", "svg"})
_LEVELS = {f"h{level}": level for level in range(1, 7)}


def _read_html(file: BinaryIO) -> Extract:
    data = file.read(MAX_TEXT_BYTES)
    declared = _CHARSET.search(_COMMENT.sub(b"", data))
    text, encoding = decode(data, declared=declared[1].decode("ascii") if declared else None)
    extract = Extract(iter(()), encoding=encoding)
    extract.lines = _lines(text, extract)
    return extract


def _lines(text: str, extract: Extract) -> Iterator[Line | None]:
    page = _Page()
    for at in range(0, len(text), CHUNK_CHARS):
        page.feed(text[at : at + CHUNK_CHARS])
        extract.title = page.title[:MAX_TITLE_CHARS]
        yield from page.taken()
        yield None
    page.close()
    yield from page.taken(is_end=True)


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.title = ""
        self._lines: list[Line] = []
        self._text: list[str] = []
        self._outline = Outline()
        self._path = ""
        self._silent: list[str] = []
        self._within: str | None = None
        """The title or heading that is open."""
        self._is_pre = False

    def taken(self, *, is_end: bool = False) -> list[Line]:
        """The lines that are complete, and the last one at the end."""
        if is_end:
            self._break()
        lines, self._lines = self._lines, []
        return lines

    def parse_marked_section(self, i: int, report: bool = True) -> int:
        """``<![…>`` is a comment in HTML; the parser of Python 3.11 raises AssertionError over some."""
        return self.parse_bogus_comment(i, report)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _SILENT:
            self._silent.append(tag)
        if tag in _BLOCKS:
            self._break()
        if tag == "title" or tag in _LEVELS:
            self._break()
            self._within = tag
        elif tag in ("td", "th") and self._text:
            self._text.append(" | ")
        elif tag == "li":
            self._text.append("- ")
        self._is_pre = tag == "pre" or self._is_pre

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in _SILENT:  # <svg/> has no end that would let the text go on
            self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        if self._silent and tag == self._silent[-1]:
            self._silent.pop()
        if tag in _BLOCKS or tag == self._within:
            self._break()
        if tag == self._within:
            self._within = None
        if tag == "pre":
            self._is_pre = False

    def handle_data(self, data: str) -> None:
        if self._silent:
            return
        first, *others = data.split("\n") if self._is_pre else [data]
        self._text.append(first)
        for text in others:
            self._break()
            self._text.append(text)

    def _break(self) -> None:
        """End the line; that of a heading begins a section, that of the title is none."""
        raw, self._text = "".join(self._text), []
        text = raw.rstrip() if self._is_pre else " ".join(raw.split())
        if not text.strip():
            return
        if self._within == "title":
            self.title = self.title or text
            return
        if self._within:
            self._path = self._outline.enter(_LEVELS[self._within], text)
        self._lines.append(Line(text, self._path))
