from loom_worker.core.words import STOP_WORDS, forms_of, grams, stemmed


def test_no_form_is_a_word_of_grammar() -> None:
    assert not {form for word in ("meant", "kept", "worst", "said") for form in forms_of(word)} & STOP_WORDS


def test_a_text_without_spaces_is_held_in_pairs_of_characters() -> None:
    assert grams("我爱猫, ok") == "我爱 爱猫 猫"
    assert grams("买了iPhone手机 now") == "买了 了 iPhone 手机 机"
    assert grams("see 東京都 (京)") == "東京 京都 都 京"
    assert grams("plain text") is None
    assert grams("größer, naïve") is None


def test_a_stem_has_no_ending_and_at_least_three_letters() -> None:
    found = {word: stemmed(word) for word in "shipping sells missed stories ties bus ads refunded".split()}
    assert found == {
        "shipping": "ship",
        "sells": "sell",
        "missed": "miss",
        "stories": "story",
        "ties": "tie",
        "bus": "bus",
        "ads": "ads",
        "refunded": "refund",
    }
