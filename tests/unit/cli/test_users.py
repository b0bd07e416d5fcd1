"""A user is deleted by a running Loom, and the counts are printed."""

import json

from click.testing import CliRunner

from loom_worker.cli.main import main
from tests.support.fake_loom import FakeLoom
from tests.support.http_server import serving

DELETED = {"user": "maria@x/y", "object": "user.deleted", "sessions": 2, "turns": 5, "keys": 1}


def test_a_user_is_deleted_and_the_counts_are_printed() -> None:
    loom = FakeLoom(pages={"/v1/users/maria%40x%2Fy": DELETED})
    with serving(loom) as url:
        done = CliRunner().invoke(main, ["users", "delete", "maria@x/y", "--url", url])
        as_json = CliRunner().invoke(main, ["users", "delete", "maria@x/y", "--url", url, "--json"])
    assert done.exit_code == 0, (done.output, loom.asked)
    assert done.stdout == "deleted: 2 sessions, 5 turns, 1 keys\n"
    assert json.loads(as_json.stdout) == DELETED
    assert loom.asked[0][:2] == ("DELETE", "/v1/users/maria%40x%2Fy")


def test_a_user_who_is_not_known_is_an_error() -> None:
    with serving(FakeLoom()) as url:
        done = CliRunner().invoke(main, ["users", "delete", "nobody", "--url", url])
    assert (done.exit_code, done.stdout) == (1, "")
