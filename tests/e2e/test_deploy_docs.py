"""docs/deploy.md and its files: manifests by schema, scripts by bash and sbatch's options, Grafana's files by lint."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from lastgood_alerts.prometheus import COMPONENT
from lastgood_console.cli import COMMANDS

Json = dict[str, Any]
ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "docs/deploy"
KUBERNETES = DEPLOY / "kubernetes"
RULES = ROOT / "alerts/lastgood_alerts/generated/kubernetes/prometheusrule.yaml"
VERSIONS = ("1.28", "1.31", "1.34")

DURATION = {"type": "string", "pattern": r"^(0|(([0-9]+)h)?(([0-9]+)m)?(([0-9]+)s)?(([0-9]+)ms)?)$"}
TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}
SELECTOR = {"type": "object", "required": ["matchLabels"], "properties": {"matchLabels": TEXTS},
            "additionalProperties": False}  # fmt: skip
ENDPOINT = {
    "type": "object", "required": ["port", "honorLabels"], "additionalProperties": False,
    "properties": {"port": {"type": "string", "pattern": "^[a-z0-9-]{1,15}$"}, "path": {"type": "string"},
                   "interval": DURATION, "scrapeTimeout": DURATION, "honorLabels": {"const": True}},
}  # fmt: skip
RULE = {
    "type": "object", "required": ["expr"], "additionalProperties": False,
    "oneOf": [{"required": ["alert"]}, {"required": ["record"]}],
    "properties": {"alert": {"type": "string"}, "record": {"type": "string"}, "expr": {"type": "string"},
                   "for": DURATION, "keep_firing_for": DURATION | {"minLength": 1}, "labels": TEXTS,
                   "annotations": TEXTS},
}  # fmt: skip
GROUP = {
    "type": "object", "required": ["name", "rules"], "additionalProperties": False,
    "properties": {"name": {"type": "string", "minLength": 1}, "interval": DURATION,
                   "rules": {"type": "array", "items": RULE, "minItems": 1}},
}  # fmt: skip
SPECS: dict[str, Json] = {
    "PodMonitor": {"required": ["selector", "podMetricsEndpoints"], "additionalProperties": False,
                   "properties": {"selector": SELECTOR, "podMetricsEndpoints": {"type": "array", "items": ENDPOINT}}},
    "ServiceMonitor": {"required": ["selector", "endpoints"], "additionalProperties": False,
                       "properties": {"selector": SELECTOR, "endpoints": {"type": "array", "items": ENDPOINT}}},
    "PrometheusRule": {"required": ["groups"], "additionalProperties": False,
                       "properties": {"groups": {"type": "array", "items": GROUP}}},
}  # fmt: skip
"""What the operator's resource definitions (monitoring.coreos.com/v1) say of the keys that are used here."""

SBATCH = {
    "--job-name": r"[\w.-]+", "--nodes": r"\d+(-\d+)?", "--ntasks-per-node": r"\d+", "--cpus-per-task": r"\d+",
    "--gpus-per-node": r"(\w+:)?\d+", "--time": r"(\d+-)?\d+(:\d+){0,2}", "--requeue": "",
    "--open-mode": "append|truncate", "--output": r"[\w%./-]+",
}  # fmt: skip
"""Option of sbatch -> what its value looks like, after its manual."""


def documents(path: Path) -> list[Json]:
    return [*yaml.safe_load_all(path.read_text(encoding="utf-8"))]


MANIFESTS = [document for path in (*sorted(KUBERNETES.glob("*.yaml")), RULES) for document in documents(path)]
NAMES = [f"{document['kind']}-{document['metadata']['name']}" for document in MANIFESTS]


def of_the_operator(manifest: Json) -> bool:
    return str(manifest["apiVersion"]) == "monitoring.coreos.com/v1"


def the(kind: str) -> Json:
    (found,) = [manifest for manifest in MANIFESTS if manifest["kind"] == kind]
    return found


@pytest.mark.parametrize("manifest", MANIFESTS, ids=NAMES)
def test_a_manifest_follows_its_schema(manifest: Json) -> None:
    if of_the_operator(manifest):
        jsonschema.validate(manifest["spec"], {"type": "object", **SPECS[manifest["kind"]]})
        return
    for version in VERSIONS:
        kubernetes_validate.validate(manifest, version, strict=True)


@pytest.mark.parametrize("kind", SPECS)
def test_the_schema_of_the_operator_s_resources_sees_a_wrong_key(kind: str) -> None:
    spec = json.loads(
        json.dumps(the(kind)["spec"]).replace('"honorLabels"', '"honourLabels"').replace('"expr"', '"exp"')
    )
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(spec, SPECS[kind])


@pytest.mark.parametrize("manifest", MANIFESTS, ids=NAMES)
def test_a_name_is_one_that_kubernetes_takes(manifest: Json) -> None:
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", manifest["metadata"]["name"])


def test_the_console_is_one_replica_that_is_not_root_and_probed() -> None:
    deployment = the("Deployment")["spec"]
    pod = deployment["template"]["spec"]
    (container,) = pod["containers"]
    assert (deployment["replicas"], deployment["strategy"]) == (1, {"type": "Recreate"})
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    probes = [container[name]["httpGet"] for name in ("startupProbe", "readinessProbe", "livenessProbe")]
    assert probes == [{"path": "/healthz", "port": "http"}] * 3
    assert container["args"][0] in COMMANDS


def test_what_selects_finds_what_it_selects() -> None:
    deployment, job = the("Deployment")["spec"], the("Job")["spec"]
    labels = deployment["template"]["metadata"]["labels"]
    services = {manifest["metadata"]["name"]: manifest for manifest in MANIFESTS if manifest["kind"] == "Service"}
    assert deployment["selector"]["matchLabels"].items() <= labels.items()
    assert services["lastgood-console"]["spec"]["selector"].items() <= labels.items()
    monitor = the("ServiceMonitor")["spec"]["selector"]["matchLabels"]
    assert monitor.items() <= services["lastgood-console"]["metadata"]["labels"].items()
    ranks = the("PodMonitor")["spec"]["selector"]["matchLabels"]
    assert ranks.items() <= job["template"]["metadata"]["labels"].items()


def test_every_rank_of_the_training_pod_is_scraped() -> None:
    (container,) = the("Job")["spec"]["template"]["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    endpoints = [endpoint["port"] for endpoint in the("PodMonitor")["spec"]["podMetricsEndpoints"]]
    assert endpoints == [*ports]
    assert [*ports.values()] == [*range(9470, 9470 + len(ports))]
    assert f"--nproc-per-node={len(ports)}" in container["args"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == len(ports)


def test_every_mount_and_secret_of_a_pod_is_declared() -> None:
    for pod in (the("Deployment")["spec"]["template"]["spec"], the("Job")["spec"]["template"]["spec"]):
        volumes = {volume["name"] for volume in pod["volumes"]}
        (container,) = pod["containers"]
        assert {mount["name"] for mount in container["volumeMounts"]} == volumes
        assert "lastgood-token" in json.dumps(container["env"])
    text = (ROOT / "docs/deploy.md").read_text(encoding="utf-8")
    assert "kubectl create secret generic lastgood-token --from-literal=token=" in text


# Slurm


def script() -> str:
    return (DEPLOY / "train.sbatch").read_text(encoding="utf-8")


def test_bash_reads_the_batch_script() -> None:
    done = subprocess.run(["bash", "-n", str(DEPLOY / "train.sbatch")], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_option_of_sbatch_exists_and_comes_before_the_first_command() -> None:
    lines = script().splitlines()
    options = [line.removeprefix("#SBATCH ").partition("=") for line in lines if line.startswith("#SBATCH")]
    assert options
    for name, _, value in options:
        assert re.fullmatch(SBATCH[name], value), f"{name}={value}"
    last = max(number for number, line in enumerate(lines) if line.startswith("#SBATCH"))
    assert lines[0] == "#!/bin/bash"
    assert all(line.startswith("#") for line in lines[:last])  # sbatch reads no option behind a command


def test_the_batch_script_starts_one_agent_per_node_on_the_first_node_s_port(tmp_path: Path) -> None:
    """Run the script with programs that only say how they were called."""
    for name, answer in (("srun", 'printf "%s\\n" "$@"; printf "run_dir=%s\\n" "$LASTGOOD_RUN_DIR"'),
                         ("scontrol", 'printf "node-a\\nnode-b\\n"')):  # fmt: skip
        program = tmp_path / name
        program.write_text(f"#!/bin/bash\n{answer}\n")
        program.chmod(0o755)
    environ = {
        "PATH": f"{tmp_path}:/usr/bin:/bin", "HOME": str(tmp_path), "RUN_DIR": str(tmp_path / "run"),
        "SLURM_JOB_NAME": "llama-7b", "SLURM_JOB_NODELIST": "node-[a-b]", "SLURM_JOB_NUM_NODES": "2",
        "SLURM_GPUS_ON_NODE": "8", "SLURM_JOB_ID": "7",
    }  # fmt: skip
    done = subprocess.run(
        ["bash", str(DEPLOY / "train.sbatch")], env=environ, capture_output=True, text=True, check=True, timeout=30
    )
    assert done.stdout.splitlines() == [
        "--kill-on-bad-exit=1", "torchrun", "--nnodes=2", "--nproc-per-node=8", "--rdzv-backend=c10d",
        "--rdzv-endpoint=node-a:29500", "--rdzv-id=7", "train.py", f"run_dir={tmp_path / 'run'}",
    ]  # fmt: skip
    assert (tmp_path / "run").is_dir()


# Grafana's files

FILE_KEYS = {"apiVersion", "contactPoints", "policies"}
RECEIVER_KEYS = {"uid", "type", "settings", "disableResolveMessage"}
SETTINGS = {
    "slack": {"url", "recipient", "token", "title", "text", "username", "icon_emoji", "mentionChannel"},
    "email": {"addresses", "singleEmail", "message", "subject"},
}
ROUTE_KEYS = {
    "orgId", "receiver", "group_by", "group_wait", "group_interval", "repeat_interval", "object_matchers", "continue",
    "routes",
}  # fmt: skip


def people() -> Json:
    (found,) = documents(DEPLOY / "grafana/people.yaml")
    return found


def test_the_examples_of_contact_points_have_only_keys_that_grafana_reads() -> None:
    assert set(people()) == FILE_KEYS
    for point in people()["contactPoints"]:
        assert set(point) == {"orgId", "name", "receivers"}
        for receiver in point["receivers"]:
            assert set(receiver) == RECEIVER_KEYS
            assert set(receiver["settings"]) <= SETTINGS[receiver["type"]]
            assert re.fullmatch(r"[A-Za-z0-9_-]{1,40}", receiver["uid"])


def test_slack_and_e_mail_are_both_shown() -> None:
    kinds = {receiver["type"] for point in people()["contactPoints"] for receiver in point["receivers"]}
    assert kinds == {"slack", "email"}


def test_no_secret_is_in_the_examples_and_no_dollar_is_expanded_by_accident() -> None:
    text = (DEPLOY / "grafana/people.yaml").read_text(encoding="utf-8")
    code = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    assert re.findall(r"\$.{0,25}", code) == ["${LASTGOOD_SLACK_WEBHOOK}"]
    assert "hooks.slack.com" not in code


def routes(route: Json) -> Iterator[Json]:
    yield route
    for child in route.get("routes", []):
        yield from routes(child)


def test_the_routes_of_the_examples_lead_to_their_contact_points() -> None:
    names = {point["name"] for point in people()["contactPoints"]}
    (tree,) = people()["policies"]
    for route in routes(tree):
        assert set(route) <= ROUTE_KEYS
        assert route["receiver"] in names
    for child in tree["routes"]:
        assert ["component", "=", COMPONENT] in child["object_matchers"]
        assert all(len(matcher) == 3 and matcher[1] in ("=", "!=", "=~", "!~") for matcher in child["object_matchers"])


@pytest.mark.parametrize("name", ["datasources.yaml", "dashboards.yaml"])
def test_grafana_s_files_are_of_the_version_that_it_reads(name: str) -> None:
    (content,) = documents(DEPLOY / "grafana" / name)
    assert content["apiVersion"] == 1


# the page


def test_every_file_beside_the_page_is_named_on_it_or_by_compose() -> None:
    named = (ROOT / "docs/deploy.md").read_text(encoding="utf-8") + (ROOT / "docker-compose.yml").read_text(
        encoding="utf-8"
    )
    named += (DEPLOY / "compose-grafana-alerts.yml").read_text(encoding="utf-8")
    files = [path.relative_to(ROOT / "docs").as_posix() for path in DEPLOY.rglob("*") if path.is_file()]
    assert [name for name in files if name not in named] == []


def test_the_page_says_what_has_not_been_run() -> None:
    text = " ".join((ROOT / "docs/deploy.md").read_text(encoding="utf-8").split())
    assert (
        "no file of this page has met a Docker engine, a Kubernetes cluster, a Slurm controller or a real Grafana"
        in text
    )


def test_the_yaml_on_the_page_can_be_read() -> None:
    blocks = re.findall(r"^```yaml\n(.*?)^```", (ROOT / "docs/deploy.md").read_text(encoding="utf-8"), re.M | re.S)
    assert [block for block in blocks if not isinstance(yaml.safe_load(block), dict)] == []
