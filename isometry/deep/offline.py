"""Offline mining: triplets from a whole data set, mined anew every few epochs with the network of that moment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from accelerate.utils import send_to_device
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Subset

from isometry.deep.distributed import gather
from isometry.deep.functional import Distance, get_distance, masks, unit
from isometry.deep.loss import as_embeddings
from isometry.deep.miners import Extreme, TripleMiner
from isometry.deep.samplers import LabelList, class_members, positive, rank_and_size
from isometry.deep.slopes import Triples
from isometry.deep.tuples import TupleSampler


@torch.no_grad()
def embed(model: nn.Module, samples: Any, batch_size: int = 256) -> Tensor:
    """Embeddings (n, p) of a data set, in its order: in eval mode and without gradient; the mode is restored.

    Items may be samples or tuples that begin with one. Under several processes each embeds a part and gets them all.

    Parameters
    ----------
    model : nn.Module
        The network, from samples to embeddings (B, p).
    samples : data set or array (n, …)
        Samples, or tuples that begin with one.
    batch_size : int, default=256
        Samples that pass the network at a time.

    Returns
    -------
    Tensor
        Embeddings (n, p), in the order of the samples.

    Notes
    -----
    For a look at embeddings during training, and for ``OfflineTripletSampler``; to embed much, in order of length, onto
    disk or again after a stop, take ``Encoder``.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import MLP, embed
    >>> embed(MLP(4, 2), torch.eye(4)).shape
    torch.Size([4, 2])
    """
    if isinstance(model, DistributedDataParallel):
        model = model.module  # its forward waits for the other processes, which may have a batch less
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    rank, world = rank_and_size()
    rows = np.array_split(np.arange(len(samples)), world)[rank]
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        batches = DataLoader(Subset(samples, rows.tolist()), batch_size, collate_fn=getattr(samples, "collate", None))
        z = torch.cat([model(send_to_device(inputs_of(batch), device)) for batch in batches])
    finally:
        for module, training in modes:
            module.training = training
    return gather(z)[0]


def inputs_of(batch: Any) -> Any:
    """What of a batch goes into the network: the samples, without labels; of a table with one column this column."""
    if isinstance(batch, (list, tuple)):
        return batch[0]
    columns = list(batch.values()) if isinstance(batch, Mapping) else []
    return columns[0] if len(columns) == 1 and isinstance(columns[0], Mapping) else batch


@torch.no_grad()
def mine_triplets(
    z: Tensor,
    y: Tensor,
    miner: TripleMiner | None = None,
    *,
    distance: Distance = "sqeuclidean",
    normalize: bool = True,
    max_per_anchor: int | None = 1,
    block: int = 1024,
    random_state: int = 0,
) -> Triples:
    """Triplets (anchor, positive, negative) that a miner finds in a whole data set, in the order of the anchors.

    Anchors are visited in blocks: O(n² p) time, O(block · n) memory. Several processes share the anchors, and all get
    all triplets.

    Parameters
    ----------
    z : Tensor (n, p)
        Embeddings.
    y : Tensor (n,)
        Label of each.
    miner : TripleMiner or None, default=None
        What chooses the triplets; None: ``Extreme("EPHN")``.
    distance : str or callable, default="sqeuclidean"
        How embeddings are compared, as in the loss that the triplets are for.
    normalize : bool, default=True
        Put embeddings on the unit sphere first, as the loss does.
    max_per_anchor : int or None, default=1
        How many triplets of an anchor are kept, the choice being random; None keeps all, which for a miner that lists
        every positive may be far more than O(n).
    block : int, default=1024
        Anchors at a time.
    random_state : int, default=0
        Seed of that choice.

    Returns
    -------
    tuple of Tensor
        Rows of anchors, positives and negatives, (m,) each.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import BatchHard, mine_triplets
    >>> z = torch.tensor([[0.0], [1.0], [5.0], [7.0]])
    >>> mine_triplets(z, torch.tensor([0, 0, 1, 1]), BatchHard(), normalize=False)
    (tensor([0, 1, 2, 3]), tensor([1, 0, 3, 2]), tensor([2, 2, 1, 1]))
    """
    miner = Extreme() if miner is None else miner
    if miner.needs_unit_euclidean and (distance != "euclidean" or not normalize):
        raise ValueError(f"{type(miner).__name__} needs distance='euclidean', normalize=True")
    z = as_embeddings(z, "z")
    if y.shape != (len(z),):
        raise ValueError(f"{len(z)} embeddings need labels ({len(z)},), got shape {tuple(y.shape)}")
    z = unit(z) if normalize else z
    rank, world = rank_and_size()
    generator = torch.Generator().manual_seed(random_state)
    found = [torch.empty(0, 3, dtype=torch.long, device=z.device)]
    for rows in torch.arange(len(z), device=z.device).split(positive("block", block))[rank::world]:
        D = get_distance(distance)(z[rows], z)  # (block, n)
        a, p, n = _at_most(max_per_anchor, miner.triples(D, *masks(y[rows], y, rows)), generator)
        found.append(torch.stack([rows[a], p, n], 1))
    (triples,) = gather(torch.cat(found))  # (m, 3)
    a, p, n = triples[triples[:, 0].argsort(stable=True)].unbind(1)
    return a, p, n


def _at_most(count: int | None, triples: Triples, generator: torch.Generator) -> Triples:
    """Of the triplets of each anchor no more than ``count``, chosen at random; those of an anchor stand together."""
    a, p, n = triples
    if count is None or not len(a):
        return triples
    shuffled = torch.randperm(len(a), generator=generator).to(a.device)
    order = shuffled[a[shuffled].argsort(stable=True)]  # anchors together, in random order inside
    size = a.bincount()
    turn = torch.arange(len(a), device=a.device) - (size.cumsum(0) - size)[a[order]]
    kept = order[turn < count]
    return a[kept], p[kept], n[kept]


class OfflineTripletSampler(TupleSampler):
    """Triplets mined from the whole data set: the same for some epochs, to feed a ``TripletDataset``.

        every R epochs: embed all samples, then take the miner's positives and negatives of each anchor

    Mining happens where an epoch that needs it begins, or where the length is asked for before that.

    Parameters
    ----------
    labels : sequence (n,)
        One label a sample.
    embeddings : callable
        Gives the embeddings (n, p) of all samples by the present network, in the order of the labels.
    miner : TripleMiner or None, default=None
        What chooses the triplets; None: ``Extreme("EPHN")``.
    refresh_epochs : int, default=1
        Epochs for which triplets are kept.
    distance : str or callable, default="sqeuclidean"
        How embeddings are compared, as in the loss that the triplets are for.
    normalize : bool, default=True
        Put embeddings on the unit sphere first, as the loss does.
    max_per_anchor : int or None, default=1
        How many triplets of an anchor are kept, drawn at random; None: all.
    block : int, default=1024
        Anchors at a time.
    random_state : int, default=0
        Seed of the draws; the same in all processes.
    rank : int or None, default=None
        Number of this process; None: that of ``torch.distributed``, if a group exists, else 0.
    world_size : int or None, default=None
        How many processes share the epoch; None: as many as ``torch.distributed`` has, else 1.

    Notes
    -----
    For hard triplets that no batch would hold by chance, in sets of up to some 10⁵ samples: mining costs O(n² p) time
    and O(block · n) memory, and a pass of the network over all samples. In larger sets, or where the network changes
    fast, mine within batches.

    References
    ----------
    | M. Sikaroudi, B. Ghojogh, A. Safarpoor, F. Karray, M. Crowley, H. Tizhoosh, "Offline versus online triplet mining
      based on extreme distances of histopathology patches", ISVC 2020.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import BatchHard, OfflineTripletSampler, TripletDataset, embed
    >>> samples, y = torch.tensor([[0.0], [1.0], [5.0], [7.0]]), [0, 0, 1, 1]
    >>> sampler = OfflineTripletSampler(y, lambda: embed(torch.nn.Identity(), samples), BatchHard())
    >>> batches = torch.utils.data.DataLoader(TripletDataset(samples), 2, sampler=sampler)
    >>> [x.shape for x in next(iter(batches))]
    [torch.Size([2, 1]), torch.Size([2, 1]), torch.Size([2, 1])]
    """

    def __init__(
        self,
        labels: LabelList,
        embeddings: Callable[[], Tensor],
        miner: TripleMiner | None = None,
        refresh_epochs: int = 1,
        *,
        distance: Distance = "sqeuclidean",
        normalize: bool = True,
        max_per_anchor: int | None = 1,
        block: int = 1024,
        random_state: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
    ):
        super().__init__(random_state, rank, world_size)
        members = class_members(labels, overlap=False)
        self.codes = torch.empty(sum(map(len, members)), dtype=torch.long)
        for code, rows in enumerate(members):
            self.codes[torch.as_tensor(rows)] = code
        self.embeddings, self.refresh_epochs = embeddings, positive("refresh_epochs", refresh_epochs)
        self.miner = miner
        self.distance, self.normalize = distance, normalize
        self.max_per_anchor, self.block = max_per_anchor, block
        self._mined: tuple[int, Tensor] | None = None  # when, in units of refresh_epochs, and what

    @property
    def triplets(self) -> Tensor:
        """The triplets (m, 3) of the present epoch."""
        period = self.epoch // self.refresh_epochs
        if self._mined is None or self._mined[0] != period:
            self._mined = period, self._mine(self.random_state + period)
        return self._mined[1]

    def _mine(self, random_state: int) -> Tensor:
        z = self.embeddings()
        if len(z) != len(self.codes):
            raise ValueError(f"there are {len(self.codes)} labels, but embeddings() gave {len(z)} rows")
        found = mine_triplets(
            z,
            self.codes.to(z.device),
            self.miner,
            distance=self.distance,
            normalize=self.normalize,
            max_per_anchor=self.max_per_anchor,
            block=self.block,
            random_state=random_state,
        )
        if not len(found[0]):
            raise ValueError("no triplet found: there must be two classes, one of them with two samples or more")
        return torch.stack(found, 1).cpu()

    @property
    def total(self) -> int:
        return len(self.triplets)

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        return self.triplets.numpy()

    def state_dict(self, position: int | None = None) -> dict[str, Any]:
        """As for every sampler, and the triplets: the network that gave them is gone.

        Parameters
        ----------
        position : int or None, default=None
            Items of the epoch that are done; None: those that were given out.
        """
        return {**super().state_dict(position), "mined": self._mined}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._mined = state["mined"]
