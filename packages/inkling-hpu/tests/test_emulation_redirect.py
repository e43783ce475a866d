"""An "hpu" device is the CPU, in every spelling and in every thread; torch.device says what it was
given. Not here: what happens in child processes (test_emulation_installer.py)."""

import threading

import pytest
import torch

from inkling_hpu.emulation.redirect import HpuToCpu

HPU = torch.device("hpu")
SPELLINGS = {
    "factory-text": lambda: torch.zeros(3, device="hpu"),
    "factory-index": lambda: torch.zeros(3, device="hpu:1"),
    "factory-device": lambda: torch.empty(3, device=HPU),
    "like": lambda: torch.ones_like(torch.ones(3), device=HPU),
    "to-text": lambda: torch.ones(3).to("hpu"),
    "to-device": lambda: torch.ones(3).to(HPU, torch.bfloat16),
    "to-keyword": lambda: torch.ones(3).to(device="hpu"),
    "module": lambda: torch.nn.Linear(3, 3).to("hpu").weight,
    "tensor": lambda: torch.tensor([1, 2], device="hpu"),
    "arange": lambda: torch.arange(0, 5, device=HPU),
}


@pytest.mark.parametrize("make", SPELLINGS.values(), ids=SPELLINGS)
def test_every_spelling_lands_on_the_cpu(make):
    with HpuToCpu():
        assert make().device.type == "cpu"


@pytest.mark.parametrize("spelling", ["hpu", "hpu:0"])
def test_the_default_device_is_redirected(spelling):
    with HpuToCpu(), torch.device(spelling):
        assert torch.zeros(2).device.type == "cpu"
        assert torch.arange(3).device.type == "cpu"


def test_without_the_mode_there_is_no_hpu():
    with pytest.raises((RuntimeError, NotImplementedError, ModuleNotFoundError)):
        torch.zeros(3, device="hpu")


def test_the_device_object_keeps_its_name():
    # vLLM's configuration compares it with "cpu" and would choose another attention back end.
    with HpuToCpu():
        assert torch.device("hpu").type == "hpu"


def test_other_devices_and_strings_are_left_alone():
    with HpuToCpu():
        assert torch.zeros(2, device="meta").device.type == "meta"
        product = torch.einsum("hp,pu->hu", torch.ones(1, 2), torch.ones(2, 3))
    assert product.tolist() == [[2.0, 2.0, 2.0]]


def test_new_threads_are_redirected(monkeypatch):
    from inkling_hpu.emulation.threads import push_in_new_threads

    # monkeypatch puts the original back after the test
    monkeypatch.setattr(threading.Thread, "_bootstrap_inner", threading.Thread._bootstrap_inner)
    push_in_new_threads()
    seen = []
    thread = threading.Thread(target=lambda: seen.append(torch.zeros(1, device="hpu").device.type))
    thread.start()
    thread.join()
    assert seen == ["cpu"]
