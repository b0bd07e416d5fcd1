import pytest

from bench.run import FIGURES, chosen


def test_without_options_everything_is_measured_in_full() -> None:
    given = chosen([])
    assert given.only == tuple(FIGURES)
    assert not given.quick


def test_each_chosen_figure_is_measured_once_in_the_order_given() -> None:
    assert chosen(["--only", "idle, cpu,idle", "--quick"]).only == ("idle", "cpu")


def test_a_figure_that_does_not_exist_is_refused_with_those_that_do(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        chosen(["--only", "cpu,nonsense"])
    assert caught.value.code == 2
    told = capsys.readouterr().err
    assert "no such figures: nonsense" in told
    assert all(name in told for name in FIGURES)
