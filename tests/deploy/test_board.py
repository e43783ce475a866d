"""The board and the compose file, as far as they can be judged without Grafana and Docker.

`nox -s board` asks every query of a Prometheus over a real server; here promtool reads them, where
it is installed. That every metric exists is tests/contract/test_reference_pages.py's.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess

import board
import pytest
import yaml

DATASOURCES = board.GAUDI / "grafana" / "provisioning" / "datasources" / "prometheus.yaml"
PROVIDERS = board.GAUDI / "grafana" / "provisioning" / "dashboards" / "inkling.yaml"
COMPOSE = yaml.safe_load((board.GAUDI / "compose.yaml").read_text())
ASKED_FOR = {  # what the board has to show -> a metric that says it
    "queue": "vllm:num_requests_waiting",
    "time to first token": "vllm:time_to_first_token_seconds_bucket",
    "inter-token time": "vllm:inter_token_latency_seconds_bucket",
    "prefix hits": "vllm:prefix_cache_hits_total",
    "pool": "vllm:kv_cache_usage_perc",
    "conv rows": "inkling:conv_rows",
    "warm-up": "inkling:warmup_seconds",
    "graphs": "inkling:warmup_graphs",
}


def test_everything_asked_for_is_shown():
    shown = set().union(*(board.names(query) for _, query in board.queries()))
    assert set(ASKED_FOR.values()) <= shown


def test_panels_are_whole_and_do_not_overlap():
    (source,) = yaml.safe_load(DATASOURCES.read_text())["datasources"]
    cells: set[tuple[int, int]] = set()
    ids = [panel["id"] for panel in board.panels()]
    assert len(ids) == len(set(ids))
    for panel in board.panels():
        assert panel["title"] and panel["description"] and panel["type"] in ("timeseries", "stat")
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        mine = {
            (place["x"] + dx, place["y"] + dy)
            for dx in range(place["w"])
            for dy in range(place["h"])
        }
        assert not mine & cells, f"{panel['title']} lies over another panel"
        cells |= mine
        for target in panel["targets"]:
            assert target["datasource"] == {"type": source["type"], "uid": source["uid"]}
            assert target["expr"] and target["legendFormat"]
        letters = [target["refId"] for target in panel["targets"]]
        assert len(letters) == len(set(letters))


def test_prometheus_reads_every_query(tmp_path):
    if shutil.which("promtool") is None:
        pytest.skip("NO PROMTOOL: apt-get install prometheus; the queries are not read")
    rules = [{"record": f"q{n}", "expr": query} for n, (_, query) in enumerate(board.queries())]
    file = tmp_path / "rules.yaml"
    file.write_text(json.dumps({"groups": [{"name": "board", "rules": rules}]}))
    done = subprocess.run(["promtool", "check", "rules", file], capture_output=True, text=True)
    assert done.returncode == 0 and f"{len(rules)} rules found" in done.stdout, done.stderr
    config = board.GAUDI / "prometheus.yml"
    checked = subprocess.run(
        ["promtool", "check", "config", config], capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stderr


def test_files_that_compose_mounts_exist_and_ports_stay_on_loopback():
    for name, service in COMPOSE["services"].items():
        for volume in service["volumes"]:
            source = re.split(r":(?=/)", volume)[0]
            if source.startswith("./"):
                assert (board.GAUDI / source).exists(), f"{name}: {source}"
            else:
                assert source in COMPOSE["volumes"] or source.startswith("${MODEL_DIR:?")
        assert all(port.startswith("127.0.0.1:") for port in service["ports"]), name
    build = COMPOSE["services"]["inkling"]["build"]
    assert (board.GAUDI / build["context"] / build["dockerfile"]).is_file()


def test_prometheus_and_grafana_find_what_they_watch():
    scraped = yaml.safe_load((board.GAUDI / "prometheus.yml").read_text())["scrape_configs"]
    (target,) = scraped[0]["static_configs"][0]["targets"]
    host, _, port = target.partition(":")
    server = COMPOSE["services"][host]
    assert f"--port={port}" in server["command"] and "--host=0.0.0.0" in server["command"]
    (source,) = yaml.safe_load(DATASOURCES.read_text())["datasources"]
    assert source["url"].removeprefix("http://").partition(":")[0] in COMPOSE["services"]
    (provider,) = yaml.safe_load(PROVIDERS.read_text())["providers"]
    mounts = COMPOSE["services"]["grafana"]["volumes"]
    assert f"./grafana/dashboards:{provider['options']['path']}:ro" in mounts


def test_the_launch_is_one_that_is_served():
    """None of our refusals, for Inkling-Small: read as the doctor reads vLLM's arguments."""
    import torch

    from inkling_core.config import PRESETS
    from inkling_core.doctor.settings import DoctorSettings
    from inkling_core.doctor.subject import Machine, Subject
    from inkling_hpu.refusals import Deployment, reasons

    command = COMPOSE["services"]["inkling"]["command"]
    subject = Subject.of(DoctorSettings(arguments=" ".join(command)), Machine())
    asked = subject.settings
    deployment = Deployment(
        getattr(torch, asked.dtype),
        asked.block_size,
        asked.max_model_len or 0,
        tp_size=asked.tensor_parallel,
        num_blocks=subject.more["num_gpu_blocks_override"],
    )
    assert reasons(PRESETS["inkling_small"], deployment) == []
    assert asked.checkpoint == "/model" and set(subject.more) == {"num_gpu_blocks_override"}


def test_what_the_dockerfile_copies_exists_and_what_never_ran_says_so():
    text = (board.GAUDI / "Dockerfile").read_text()
    copied = re.findall(r"deploy/gaudi/[\w.]+", re.findall(r"^COPY deploy.*$", text, re.M)[0])
    assert copied and all((board.ROOT / name).is_file() for name in copied)
    for name in ("Dockerfile", "compose.yaml", "install.sh", "serve.sh", "prometheus.yml"):
        assert re.search(r"never\s*#?\s*run", (board.GAUDI / name).read_text(), re.IGNORECASE), name
    for name in (DATASOURCES, PROVIDERS):
        assert "Never run" in name.read_text()
