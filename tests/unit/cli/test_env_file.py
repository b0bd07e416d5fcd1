from pathlib import Path

import pytest
from click.testing import CliRunner

from loom_worker.cli.init import settings_of
from loom_worker.cli.main import main
from loom_worker.core.errors import BadSettings


def read(folder: Path, text: str, **environ: str) -> dict[str, str]:
    (folder / ".env").write_text(text, encoding="utf-8")
    return settings_of(folder, environ)


def test_a_folder_without_the_file_adds_nothing(tmp_path: Path) -> None:
    assert settings_of(tmp_path, {}) == {}


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("LOOM_MODEL=m1", "m1"),
        ("export LOOM_MODEL = m1", "m1"),
        ('LOOM_MODEL="m 1"', "m 1"),
        ("LOOM_MODEL='m # 1' # why", "m # 1"),
        ("LOOM_MODEL=m1  # why", "m1"),
        ("LOOM_MODEL=m#1", "m#1"),
        ("LOOM_MODEL=a=b", "a=b"),
    ],
)
def test_a_line_is_a_name_and_a_value(tmp_path: Path, line: str, value: str) -> None:
    assert read(tmp_path, f"# settings\n\nLOOM_HOME=.loom\n{line}\n") == {"LOOM_HOME": ".loom", "LOOM_MODEL": value}


def test_an_empty_value_is_none_even_with_a_remark_behind_it(tmp_path: Path) -> None:
    assert read(tmp_path, "LOOM_HOME=.loom\nLOOM_MODEL=\nLOOM_PROVIDER= # none\n") == {"LOOM_HOME": ".loom"}


def test_the_environment_wins(tmp_path: Path) -> None:
    found = read(tmp_path, "LOOM_HOME=.loom\nLOOM_MODEL=m1\nLOOM_PORT=8001\n", LOOM_MODEL="m2", LOOM_PORT=" ")
    assert found == {"LOOM_HOME": ".loom", "LOOM_PORT": "8001"}


def test_a_home_that_the_environment_names_has_settings_of_its_own(tmp_path: Path) -> None:
    assert read(tmp_path, "LOOM_HOME=.loom\nLOOM_MODEL=m1\n", LOOM_HOME="/data") == {}


def test_a_file_of_another_program_is_left_alone(tmp_path: Path) -> None:
    assert read(tmp_path, "ANTHROPIC_API_KEY=k\nthis is no line\n") == {}


def test_only_what_loom_reads_or_its_tools_are_handed_is_taken(tmp_path: Path) -> None:
    text = "LOOM_HOME=h\nPATH=/evil\nLOOM_SECRET_SHOP=s\nAWS_REGION=eu\nLOOM_TOOL_ENV=SHOP_KEY, OTHER\nSHOP_KEY=k\n"
    text += "LOOM_PATTERNS_LEARN=0\n"
    assert read(tmp_path, text).keys() == {"LOOM_HOME", "LOOM_SECRET_SHOP", "AWS_REGION", "LOOM_TOOL_ENV", "SHOP_KEY"}


@pytest.mark.parametrize("line", ["LOOM_AGENT_DIR=agents", "just words", "LOOM_URL=http://elsewhere"])
def test_a_line_that_does_nothing_is_told_with_its_place(tmp_path: Path, line: str) -> None:
    with pytest.raises(BadSettings) as refused:
        read(tmp_path, f"LOOM_HOME=.loom\n{line}\nLOOM_SECRET_X=hidden\n")
    assert str(tmp_path / ".env") in str(refused.value)
    assert "hidden" not in str(refused.value)


def test_the_commands_read_it_from_the_folder_they_are_run_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOOM_HOME", "")
    (tmp_path / ".env").write_text("LOOM_HOME=own\n")
    result = CliRunner().invoke(main, ["status"])
    monkeypatch.setenv("LOOM_HOME", "")
    looked = (
        CliRunner().invoke(main, ["doctor", "--settings"], env={"LOOM_HOME": "", "LOOM_MODEL": "scripted-demo"}).stdout
    )
    assert f"{tmp_path / 'own'}  (.env)" in looked
    assert "scripted-demo  (environment)" in looked
    assert f"Loom is not running on {tmp_path / 'own'};" in result.stdout
    (tmp_path / ".env").write_text("LOOM_HOME=own\nnonsense\n")
    refused = CliRunner().invoke(main, ["status"])
    assert (refused.exit_code, refused.stderr) == (2, f"loom: {tmp_path / '.env'}:2: expected NAME=value\n")
