"""`inkling buckets` and the file that vllm-gaudi reads."""

import contextlib
import io
import json
import re
from pathlib import Path

import pytest

from inkling_core.cli.main import main
from inkling_hpu.buckets import file
from inkling_hpu.buckets.generate import Buckets, generate
from inkling_hpu.buckets.profile import Profile

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "backends" / "hpu-buckets.md"
SMALL = Profile(4096, max_num_seqs=4, chunk=512)


def test_a_file_that_is_written_is_read_back(tmp_path):
    path = tmp_path / "buckets.txt"
    path.write_text("# a comment\n\n" + file.text(generate(SMALL)))
    assert file.read(path) == generate(SMALL)


@pytest.mark.parametrize(
    "line",
    [
        "\ufffd",
        "(1, 256)",
        "(1, 256, 'x')",
        "1, 2",
        "(True, 1, 1)",
        "__import__('os')",
        "(1,",
        "[1,2,3]",
        "(1, {[]: 2}, 3)",
        "(1, -256, 0)",
        "([], 1, 2)",
        "(1, [256, [512]], 0)",
        "(1, range(8), 0)",
        "(1, range(8, 1), 0)",
        "(1, range(1, 8, 0), 0)",
        "(1, list(range(1, 8)), 0)",
        "-" * 50_000 + "1",
    ],
)
def test_a_line_that_is_no_bucket_is_named(line, tmp_path):
    path = tmp_path / "buckets.txt"
    path.write_text(f"(1, 256, 0)\n{line}\n")
    with pytest.raises(ValueError, match=re.escape(f"line 2: {line[:80]!r} is no (requests")):
        file.read(path)


def test_lists_and_ranges_stand_for_each_of_their_values(tmp_path):
    path = tmp_path / "buckets.txt"
    path.write_text("(1, [512, 256], range(4, -1, -2))\n([1, 2], 1, range(64, 66))\n")
    assert file.read(path) == Buckets(
        ((1, 256, 0), (1, 256, 2), (1, 256, 4), (1, 512, 0), (1, 512, 2), (1, 512, 4)),
        ((1, 1, 64), (1, 1, 65), (2, 1, 64), (2, 1, 65)),
    )


@pytest.mark.parametrize(
    "line", [f"(1, 256, range(0, {10**30}))", "(range(1, 102), 1, range(1, 101))"]
)
def test_more_buckets_than_anybody_warms_are_refused(line, tmp_path):
    path = tmp_path / "buckets.txt"
    path.write_text(line)
    with pytest.raises(ValueError, match="line 1: more than 10000 buckets"):
        file.read(path)


def test_a_file_without_end_is_not_read(tmp_path):
    path = tmp_path / "buckets.txt"
    path.write_bytes(b"#" * (file.MOST_BYTES + 1))
    with pytest.raises(ValueError, match="more than 1048576 bytes"):
        file.read(path)


CHOICES = ["VLLM_PROMPT_QUERY_BUCKET_MAX", "VLLM_BUCKETING_STRATEGY", file.VARIABLE]


@pytest.mark.parametrize("variable", CHOICES)
def test_what_an_operator_chose_stays(variable, tmp_path):
    environ = {variable: "own"}
    assert file.put_in_place(SMALL, tmp_path / "inkling", environ) is None
    assert environ == {variable: "own"} and not list(tmp_path.iterdir())


def test_another_profile_has_another_file(tmp_path):
    environ = {"VLLM_SKIP_WARMUP": "true"}
    first = file.put_in_place(SMALL, tmp_path, environ)
    again = file.put_in_place(SMALL, tmp_path, environ)
    other = file.put_in_place(Profile(8192, max_num_seqs=4, chunk=512), tmp_path, environ)
    assert first == again != other and environ[file.VARIABLE] == str(other)
    assert file.read(first) == generate(SMALL)
    assert sorted(tmp_path.iterdir()) == sorted([first, other])


def test_a_list_with_a_gap_ends_in_status_1_and_names_the_shape(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    whole = generate(SMALL)
    path = tmp_path / "buckets.txt"
    path.write_text(file.text(Buckets(whole.prefill[:-1], whole.decode)))
    asked = ["buckets", "max_model_len=[4096]", "max_num_seqs=4", "chunk=512", f"check={path}"]
    assert main([*asked, "format=json"]) == 1
    (found,) = json.loads(capsys.readouterr().out)
    assert found["prefill"]["missing"] and not found["decode"]["missing"]
    assert main(asked) == 1
    assert "first (" in capsys.readouterr().out


def test_a_bucket_that_vllm_gaudi_drops_covers_nothing(tmp_path, capsys):
    whole = generate(SMALL)
    longer = [(b, 520 if q == 512 else q, blocks) for b, q, blocks in whole.prefill]
    path = tmp_path / "buckets.txt"
    path.write_text(file.text(Buckets(tuple(longer), whole.decode)))
    asked = ["buckets", "max_model_len=[4096]", "max_num_seqs=4", "chunk=512", f"check={path}"]
    assert main([*asked, "format=json"]) == 1
    (found,) = json.loads(capsys.readouterr().out)
    assert found["prefill"]["missing"]
    assert found["graphs"]["prefill"] == sum(q < 512 for _, q, _ in whole.prefill)


def test_what_is_printed_as_a_file_is_found_whole(tmp_path, capsys):
    assert main(["buckets", "max_model_len=[16384]", "format=file"]) == 0
    path = tmp_path / "buckets.txt"
    path.write_text(capsys.readouterr().out)
    assert main(["buckets", "max_model_len=[16384]", f"check={path}"]) == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["chunk=0"], "chunk=0 must be at least 2"),
        (["padding_percent=1", "max_model_len=[70000]"], "keeps the padding within 1 %"),
        (["format=file"], "format=file needs one max_model_len"),
        (["max_model_len=[]"], "names no length"),
        (["seconds_per_graph=0"], "must be above 0"),
        (["check=nowhere.txt"], "nowhere.txt is no file"),
        (["check=/dev/zero"], "/dev/zero is no file"),
        (["chunk=1"], "chunk=1 must be at least 2"),
    ],
)
def test_mistakes_are_told_in_a_line(words, said, capsys):
    assert main(["buckets", *words]) != 0
    shown = capsys.readouterr().err
    assert said in shown and "Traceback" not in shown


def table():
    """The table of the document, from what the command prints as JSON."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert main(["buckets", "format=json"]) == 0
    lines = [
        "| context | prefill graphs | decode graphs | warm-up at 13.8 s a graph | worst padding of "
        "query tokens, cached blocks, decode requests, decode blocks |",
        "|---:|---:|---:|---:|---|",
    ]
    for one in json.loads(out.getvalue()):
        assert one["ok"]
        worst = [one[p]["worst_padding"][d]["percent"] for p in PHASES for d in ("rows", "blocks")]
        graphs = " | ".join(str(one["graphs"][phase]) for phase in PHASES)
        padding = ", ".join(f"{percent:g} %" for percent in worst)
        lines.append(
            f"| {one['max_model_len']:,} | {graphs} | {one['warm_up_minutes']:g} min | {padding} |"
        )
    return "\n".join(lines)


PHASES = ("prefill", "decode")
COUNTED = re.compile(r"(<!-- counted: begin -->\n).*?(\n<!-- counted: end -->)", re.DOTALL)


def test_the_document_holds_what_the_command_prints():
    assert table() in DOCUMENT.read_text(), f"write it anew: python {__file__}"


if __name__ == "__main__":
    DOCUMENT.write_text(COUNTED.sub(rf"\g<1>{table()}\g<2>", DOCUMENT.read_text()))
