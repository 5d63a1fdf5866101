"""Two processes together have the loss and the gradients, proxies included, of one that holds the whole batch."""

import os
import pkgutil
from types import ModuleType

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.testing import assert_close

import isometry.deep
from isometry.deep import (
    HIST,
    MMCR,
    AdaFace,
    ArcFace,
    BatchHard,
    CenterLoss,
    Columns,
    CosFace,
    CrossBatchMemory,
    CrossEntropy,
    EarlyLayers,
    Gathered,
    InfoNCE,
    Lifted,
    MarginLoss,
    MultiSimilarity,
    NormalizedSoftmax,
    ProbabilisticDA,
    ProxyAnchor,
    ProxyNCA,
    RandomTriplets,
    Ranking,
    SampledSoftmax,
    SigLIP,
    SmoothAP,
    SoftTriple,
    SubCenterArcFace,
    SupCon,
    Triplet,
    TripletGlobal,
    VICReg,
    WeightedSum,
    gather,
)
from isometry.deep.distributed import end_process
from tests.deep.batches import batch

LOSSES = {
    "batch-all": lambda: Triplet(),
    "batch-hard": lambda: Triplet("soft", miner=BatchHard()),
    "random": lambda: Triplet(miner=RandomTriplets(random_state=0)),
    "lifted": lambda: Lifted(),
    "global": lambda: TripletGlobal(),
    "proxies": lambda: ProxyNCA(4, 3),
    "centres": lambda: SoftTriple(4, 3, 2),
    "margin": lambda: MarginLoss(num_classes=4),
    "memory": lambda: CrossBatchMemory(Triplet(), 3, memory_size=16),
    "statistics": lambda: ProbabilisticDA("logdet"),
    "margin softmax": lambda: ArcFace(4, 3),
    "some classes": lambda: SampledSoftmax(CosFace(12, 3), 0.5, random_state=0),
    "some classes, divided": lambda: SampledSoftmax(ArcFace(12, 3), 0.5, filter=0.3, shard=True, random_state=0),
    "all classes, divided": lambda: SampledSoftmax(CosFace(5, 3, scale=8.0), 1.0, shard=True, random_state=0),
    "sub-centres, divided": lambda: SampledSoftmax(SubCenterArcFace(7, 3), 1.0, shard=True, random_state=0),
    "no margin, divided": lambda: SampledSoftmax(NormalizedSoftmax(7, 3), 0.8, shard=True, random_state=0),
    "lengths, divided": lambda: SampledSoftmax(AdaFace(7, 3), 1.0, shard=True, random_state=0),
    "lengths": lambda: AdaFace(4, 3),
    "moving centres": lambda: WeightedSum(CrossEntropy(4, 3), CenterLoss(4, 3)),
    "proxy anchors": lambda: ProxyAnchor(4, 3),
    "mined cosines": lambda: MultiSimilarity(),
    "hypergraph": lambda: HIST(4, 3, hidden=5),
    "contrast": lambda: InfoNCE(),
    "supervised contrast": lambda: SupCon(),
    "sigmoid": lambda: SigLIP(),
    "ranks": lambda: SmoothAP(0.1),
    "queries and documents": lambda: Columns(Ranking()),
    "columns, contrast": lambda: Columns(InfoNCE()),
    "columns, sigmoid": lambda: Columns(SigLIP()),
    "columns, capacity": lambda: Columns(MMCR()),
    "views": lambda: Columns(VICReg()),
    "early layers": lambda: EarlyLayers(InfoNCE()),
    "early layers, read": lambda: EarlyLayers(InfoNCE(), ["0"], read=lambda model, h, x: h[:, :3]),
}
SPLIT = (5, 9)  # rows of the two processes


class Net(nn.Module):
    """A backbone and a loss in one module, as for training."""

    def __init__(self, key, gathered):
        super().__init__()
        torch.manual_seed(0)
        stack = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        self.backbone = nn.Sequential(stack, nn.Tanh(), nn.Linear(4, 3)).double()
        loss = LOSSES[key]().double()
        self.loss = Gathered(loss) if gathered and not isinstance(loss, (Columns, EarlyLayers)) else loss

    def forward(self, x, y):
        if isinstance(self.loss, Columns):  # which gathers by itself
            return self.loss(self.backbone, (x, x.flip(1) + 1))
        if isinstance(self.loss, EarlyLayers):
            return self.loss(self.backbone, (x, y))
        return self.loss(self.backbone(x), y)


def gradients(net, x, y):
    """Loss and gradients of the second step (a memory is empty in the first)."""
    for _ in range(2):
        net.zero_grad()
        value = net(x, y)
        value.backward()
    return [value.detach(), *(p.grad for p in net.parameters())]


def worker(rank, folder):
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
    x, y = (t.split(SPLIT)[rank] for t in batch(0, n=sum(SPLIT)))
    found = {key: gradients(nn.parallel.DistributedDataParallel(Net(key, True)), x, y) for key in LOSSES}
    rows = gather(torch.full((rank * 3, 2), float(rank)), torch.full((rank * 3,), rank))  # one process has none
    torch.save({"found": found, "rows": rows}, f"{folder}/rank{rank}.pt")
    end_process()


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gather")
    torch.multiprocessing.spawn(worker, args=(str(folder),), nprocs=2)
    return [torch.load(folder / f"rank{r}.pt") for r in range(2)]


@pytest.mark.parametrize("key", LOSSES)
def test_two_processes_equal_one(ranks, key):
    expected = gradients(Net(key, False), *batch(0, n=sum(SPLIT)))
    assert sum(g.abs().sum() for g in expected[1:]) > 1e-3
    for rank in ranks:
        assert len(rank["found"][key]) == len(expected)
        for ours, single in zip(rank["found"][key], expected):
            assert_close(ours, single, rtol=1e-6, atol=1e-9)


def test_a_process_may_have_no_rows(ranks):
    for rank in ranks:
        z, y = rank["rows"]
        assert_close(z, torch.ones(3, 2))
        assert y.tolist() == [1, 1, 1]


def test_no_function_has_the_name_of_its_module():
    """`isometry.deep.gather` is the function and nothing else; a module that a name hides could not be reached."""
    modules = [m.name for m in pkgutil.iter_modules(isometry.deep.__path__)]
    assert "distributed" in modules and callable(isometry.deep.gather)
    assert all(isinstance(vars(isometry.deep).get(name, isometry.deep), ModuleType) for name in modules)
