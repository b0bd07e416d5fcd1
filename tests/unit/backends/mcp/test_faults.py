from loom_worker.backends.mcp.faults import leaves, said


def test_the_errors_of_nested_groups_are_found_in_order() -> None:
    first, second = ValueError("a"), OSError("b")
    assert list(leaves(ExceptionGroup("x", [ExceptionGroup("y", [first]), second]))) == [first, second]
    assert list(leaves(first)) == [first]


def test_an_error_without_words_says_at_least_what_it_is() -> None:
    assert said(ExceptionGroup("x", [TimeoutError()])) == "TimeoutError"
    assert said(ValueError("one\ntwo")) == "one"
