"""Offline mining: the triplets of a whole data set, in blocks, by several processes, kept for a few epochs (D40)."""

import os

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.testing import assert_close
from torch.utils.data import DataLoader

from isometry.deep import (
    BUT,
    BatchHard,
    BatchSemiHard,
    DistanceWeighted,
    EasyPositive,
    Extreme,
    Gathered,
    OfflineTripletSampler,
    PKBatchSampler,
    RandomTriplets,
    TripletDataset,
    embed,
    mine_triplets,
)
from isometry.deep.distributed import end_process
from isometry.deep.functional import masks
from tests.deep.batches import A, Y, batch

PLAIN = {"distance": "euclidean", "normalize": False}
STRATEGIES = {"EPEN": (min, max), "EPHN": (min, min), "HPEN": (max, max), "HPHN": (max, min)}


def slow_extremes(z, y, strategy):
    """Positive and negative of each anchor by comparing all points with it."""
    triples, n = [], range(len(z))
    for a in n:
        d = [float((z[a] - z[j]).square().sum()) for j in n]
        pos, neg = [j for j in n if j != a and y[j] == y[a]], [j for j in n if y[j] != y[a]]
        if pos and neg:
            choose_p, choose_n = STRATEGIES[strategy]
            triples.append((a, choose_p(pos, key=d.__getitem__), choose_n(neg, key=d.__getitem__)))
    return triples


def listed(triples):
    return list(zip(*(t.tolist() for t in triples)))


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("block", [1, 7, 1000])
def test_extreme_triplets_of_a_whole_set(strategy, block):
    """D40 (1), (2)."""
    z, y = batch(0, n=40, c=6)
    y[0] = 99  # alone in its class: no anchor
    found = mine_triplets(z, y, Extreme(strategy), block=block, **PLAIN)
    assert listed(found) == slow_extremes(z, y, strategy)


def test_offline_equals_online_for_a_set_of_one_batch():
    """D40 (3)."""
    z, y = batch(1, n=30)
    found = listed(mine_triplets(z, y, **PLAIN))
    D = (z[:, None] - z).square().sum(2).sqrt()
    pos, neg = EasyPositive("hard").select(D, *masks(y, y, torch.arange(30)))
    assert found == list(zip(range(30), pos.int().argmax(1).tolist(), neg.int().argmax(1).tolist()))
    assert (pos.sum(1) == 1).all() and (neg.sum(1) == 1).all()


def test_toy_value():
    """D40 (4)."""
    assert (2, 3, 0) in listed(mine_triplets(A, Y, Extreme("HPHN"), **PLAIN))


def test_distances_are_those_of_the_loss():
    z = torch.tensor([[1.0, 0.0], [9.0, 0.5], [1.0, 0.8], [0.9, 0.7], [3.0, 3.0]], dtype=torch.float64)
    y = torch.tensor([0, 0, 0, 1, 1])
    assert listed(mine_triplets(z, y, **PLAIN))[0] == (0, 2, 3)
    assert listed(mine_triplets(z, y))[0] == (0, 1, 3)  # by angle


@pytest.mark.parametrize("count", [1, 3, None])
@pytest.mark.parametrize("block", [5, 64])
def test_any_miner_with_a_cap_for_each_anchor(count, block):
    z, y = batch(2, n=40, c=3)
    every = mine_triplets(z, y, BatchSemiHard(), max_per_anchor=None, block=block, **PLAIN)
    found = mine_triplets(z, y, BatchSemiHard(), max_per_anchor=count, block=block, **PLAIN)
    assert set(listed(found)) <= set(listed(every))
    assert len(set(listed(found))) == len(found[0])
    sizes, limit = torch.bincount(every[0], minlength=40), len(y) if count is None else count
    assert_close(torch.bincount(found[0], minlength=40), sizes.clamp_max(limit))
    assert sizes.max() > 3
    assert (found[0].diff() >= 0).all()


def test_the_cap_chooses_at_random():
    z, y = batch(2, n=40, c=3)
    draws = [listed(mine_triplets(z, y, BatchSemiHard(), random_state=s, **PLAIN)) for s in (0, 0, 1)]
    assert draws[0] == draws[1] != draws[2]


def test_semi_hard_equals_the_loop():
    z, y = batch(3, n=25)
    expected = []
    for a in range(25):
        d = [float((z[a] - z[j]).square().sum().sqrt()) for j in range(25)]
        for p in (j for j in range(25) if j != a and y[j] == y[a]):
            beyond = [k for k in range(25) if y[k] != y[a] and d[k] > d[p]]
            expected += [(a, p, min(beyond, key=d.__getitem__))] if beyond else []
    found = mine_triplets(z, y, BatchSemiHard(), max_per_anchor=None, block=4, **PLAIN)
    assert sorted(listed(found)) == sorted(expected)


def test_memory_is_a_block_of_rows():
    """600 points: no tensor of n × n numbers, with blocks of 20."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Largest(TorchDispatchMode):
        size = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            for t in out if isinstance(out, (tuple, list)) else [out]:
                if isinstance(t, torch.Tensor):
                    Largest.size = max(Largest.size, t.numel())
            return out

    z, y = batch(4, n=600)
    for miner in (Extreme(), BatchHard(), BatchSemiHard(), RandomTriplets(random_state=0)):
        with Largest():
            mine_triplets(z, y, miner, block=20)
    assert 20 * 600 <= Largest.size <= 2 * 20 * 600


def test_bad_input_is_named():
    z, y = batch(0)
    with pytest.raises(ValueError, match="DistanceWeighted needs distance='euclidean', normalize=True"):
        mine_triplets(z, y, DistanceWeighted(4))
    with pytest.raises(ValueError, match=r"12 embeddings need labels \(12,\), got shape \(11,\)"):
        mine_triplets(z, y[1:])
    with pytest.raises(ValueError, match="block must be at least 1"):
        mine_triplets(z, y, block=0)
    with pytest.raises(ValueError, match="there are 5 labels, but embeddings\\(\\) gave 12 rows"):
        list(OfflineTripletSampler([0, 0, 1, 1, 1], lambda: z))
    with pytest.raises(ValueError, match="no triplet found"):
        list(OfflineTripletSampler(np.zeros(12), lambda: z))


# -- the sampler -------------------------------------------------------------------------------------------------------


class Drifting:
    """Embeddings that change each time they are asked for."""

    def __init__(self):
        self.calls = 0

    def __call__(self):
        self.calls += 1
        return batch(self.calls, n=30)[0]


LABELS = batch(0, n=30)[1].numpy()
NAMES = np.array(["d", "b", "a", "c"])[LABELS]


def test_triplets_are_kept_for_some_epochs():
    source = Drifting()
    sampler = OfflineTripletSampler(NAMES, source, refresh_epochs=2, **PLAIN)
    assert source.calls == 0
    rounds = [list(sampler) for _ in range(4)]
    assert source.calls == 2
    assert set(rounds[0]) == set(rounds[1]) == set(slow_extremes(batch(1, n=30)[0], LABELS, "EPHN"))
    assert set(rounds[2]) == set(rounds[3]) == set(slow_extremes(batch(2, n=30)[0], LABELS, "EPHN"))
    assert rounds[0] != rounds[1]  # in another order
    assert len(sampler) == 30


def test_a_resumed_sampler_keeps_its_triplets(tmp_path):
    whole = OfflineTripletSampler(NAMES, Drifting(), refresh_epochs=2)
    expected = [list(whole) for _ in range(3)]
    sampler = OfflineTripletSampler(NAMES, Drifting(), refresh_epochs=2)
    list(sampler)
    run = iter(sampler)
    begun = [next(run) for _ in range(4)]
    torch.save(sampler.state_dict(), tmp_path / "state.pt")
    source = Drifting()
    source.calls = 1
    fresh = OfflineTripletSampler(NAMES, source, refresh_epochs=2)
    fresh.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    assert begun + list(fresh) == expected[1]
    assert source.calls == 1
    assert list(fresh) == expected[2]


def test_triplets_reach_a_loader():
    z, y = batch(0, n=30)
    samples = torch.arange(30)
    sampler = OfflineTripletSampler(y, lambda: z)
    for a, p, n in DataLoader(TripletDataset(samples), 10, sampler=sampler):
        assert len(a) == 10
        assert (y[a] == y[p]).all() and (a != p).all() and (y[a] != y[n]).all()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Dropout(0.5), nn.Linear(5, 2)).double()

    def forward(self, x):
        return self.layers(x)


@pytest.mark.parametrize("batch_size", [7, 100])
def test_embedding_a_set_leaves_the_network_as_it_was(batch_size):
    x, y = batch(0, n=30)
    net = Net()
    net.layers[1].eval()  # frozen by the user
    before = {k: v.clone() for k, v in net.state_dict().items()}
    z = embed(net, x, batch_size)
    assert not z.requires_grad
    assert net.training and not net.layers[1].training and net.layers[2].training
    assert all(torch.equal(v, before[k]) for k, v in net.state_dict().items())
    assert_close(embed(net, list(zip(x, y)), batch_size), z, rtol=0, atol=0)
    assert_close(z, net.eval()(x).detach(), rtol=1e-12, atol=1e-12)


# -- two processes -----------------------------------------------------------------------------------------------------


def worker(rank, folder):
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
    (x, y), net = batch(0, n=31), Net()
    z = embed(net, x, 4)
    loss = Gathered(BUT(4, 4, margin=20.0, random_state=0).double())
    half = x.tensor_split(2)[rank].clone().requires_grad_()
    loss(half, y.tensor_split(2)[rank]).backward()
    result = {
        "z": z,
        "triples": torch.stack(mine_triplets(z, y, block=4), 1),
        "sampled": list(OfflineTripletSampler(y, lambda: z)),
        "batches": list(PKBatchSampler(y, 2, 2)),
        "scatter": loss.loss.gaussians.scatter,
        "gradient": half.grad,
    }
    torch.save(result, f"{folder}/rank{rank}.pt")
    end_process()


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("offline")
    torch.multiprocessing.spawn(worker, args=(str(folder),), nprocs=2)
    return [torch.load(folder / f"rank{r}.pt") for r in range(2)]


def test_two_processes_share_the_work_and_get_the_result(ranks):
    (x, y), net = batch(0, n=31), Net()
    z = embed(net, x)
    for found in ranks:
        assert_close(found["z"], z, rtol=1e-12, atol=1e-12)
        assert [tuple(t) for t in found["triples"].tolist()] == listed(mine_triplets(z, y))
    shares = [found["sampled"] for found in ranks]
    assert [len(s) for s in shares] == [16, 16]  # 31 triplets: one comes twice
    assert set(shares[0]) | set(shares[1]) == set(listed(mine_triplets(z, y)))


def test_samplers_find_their_place_in_the_group(ranks):
    y = batch(0, n=31)[1]
    for rank, found in enumerate(ranks):
        assert found["batches"] == list(PKBatchSampler(y, 2, 2, rank=rank, world_size=2))
    assert ranks[0]["batches"] != ranks[1]["batches"]


def test_class_gaussians_of_two_processes_are_those_of_one(ranks):
    x, y = batch(0, n=31)
    loss = BUT(4, 4, margin=20.0, random_state=0).double()
    x = x.clone().requires_grad_()
    loss(x, y).backward()
    for found in ranks:
        assert_close(found["scatter"], loss.gaussians.scatter, rtol=1e-12, atol=1e-12)
    together = torch.cat([found["gradient"] for found in ranks])
    assert_close(together, 2 * x.grad, rtol=1e-10, atol=1e-12)  # summed over processes; DDP takes the mean
