import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from redis import Redis

from loom_worker.cli.main import main
from loom_worker.core.env import KNOWN
from loom_worker.core.isolation import process_env
from loom_worker.core.settings import from_env
from loom_worker.lanes import keys
from loom_worker.runtime.sweeping import process_name
from loom_worker.supervisor import valkey as embedded
from loom_worker.tasks.app import QUEUES
from tests.unit.docs.pages import ROOT, text

COMPOSE: dict[str, Any] = yaml.safe_load(text("docker-compose.yml"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = sorted(name for name, service in SERVICES.items() if service["image"] == "loom")
ONE_SHOT = "prepare"
CONTAINERS_OWN = {
    *("LOOM_HOME", "LOOM_DATABASE_URL", "LOOM_BLOB_DIR", "LOOM_REDIS_URL", "LOOM_PROVIDERS", "LOOM_HOST", "LOOM_PORT"),
    *("LOOM_AGENTS_DIR", "LOOM_WORKFLOWS_DIR", "LOOM_PATTERNS_DIR", "LOOM_WORKSPACES_DIR"),
    *("LOOM_FLOWER_ADDRESS", "LOOM_FLOWER_PORT"),
}
"""What is not handed on, as it follows from the containers; all else is."""
NEEDS = {
    "prepare": process_env.PREPARE,
    "web": process_env.WEB,
    "beat": process_env.NOTHING,
    "flower": process_env.NOTHING,
}


@pytest.mark.cases("name", OURS)
def test_every_service_runs_a_command_of_looms_that_parses(name: str) -> None:
    command, *arguments = SERVICES[name]["command"]
    found = main.get_command(click.Context(main), command)
    assert found is not None
    found.make_context(command, list(arguments))


@pytest.mark.parametrize("name", OURS)
def test_every_variable_is_a_setting_and_the_settings_are_accepted(name: str, tmp_path: Path) -> None:
    given = SERVICES[name]["environment"]
    assert sorted(set(given) - set(KNOWN)) == []
    filled = {"LOOM_API_KEYS": "team=key", "LOOM_WEBHOOK_SECRET": "whsec_" + "A" * 44}
    environ = {key: filled.get(key, "") if value.startswith("${") else value for key, value in given.items()}
    for setting in (
        "LOOM_AGENTS_DIR",
        "LOOM_WORKFLOWS_DIR",
        "LOOM_PATTERNS_DIR",
    ):  # there in the container, as they are mounted
        environ[setting] = str(tmp_path)
    settings = from_env(environ)
    assert settings.web.api_keys == ({"key": "team"} if name == "web" else {})
    assert not settings.has_embedded_redis


@pytest.mark.cases("name", OURS)
def test_a_container_is_given_the_secrets_that_its_process_needs_and_no_others(name: str) -> None:
    command, *options = SERVICES[name]["command"]
    needs = process_env.of_worker(options[1].split(",")) if command == "worker" else NEEDS[command]
    given = SERVICES[name]["environment"]
    # Where the data is says every process at its start, and the sample shop is made by one that must know it is meant.
    own = {*process_env.of_process(given, needs), "LOOM_BACKEND_URL"}
    assert [variable for variable in given if variable not in own] == []
    assert ("ANTHROPIC_API_KEY" in given) == (process_env.PROVIDER in needs)


def test_images_are_named_by_tag_and_digest_the_same_everywhere() -> None:
    images = [rest.partition(" AS ")[0] for name, rest in _instructions(text("Dockerfile")) if name == "FROM"]
    assert len(set(images)) == 1
    images += [service["image"] for service in SERVICES.values() if "build" not in service]
    assert len(images) == 3
    assert [image for image in images if not re.fullmatch(r"[\w/]+:\d[\w.-]+@sha256:[0-9a-f]{64}", image)] == []


def test_what_listens_to_strangers_insists_on_keys_and_what_sends_webhooks_on_a_secret() -> None:
    assert SERVICES["web"]["environment"]["LOOM_API_KEYS"].startswith("${LOOM_API_KEYS:?")
    [sender] = [name for name in OURS if "webhook" in str(SERVICES[name]["command"])]
    assert SERVICES[sender]["environment"]["LOOM_WEBHOOK_SECRET"].startswith("${LOOM_WEBHOOK_SECRET:?")
    assert SERVICES["web"]["environment"]["LOOM_HOST"] == "0.0.0.0"
    assert SERVICES["flower"]["environment"]["LOOM_FLOWER_ADDRESS"] == "0.0.0.0"
    ports = [port for service in SERVICES.values() for port in service.get("ports", ())]
    assert ports
    assert [port for port in ports if not port.startswith("127.0.0.1:")] == []


@pytest.mark.cases("name", sorted(set(SERVICES) - {ONE_SHOT}))
def test_every_service_is_restarted_watched_and_given_time(name: str) -> None:
    service = SERVICES[name]
    assert service["restart"] == "unless-stopped"
    assert service["stop_grace_period"] == "60s"
    assert service["healthcheck"]["test"][0] == "CMD"


@pytest.mark.cases("name", sorted(SERVICES))
def test_a_container_may_do_and_write_no_more_than_it_must(name: str) -> None:
    service = SERVICES[name]
    assert service["user"] in ("loom", "999:1000")
    assert (service["read_only"], service["tmpfs"], service["cap_drop"]) == (True, ["/tmp"], ["ALL"])
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert re.fullmatch(r"[1-9]g", service["mem_limit"])


def test_two_workers_take_turns_and_are_told_apart_by_their_hosts() -> None:
    takes = [service for service in SERVICES.values() if "turn" in str(service["command"]).replace("turns", "")]
    assert [service["deploy"]["replicas"] for service in takes if service["command"][0] == "worker"] == [2]
    assert not any("hostname" in service or "container_name" in service for service in takes)


def health_of(name: str, redis: Redis) -> int:
    """What the health check of a service says, with this Redis."""
    _, python, *code = SERVICES[name]["healthcheck"]["test"]
    assert python == "python"
    environ = {"LOOM_REDIS_URL": f"unix://{redis.connection_pool.connection_kwargs['path']}"}
    return subprocess.run([sys.executable, *code], env=environ, capture_output=True, timeout=60, check=False).returncode


def test_a_worker_is_healthy_while_its_heart_beats_and_beat_while_it_reaches_redis(valkey: Redis) -> None:
    other, own = f"turn@another-{socket.gethostname()}-1-a", process_name("turn")
    valkey.zadd(keys.WORKERS, {other: 1, own: 2})
    valkey.set(keys.worker(other), "")
    assert (health_of("worker", valkey), health_of("worker-tools", valkey), health_of("beat", valkey)) == (1, 1, 0)
    valkey.set(keys.worker(own), "")
    assert (health_of("worker", valkey), health_of("worker-tools", valkey)) == (0, 0)


def test_the_image_takes_extras_as_a_build_argument_with_the_versions_of_the_tests() -> None:
    assert COMPOSE["x-loom"]["build"]["args"] == {"EXTRAS": "${EXTRAS:-}"}
    lines = _instructions(text("Dockerfile"))
    assert ("ARG", "EXTRAS=") in lines
    [run] = [rest for name, rest in lines if name == "RUN" and "EXTRAS" in rest]
    pins = subprocess.run(run.split(" > ")[0], shell=True, cwd=ROOT, capture_output=True, text=True, check=True)
    pinned = {line.split("==")[0] for line in pins.stdout.splitlines()}
    assert {"psycopg", "psycopg-binary", "duckdb-engine", "boto3", "pymysql", "sqlite-vec", "tokenizers"} <= pinned
    assert [line for line in pins.stdout.splitlines() if not re.fullmatch(r"[\w.-]+==[\w.]+", line)] == []


def test_the_image_can_have_its_database_on_postgresql() -> None:
    [run] = [rest for name, rest in _instructions(text("Dockerfile")) if name == "RUN" and "EXTRAS" in rest]
    assert '".[postgresql${EXTRAS:+,$EXTRAS}]"' in run


def test_on_postgresql_every_container_of_ours_has_its_address_and_the_first_waits_for_it() -> None:
    override = yaml.safe_load(text("docker-compose.postgresql.yml"))
    server = override["services"].pop("postgresql")
    assert set(override["services"]) == set(OURS)
    told = {key: value for service in override["services"].values() for key, value in service["environment"].items()}
    assert all(service["environment"] == told for service in override["services"].values())
    password = server["environment"]["POSTGRES_PASSWORD"]
    settings = from_env({"LOOM_DATABASE_URL": told["LOOM_DATABASE_URL"].replace(password, "secret")})
    assert settings.database_url == "postgresql://loom:secret@postgresql/loom?sslmode=disable"
    assert told["LOOM_DATABASE_POOL"] == "${LOOM_DATABASE_POOL:-15}"
    assert override["services"][ONE_SHOT]["depends_on"] == {"postgresql": {"condition": "service_healthy"}}
    assert [volume.split(":")[0] for volume in server["volumes"]] == list(override["volumes"])
    assert (server["read_only"], server["cap_drop"], "ports" in server) == (True, ["ALL"], False)


def test_all_start_after_the_database_was_prepared_once() -> None:
    for name in set(OURS) - {ONE_SHOT}:
        assert SERVICES[name]["depends_on"][ONE_SHOT] == {"condition": "service_completed_successfully"}
    assert SERVICES[ONE_SHOT]["restart"] == "on-failure"
    assert ONE_SHOT not in SERVICES[ONE_SHOT]["depends_on"]


def test_every_volume_is_declared_and_all_share_the_home() -> None:
    used = {volume.split(":")[0] for service in SERVICES.values() for volume in service["volumes"]}
    assert {name for name in used if not name.startswith("./")} == set(COMPOSE["volumes"])
    assert {SERVICES[name]["volumes"][0] for name in OURS} == {"data:/data"}
    assert {SERVICES[name]["environment"]["LOOM_HOME"] for name in OURS} == {"/data"}


@pytest.mark.cases("name", OURS)
def test_every_container_sees_the_users_folders_where_its_settings_say(name: str) -> None:
    mounted = dict(volume.removesuffix(":ro").split(":") for volume in SERVICES[name]["volumes"] if "./" in volume)
    given = SERVICES[name]["environment"]
    assert mounted["./agents"] == given["LOOM_AGENTS_DIR"]
    assert mounted["./workflows"] == given["LOOM_WORKFLOWS_DIR"]
    assert mounted["./patterns"] == given["LOOM_PATTERNS_DIR"]
    assert mounted["./workspaces"] == given["LOOM_WORKSPACES_DIR"]
    # Agents name their tools as ../tools/FILE.py.
    assert mounted["./tools"] == str(Path(given["LOOM_AGENTS_DIR"]).parent / "tools")


@pytest.mark.cases("name", OURS)
def test_every_setting_that_the_docs_name_reaches_each_container_that_may_have_it(name: str) -> None:
    told = set(re.findall(r"^\| `([A-Z0-9_]+)` \|", text("docs/settings.md"), re.MULTILINE))
    assert told == set(KNOWN)
    command, *options = SERVICES[name]["command"]
    needs = process_env.of_worker(options[1].split(",")) if command == "worker" else NEEDS[command]
    may_have = set(process_env.of_process(dict.fromkeys(told, "x"), needs)) | {"LOOM_BACKEND_URL"}
    listening = {"LOOM_HOST", "LOOM_PORT"} if command != "web" else set()
    listening |= {key for key in KNOWN if key.startswith("LOOM_FLOWER_")} if command != "flower" else set()
    given = SERVICES[name]["environment"]
    assert sorted(may_have - listening - set(given)) == []
    handed_on = {key: value for key, value in given.items() if value.startswith("${") and key != "LOOM_PROVIDERS"}
    assert [key for key, value in handed_on.items() if not value.startswith(f"${{{key}:")] == []
    assert set(given) - set(handed_on) <= CONTAINERS_OWN


@pytest.mark.cases("name", OURS)
def test_secrets_with_names_of_their_own_reach_those_processes_that_use_them(name: str) -> None:
    command, *options = SERVICES[name]["command"]
    needs = process_env.of_worker(options[1].split(",")) if command == "worker" else NEEDS[command]
    has_secrets = SERVICES[name].get("env_file") == [{"path": "secrets.env", "required": False}]
    assert has_secrets == (process_env.NAMED in needs)


def test_the_file_that_init_makes_is_this_one_but_for_the_build() -> None:
    made = yaml.safe_load(text("loom_worker/cli/project/docker-compose.yml"))
    assert {name for name in OURS if SERVICES[name]["build"]["context"] == "."} == set(OURS)
    without_build = {
        name: {key: value for key, value in service.items() if key != "build"} for name, service in SERVICES.items()
    }
    assert made["services"] == without_build
    assert made["volumes"] == COMPOSE["volumes"]


def test_every_queue_has_a_worker() -> None:
    queues = [
        queue
        for service in SERVICES.values()
        if service["command"][0] == "worker"
        for queue in service["command"][service["command"].index("--queues") + 1].split(",")
    ]
    assert sorted(queues) == sorted(QUEUES)


def test_the_server_keeps_and_evicts_as_the_embedded_one_does() -> None:
    ours = embedded.argv(ROOT / "valkey-server", socket_path=ROOT / "s", data_dir=ROOT / "d")
    theirs = SERVICES["redis"]["command"]
    for option in ("--appendonly", "--appendfsync", "--save", "--maxmemory-policy"):
        assert theirs[theirs.index(option) + 1] == ours[ours.index(option) + 1], option


def test_the_image_runs_as_a_user_without_build_tools_and_copies_only_what_is_sent() -> None:
    lines = _instructions(text("Dockerfile"))
    names = [name for name, _ in lines]
    assert [rest for name, rest in lines if name == "USER"] == ["loom"]
    assert names.index("USER") > max(place for place, name in enumerate(names) if name == "RUN")
    assert not re.search(r"\b(apt-get|gcc|build-essential)\b", text("Dockerfile"))
    copied = {source for name, rest in lines if name == "COPY" and "--from" not in rest for source in rest.split()[:-1]}
    sent = {line.removeprefix("!") for line in text(".dockerignore").splitlines() if line.startswith("!")}
    assert copied == sent
    assert [source for source in copied if not (ROOT / source).exists()] == []


def test_the_image_sets_known_variables_only() -> None:
    told = " ".join(rest for name, rest in _instructions(text("Dockerfile")) if name == "ENV")
    assert set(re.findall(r"\bLOOM_\w+", told)) <= set(KNOWN)


def _instructions(dockerfile: str) -> list[tuple[str, str]]:
    joined = dockerfile.replace("\\\n", " ")
    lines = (line for line in joined.splitlines() if line.strip() and not line.startswith("#"))
    return [(name, rest.strip()) for name, _, rest in (line.partition(" ") for line in lines)]
