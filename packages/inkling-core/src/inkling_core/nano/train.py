"""Trains inkling-nano on a CPU.

`python -m inkling_core.nano.train out=DIR [seed=0] [until=N] [threads=N] [compile=1]`

What it is: the loop. Step n's batch, length and rate depend on (seed, n) only, and the state file
holds weights and optimiser state, so a stopped run resumes where it was. (Sums of bfloat16 products
depend on the number of threads, so the weights are the same on the same machine only.)
What it is not: the writer of the checkpoint (export.py) or its judge (`inkling eval`).

For speed start it with MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=100000000000
MALLOC_TOP_PAD_=1000000000 (fresh tensors then cost no page faults) and leave the cores to it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from inkling_core.nano import schedule
from inkling_core.nano.geometry import initial_weights
from inkling_core.nano.optimizer import Optimizer
from inkling_core.nano.rows import batch
from inkling_core.nano.training_model import forward, fuse_pointwise, logits

SAVE_EVERY = 50
LOG_EVERY = 10
BIAS_RATE = 1e-3  # step of the routers' selection bias towards even loads
FLOAT32_PARTS = ("mlp.gate.",)  # the router computes in float32


class Trainer:
    """Weights, optimiser and step counter; `out` receives state.safetensors and log.jsonl."""

    def __init__(self, out: Path, seed: int) -> None:
        self.out, self.seed, self.step = out, seed, 0
        self.weights = initial_weights(seed)
        for name, weight in self.weights.items():
            weight.requires_grad_(not name.endswith("gate.bias"))
        self.optimizer = Optimizer(self.weights)
        self.biases = [w for n, w in self.weights.items() if n.endswith("gate.bias")]

    @property
    def state_file(self) -> Path:
        return self.out / "state.safetensors"

    def save(self) -> None:
        """Writes the state beside the old one and then replaces it, so a kill leaves one whole."""
        tensors = {f"weight.{n}": w.detach() for n, w in self.weights.items()}
        tensors |= {f"state.{n}": t for n, t in self.optimizer.state.items()}
        fresh = self.state_file.with_suffix(".part")
        save_file(tensors, fresh, {"step": str(self.step), "seed": str(self.seed)})
        os.replace(fresh, self.state_file)

    def resume(self) -> bool:
        """Loads the state file if there is one; refuses one of another seed."""
        if not self.state_file.exists():
            return False
        with safe_open(self.state_file, "pt") as file:
            meta = file.metadata()
        if meta["seed"] != str(self.seed):
            raise SystemExit(
                f"{self.state_file} was made with seed={meta['seed']}, not seed={self.seed}: "
                "pass that seed or another out="
            )
        tensors = load_file(self.state_file)
        with torch.no_grad():
            for name, weight in self.weights.items():
                weight.copy_(tensors[f"weight.{name}"])
            for name, state in self.optimizer.state.items():
                state.copy_(tensors[f"state.{name}"])
        self.step = int(meta["step"])
        return True

    def train_step(self) -> dict[str, float]:
        """One update; returns what the log shows. Accuracy is that of the answer tokens."""
        length = schedule.row_length(self.step, self.seed)
        rows = schedule.TOKENS_PER_STEP // length
        seed = f"row/{self.seed}/{self.step}"
        ids, mask = batch(seed, length, rows, schedule.phase_of(self.step).mix)
        ids_BL, said_BL = torch.tensor(ids), torch.tensor(mask, dtype=torch.bool)
        cast = {
            name: w if any(part in name for part in FLOAT32_PARTS) else w.bfloat16()
            for name, w in self.weights.items()
        }
        hidden, loads = forward(cast, ids_BL)
        said = said_BL[:, 1:]
        scores = logits(cast, hidden[:, :-1][said]).float()
        targets = ids_BL[:, 1:][said]
        loss = F.cross_entropy(scores, targets)
        loss.backward()
        share = schedule.rate(self.step)
        self.step += 1
        norm = self.optimizer.step(self.step, share * schedule.MUON_LR, share * schedule.ADAM_LR)
        for weight in self.weights.values():
            weight.grad = None
        self._balance(loads)
        right = scores.argmax(-1) == targets
        return {"length": length, "loss": loss.item(), "norm": norm, **accuracies(right, targets)}

    def _balance(self, loads: Sequence[Tensor]) -> None:
        """Moves each router's selection bias one small step against its load."""
        for bias, load in zip(self.biases, loads, strict=True):
            bias.add_(torch.sign(load.mean() - load), alpha=BIAS_RATE)


USAGE = "usage: out=DIR [seed=0] [until=N] [threads=N] [compile=1]"


def accuracies(right: Tensor, targets: Tensor) -> dict[str, float]:
    """Share of right answer tokens: of the near and far letters, and of all others."""
    shares = {}
    rest = torch.ones_like(right)
    for name, letters in (("near", b"AB"), ("far", b"XY")):
        among = torch.isin(targets, torch.tensor(list(letters)))
        rest &= ~among
        if int(among.sum()) > 20:
            shares[name] = right[among].float().mean().item()
    shares["other"] = right[rest].float().mean().item()
    return shares


def main(arguments: Sequence[str]) -> None:
    """Command line: key=value pairs out, seed, until, threads, compile."""
    given = dict(pair.split("=", 1) for pair in arguments)
    unknown = sorted(set(given) - {"out", "seed", "until", "threads", "compile"})
    if unknown or "out" not in given:
        raise SystemExit(f"not known: {unknown}\n{USAGE}")
    torch.set_num_threads(int(given.get("threads", os.cpu_count() or 1)))
    out = Path(given["out"])
    out.mkdir(parents=True, exist_ok=True)
    until = int(given.get("until", schedule.STEPS))
    if given.get("compile") == "1":
        fuse_pointwise()
    trainer = Trainer(out, int(given.get("seed", 0)))
    trainer.resume()
    began, cpu = time.monotonic(), time.process_time()
    with (out / "log.jsonl").open("a") as log:
        while trainer.step < until:
            shown = trainer.train_step()
            if trainer.step % LOG_EVERY == 0 or trainer.step == until:
                shown = {key: round(value, 4) for key, value in shown.items()}
                times = {
                    "wall_s": round(time.monotonic() - began, 1),
                    "cpu_s": round(time.process_time() - cpu, 1),
                }
                line = json.dumps({"step": trainer.step, **shown, **times})
                log.write(line + "\n")
                log.flush()
                print(line, flush=True)
            if trainer.step % SAVE_EVERY == 0 or trainer.step == until:
                trainer.save()


if __name__ == "__main__":
    main(sys.argv[1:])
