"""docker-compose.yml and the Dockerfile, held to what can be known without an engine. No container is started here."""

from __future__ import annotations

import functools
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from lastgood.serve import DEFAULT_PORT
from lastgood_console.cli import COMMANDS

Json = dict[str, Any]
ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "docker-compose.yml"
OVERRIDE = ROOT / "docs/deploy/compose-grafana-alerts.yml"

GRAFANA_OPTIONS = {
    "SECURITY_ADMIN_USER", "SECURITY_ADMIN_PASSWORD", "SERVER_ROOT_URL", "USERS_ALLOW_SIGN_UP",
    "AUTH_ANONYMOUS_ENABLED", "ANALYTICS_REPORTING_ENABLED", "ANALYTICS_CHECK_FOR_UPDATES",
    "ANALYTICS_CHECK_FOR_PLUGIN_UPDATES",
}  # fmt: skip
"""Sections and keys of Grafana's conf/defaults.ini, as GF_<SECTION>_<KEY> names them."""
PORTS = {"console": 8490, "prometheus": 9090, "alertmanager": 9093, "grafana": 3000}
"""What each image listens on."""
CONFIG_PLACES = {"/etc/prometheus/prometheus.yml", "/etc/alertmanager/alertmanager.yml"}


def services() -> dict[str, Json]:
    found: dict[str, Json] = yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))["services"]
    return found


def mounts(service: Json) -> list[tuple[str, str, str]]:
    """Return (source, target, mode) of the volumes of a service; a variable stands for its default."""
    plain = [re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", volume) for volume in service.get("volumes", [])]
    return [(*volume.split(":"), "rw")[:3] for volume in plain]  # type: ignore[misc]


def program(*names: str) -> str:
    found = next((path for name in names if (path := shutil.which(name))), None)
    return found or pytest.fail(f"{names[0]} is missing: run `make programs`")


@functools.cache
def flags_of(*names: str) -> set[str]:
    done = subprocess.run([program(*names), "--help"], capture_output=True, text=True, check=False, timeout=30)
    return set(re.findall(r"--[a-z][a-z.-]+[a-z]", done.stdout + done.stderr))


@pytest.mark.parametrize("path", [COMPOSE, OVERRIDE], ids=lambda path: path.name)
def test_the_files_follow_the_compose_specification(path: Path) -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_key_that_compose_does_not_know_is_seen(tmp_path: Path) -> None:
    wrong = tmp_path / "docker-compose.yml"
    wrong.write_text(COMPOSE.read_text(encoding="utf-8").replace("healthcheck:", "healthchek:"), encoding="utf-8")
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(wrong)]
    assert subprocess.run(command, capture_output=True, check=False, timeout=60).returncode == 1


@pytest.mark.parametrize("name", services())
def test_every_mounted_path_is_in_the_repository_and_read_only(name: str) -> None:
    for source, target, mode in mounts(services()[name]):
        if source.startswith("."):
            assert (ROOT / source).exists(), source
            assert mode == "ro", f"{source} -> {target}"
        else:
            assert source in yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))["volumes"]


def test_the_override_mounts_what_exists_where_the_stack_has_it() -> None:
    override = yaml.safe_load(OVERRIDE.read_text(encoding="utf-8"))["services"]
    for name, service in override.items():
        assert name in services()
        assert [source for source, _, mode in mounts(service) if not (ROOT / source).exists() or mode != "ro"] == []
    assert [target for _, target, _ in mounts(override["prometheus"])] == ["/etc/prometheus/prometheus.yml"]
    assert {path.suffix for path in (ROOT / mounts(override["grafana"])[0][0]).iterdir()} == {".yaml"}


@pytest.mark.parametrize("name", services())
def test_a_service_depends_on_healthy_services_that_exist(name: str) -> None:
    for other, how in services()[name].get("depends_on", {}).items():
        assert other in services()
        assert how == {"condition": "service_healthy"}
        assert "healthcheck" in services()[other]


@pytest.mark.parametrize("name", services())
def test_no_service_runs_as_root_or_may_become_it(name: str) -> None:
    service = services()[name]
    assert re.fullmatch(r"[1-9]\d*:\d+", service["user"])
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]


@pytest.mark.parametrize("name", PORTS)
def test_a_port_is_open_to_this_machine_only_and_is_the_one_of_its_image(name: str) -> None:
    (port,) = services()[name]["ports"]
    assert re.fullmatch(rf"127\.0\.0\.1:\$\{{{name.upper()}_PORT:-{PORTS[name]}\}}:{PORTS[name]}", port)
    assert f"127.0.0.1:{PORTS[name]}/" in " ".join(services()[name]["healthcheck"]["test"])


def test_the_images_are_pinned_to_a_version() -> None:
    images = [service["image"] for service in services().values() if "build" not in service]
    assert len(images) == 3
    assert all(re.fullmatch(r"[\w/]+:v?\d+\.\d+\.\d+", image) for image in images)


def test_every_password_is_asked_for_and_none_has_a_default() -> None:
    text = COMPOSE.read_text(encoding="utf-8") + OVERRIDE.read_text(encoding="utf-8")
    secrets = re.findall(r"\$\{(\w*(?:PASSWORD|TOKEN|SECRET)\w*)(:[-?])([^}]*)\}", text)
    assert {name for name, _, _ in secrets} == {"LASTGOOD_TOKEN", "GRAFANA_ADMIN_PASSWORD", "LASTGOOD_WEBHOOK_SECRET"}
    assert [name for name, how, value in secrets if how == ":-" and value] == []
    example = (ROOT / ".env.example").read_text(encoding="utf-8")
    assert not re.findall(r"^\w*(?:PASSWORD|TOKEN|SECRET)\w*=.+", example, re.MULTILINE)


def test_the_example_of_the_environment_names_every_variable_and_no_other() -> None:
    text = COMPOSE.read_text(encoding="utf-8") + OVERRIDE.read_text(encoding="utf-8")
    example = re.findall(r"^#?([A-Z_]+)=", (ROOT / ".env.example").read_text(encoding="utf-8"), re.MULTILINE)
    assert set(example) == set(re.findall(r"\$\{([A-Z_]+)[:}]", text))


def test_no_secret_is_committed_by_accident() -> None:
    ignored = subprocess.run(["git", "check-ignore", "-q", ".env"], cwd=ROOT, check=False, timeout=30)
    assert ignored.returncode == 0


@pytest.mark.parametrize("name", ["console", "trainer"])
def test_our_containers_run_commands_and_options_that_we_have(name: str) -> None:
    command, *arguments = services()[name]["command"]
    assert command in COMMANDS
    done = subprocess.run(
        [sys.executable, "-m", "lastgood_console.cli", command, "--help"],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    options = [argument for argument in arguments if argument.startswith("--")]
    assert options
    assert [option for option in options if not re.search(rf"{option}\b", done.stdout)] == []


def test_the_console_listens_where_the_others_look_for_it() -> None:
    console = services()["console"]
    assert console["command"][console["command"].index("--host") + 1] == "0.0.0.0"
    assert console["command"][console["command"].index("--port") + 1] == str(DEFAULT_PORT) == str(PORTS["console"])
    assert "LASTGOOD_TOKEN" in console["environment"]


def test_the_console_asks_the_prometheus_of_the_stack() -> None:
    command = services()["console"]["command"]
    assert command[command.index("--prometheus") + 1] == f"http://prometheus:{PORTS['prometheus']}"


def test_the_trainer_s_ranks_have_a_name_that_prometheus_can_look_up() -> None:
    trainer = services()["trainer"]
    assert trainer["hostname"] == trainer["environment"]["LASTGOOD_METRICS_ADDRESS"] == "trainer"
    assert trainer["profiles"] == ["demo"]


@pytest.mark.prometheus
@pytest.mark.parametrize(
    ("name", "programs"),
    [("prometheus", ("prometheus",)), ("alertmanager", ("prometheus-alertmanager", "alertmanager"))],
)
def test_every_flag_is_one_that_the_server_has(name: str, programs: tuple[str, ...]) -> None:
    flags = {argument.partition("=")[0] for argument in services()[name]["command"]}
    assert flags
    assert flags <= flags_of(*programs)


def test_every_setting_of_grafana_is_one_that_it_has() -> None:
    names = {name.removeprefix("GF_") for name in services()["grafana"]["environment"] if name.startswith("GF_")}
    assert names == GRAFANA_OPTIONS


def config_of(path: str, tmp_path: Path) -> Path:
    """Return a copy of a configuration whose absolute files stand where the container would have them."""
    text = (ROOT / path).read_text(encoding="utf-8")
    (tmp_path / "token").write_text("t")
    rules = ROOT / "alerts/lastgood_alerts/generated/prometheus/lastgood.rules.yml"
    text = text.replace("/etc/prometheus/lastgood.rules.yml", str(rules))
    copy = tmp_path / Path(path).name
    copy.write_text(text.replace("/run/secrets/lastgood_token", str(tmp_path / "token")), encoding="utf-8")
    return copy


@pytest.mark.prometheus
@pytest.mark.parametrize(
    "path", ["alerts/lastgood_alerts/generated/compose/prometheus.yml", "docs/deploy/prometheus-quiet.yml"]
)
def test_promtool_accepts_the_configuration_of_prometheus(path: str, tmp_path: Path) -> None:
    command = [program("promtool"), "check", "config", str(config_of(path, tmp_path))]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"SUCCESS: \d+ rules found", done.stdout)


@pytest.mark.prometheus
def test_amtool_accepts_the_configuration_of_alertmanager(tmp_path: Path) -> None:
    path = config_of("alerts/lastgood_alerts/generated/compose/alertmanager.yml", tmp_path)
    done = subprocess.run([program("amtool"), "check-config", str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_quiet_prometheus_differs_in_its_silence_only() -> None:
    loud = yaml.safe_load(
        (ROOT / "alerts/lastgood_alerts/generated/compose/prometheus.yml").read_text(encoding="utf-8")
    )
    quiet = yaml.safe_load((ROOT / "docs/deploy/prometheus-quiet.yml").read_text(encoding="utf-8"))
    assert loud.pop("alerting")
    assert quiet == loud


def hosts_in(value: Any) -> set[tuple[str, int]]:
    """Return every (host, port) that a configuration names."""
    text = json.dumps(value)
    return {(host, int(port)) for host, port in re.findall(r'"(?:http://)?([a-z]+):(\d+)(?:/[a-z/]*)?"', text)}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("alerts/lastgood_alerts/generated/compose/prometheus.yml", {"console", "alertmanager"}),
        ("alerts/lastgood_alerts/generated/compose/alertmanager.yml", {"console"}),
        ("alerts/lastgood_alerts/generated/grafana/alerting/contact-points.yaml", {"console"}),
        ("docs/deploy/grafana/datasources.yaml", {"prometheus", "alertmanager"}),
    ],
)
def test_a_configuration_names_services_of_the_stack_with_their_ports(path: str, expected: set[str]) -> None:
    found = hosts_in(yaml.safe_load((ROOT / path).read_text(encoding="utf-8")))
    assert found == {(name, PORTS[name]) for name in expected}


def test_every_file_that_a_configuration_reads_is_mounted_there() -> None:
    for name in ("prometheus", "alertmanager"):
        targets = {target: source for source, target, _ in mounts(services()[name])}
        (place,) = CONFIG_PLACES & set(targets)
        assert f"--config.file={place}" in services()[name]["command"]
        config = yaml.safe_load((ROOT / targets[place]).read_text(encoding="utf-8"))
        assert set(config.get("rule_files", [])) <= set(targets)
        assert set(re.findall(r'"(/run/secrets/\w+)"', json.dumps(config))) <= {
            f"/run/secrets/{secret}" for secret in services()[name]["secrets"]
        }


def test_grafana_finds_data_source_and_dashboards_where_they_are_mounted() -> None:
    targets = {target: ROOT / source for source, target, _ in mounts(services()["grafana"])}
    sources = yaml.safe_load(targets["/etc/grafana/provisioning/datasources/lastgood.yaml"].read_text(encoding="utf-8"))
    assert "lastgood-prometheus" in {source["uid"] for source in sources["datasources"]}
    providers = yaml.safe_load(
        targets["/etc/grafana/provisioning/dashboards/lastgood.yaml"].read_text(encoding="utf-8")
    )
    (provider,) = providers["providers"]
    assert provider["folder"] == provider["folderUid"] == "lastgood"
    boards = [*targets[provider["options"]["path"]].glob("*.json")]
    assert {json.loads(board.read_text(encoding="utf-8"))["uid"] for board in boards} == {
        "lastgood-fleet", "lastgood-run", "lastgood-node", "lastgood-checkpoints"
    }  # fmt: skip


# the Dockerfile


def instructions() -> list[tuple[str, str]]:
    text = re.sub(r"\\\n", " ", (ROOT / "Dockerfile").read_text(encoding="utf-8"))
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in lines)]


def test_the_dockerfile_has_the_targets_that_compose_builds() -> None:
    stages = {rest.rpartition(" AS ")[2] for word, rest in instructions() if word == "FROM"}
    wanted = {service["build"]["target"] for service in services().values() if "build" in service}
    assert wanted == {"console", "trainer"}
    assert wanted <= stages


def test_the_dockerfile_copies_what_exists_and_the_ignore_file_lets_through() -> None:
    copied = [rest.split()[:-1] for word, rest in instructions() if word == "COPY" and "--from" not in rest]
    sources = {source for group in copied for source in group} | {"constraints.txt"}
    ignore = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert [source for source in sources if not (ROOT / source).exists()] == []
    assert {line.removeprefix("!") for line in ignore if line.startswith("!")} == sources


def test_the_wheel_can_be_built_from_what_the_dockerfile_copies() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    packages = re.search(r"^packages = \[(.*)\]", project, re.MULTILINE)
    assert packages
    folders = {part.strip(' "').partition("/")[0] for part in packages[1].split(",")}
    copied = {part for word, rest in instructions() if word == "COPY" for part in rest.split()}
    assert folders | {"pyproject.toml", "README.md", "LICENSE"} <= copied


@pytest.mark.parametrize("target", ["console", "trainer"])
def test_an_image_ends_as_the_user_of_compose_and_owns_its_volumes(target: str) -> None:
    stage = ""
    last: dict[tuple[str, str], str] = {}
    for word, rest in instructions():
        stage = rest.rpartition(" AS ")[2] if word == "FROM" else stage
        last[stage, word] = rest
    user = last[target, "USER"]
    assert user == services()[target]["user"]
    places = {target for _, target, _ in mounts(services()["console"])}
    owned = next(rest for word, rest in instructions() if word == "RUN" and "chown" in rest)
    assert all(f" {place}" in owned.partition("chown")[2] for place in places)
    assert user in owned


def test_the_images_start_our_command_line() -> None:
    entry = [json.loads(rest) for word, rest in instructions() if word == "ENTRYPOINT"]
    assert entry == [["lastgood"]]
    commands = [json.loads(rest) for word, rest in instructions() if word == "CMD"]
    assert {command[0] for command in commands} == {"console", "demo"}
    assert all(command[0] in COMMANDS for command in commands)


def test_the_demo_writes_its_run_where_the_console_reads() -> None:
    assert services()["trainer"]["working_dir"] == "/"  # a demo writes to runs/ below it
    assert mounts(services()["trainer"])[0][:2] == ("runs", "/runs")
    assert "/runs" in services()["console"]["command"]


def test_prometheus_scrapes_the_ledger_and_the_ranks_and_keeps_our_labels() -> None:
    config = yaml.safe_load(
        (ROOT / "alerts/lastgood_alerts/generated/compose/prometheus.yml").read_text(encoding="utf-8")
    )
    assert {job["job_name"] for job in config["scrape_configs"]} == {"lastgood-ledger", "lastgood-ranks"}
    assert all(job["honor_labels"] for job in config["scrape_configs"])
