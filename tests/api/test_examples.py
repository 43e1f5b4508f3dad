"""The examples of training in cupydrive/examples do what their first lines promise."""

import pytest
import torch

from cupydrive.examples import cnn, recurrent_ppo


@pytest.mark.full
def test_a_gru_remembers_and_an_mlp_does_not():
    """Random suits return -0.5. An MLP cannot do better than -0.5 in the mean."""
    runs = [recurrent_ppo.trained(name, 60_000, "cpu") for name in ("GRU", "MLP")]
    remembers, forgets = (run.evaluate(episodes=200).mean("player")[0] for run in runs)
    assert remembers > 0.9 and forgets < -0.4
    assert recurrent_ppo.play(runs[0]) > 0.9


@pytest.mark.full
@pytest.mark.parametrize("network", [{"network": cnn.CONV}, {"policy": cnn.Cnn}])
def test_a_cnn_trains_by_either_backend(network):
    run = cnn.trained(8 * 1024, "cpu", **network)
    assert run.evaluate(episodes=20).mean("player")[0] >= 0


def test_the_module_is_the_description():
    """Both have the same outputs and, after training, learn by different backends."""
    described, own = (
        cnn.trained(1024, "cpu", **n) for n in ({"network": cnn.CONV}, {"policy": cnn.Cnn})
    )
    one, other = (next(iter(run.policies.values())) for run in (described, own))
    body = list(described.policies["player"].parameters())
    with torch.no_grad():
        other.conv.weight.copy_(body[0].view(16, 3, 3, 4).permute(0, 3, 1, 2))
        other.conv.bias.copy_(body[1])
        # The description flattens (8, 8, 16), and the module (16, 8, 8).
        other.hidden.weight.copy_(body[2].view(128, 8, 8, 16).permute(0, 3, 1, 2).flatten(1))
        other.hidden.bias.copy_(body[3])
        other.out.weight.copy_(body[4])
        other.out.bias.copy_(body[5])
        images = (torch.rand(7, 10, 10, 4) < 0.2).float()
        for a, b in zip(one(images), other(images), strict=True):
            torch.testing.assert_close(a, b)
    assert "kernels" in described.backends["player"] and "torch" in own.backends["player"]
