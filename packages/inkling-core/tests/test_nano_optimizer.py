"""Muon and AdamW over named weights."""

from __future__ import annotations

import torch

from inkling_core.nano.geometry import initial_weights
from inkling_core.nano.optimizer import Optimizer, orthogonal, uses_muon


def test_orthogonal_flattens_the_singular_values() -> None:
    for shape in ((3, 16, 40), (2, 40, 16), (1, 32, 32)):
        matrices = torch.randn(shape, generator=torch.Generator().manual_seed(0))
        values = torch.linalg.svdvals(orthogonal(matrices).float())
        assert values.min() > 0.3 and values.max() < 1.4
        left, _, right = torch.linalg.svd(matrices, full_matrices=False)
        cosine = torch.nn.functional.cosine_similarity(
            orthogonal(matrices).flatten(), (left @ right).flatten(), dim=0
        )
        assert cosine > 0.93


def test_adam_equals_the_library_and_muon_takes_the_matrices() -> None:
    torch.manual_seed(0)
    ours = {"norm.weight": torch.randn(7).requires_grad_()}
    theirs = ours["norm.weight"].detach().clone().requires_grad_()
    optimizer = Optimizer(ours)
    library = torch.optim.AdamW([theirs], lr=1e-2, betas=(0.9, 0.95), weight_decay=0.0)
    for step in range(1, 6):
        gradient = torch.randn(7) * 0.1
        ours["norm.weight"].grad, theirs.grad = gradient.clone(), gradient.clone()
        optimizer.step(step, muon_lr=1.0, adam_lr=1e-2)
        library.step()
    assert torch.allclose(ours["norm.weight"], theirs, atol=1e-6)


def test_gradients_are_clipped_to_norm_one() -> None:
    weights = {"norm.weight": torch.zeros(4).requires_grad_()}
    optimizer = Optimizer(weights)
    weights["norm.weight"].grad = torch.full((4,), 50.0)
    assert optimizer.step(1, 0.0, 0.0) == 100.0
    assert torch.allclose(optimizer.state["first.norm.weight"], torch.full((4,), 0.1 * 0.5))


def test_muon_moves_every_matrix_of_a_group_by_its_own_direction() -> None:
    names = ["layers.0.attn.wq_du.weight", "layers.1.attn.wq_du.weight"]
    weights = {name: torch.zeros(8, 8).requires_grad_() for name in names}
    weights["norm.weight"] = torch.zeros(8).requires_grad_()
    optimizer = Optimizer(weights)
    weights["norm.weight"].grad = torch.zeros(8)
    for name in names:
        weights[name].grad = torch.randn(8, 8)
    expected = {n: orthogonal(w.grad[None] / 20)[0] for n, w in weights.items() if n in names}
    optimizer.step(1, muon_lr=0.5, adam_lr=0.0)
    for name in names:
        direction = -weights[name].detach() / 0.5
        cosine = torch.nn.functional.cosine_similarity(
            direction.flatten(), expected[name].flatten(), dim=0
        )
        assert cosine > 0.98
    assert not torch.equal(weights[names[0]], weights[names[1]])


def test_matrices_go_to_muon_and_the_rest_to_adam() -> None:
    weights = initial_weights(0)
    muon = {name for name in weights if uses_muon(name)}
    assert all(weights[name].ndim >= 2 for name in muon)
    for name in ("embed.weight", "unembed.weight", "layers.1.mlp.gate.weight"):
        assert name not in muon
    assert "layers.5.mlp.shared_experts.shared_w13_weight" in muon
    assert "layers.0.mlp.w2_md.weight" in muon
