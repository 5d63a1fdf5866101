"""What must hold for every loss of the registry: symmetries, gradients, bad input, half precision."""

import copy
import pickle
import re

import pytest
import torch
from torch.testing import assert_close

from isometry.deep import (
    HIST,
    BatchHard,
    CenterLoss,
    Columns,
    Contrastive,
    EasyPositive,
    Gathered,
    GeneralizedContrastive,
    Loss,
    MultiSimilarity,
    NCALoss,
    ProxyNCA,
    ProxyNCAPlusPlus,
    RandomTriplets,
    SampledSoftmax,
    SoftTriple,
    Triplet,
    WeightedSum,
)
from isometry.deep.losses.margin_softmax import ClassCosines
from isometry.deep.losses.proxy import TURN, ProxyForm
from isometry.registry import all_methods
from tests.deep.batches import PLAIN, batch, gradient
from tests.deep.test_every_pair_loss import EDGES as PAIR_EDGES

ROWS = [m for m in all_methods(family="deep") if m.kind in ("loss", "head")]
LOSSES = {m.key: m.example for m in ROWS}
VARIANTS = {
    "D16 linear": lambda: LOSSES["D16"](squared_hinge=False, margin=2.0, balanced=True, pos_margin=0.1),
    "D18 soft": lambda: LOSSES["D18"](margin="soft"),
    "D18 swap": lambda: LOSSES["D18"](margin=0.7, swap=True),
    "D18 swap soft": lambda: LOSSES["D18"](margin="soft", swap=True, normalize=False),
    "D20 all": lambda: LOSSES["D20"](pairs="all"),
    "D20 ovo": lambda: LOSSES["D20"](variant="ovo", symmetric=True),
    "D21 exp": lambda: LOSSES["D21"](form="exp"),
    "D21 negatives": lambda: LOSSES["D21"](denominator="negatives"),
    "D22 nearest": lambda: LOSSES["D22"](assignment="nearest", scale=3.0),
    "D23 smooth": lambda: LOSSES["D23"](label_smoothing=0.1),
    "D24 distance": lambda: LOSSES["D24"](distance="sqeuclidean", temperature=1.0, multi_positive="log_sum"),
    "D26 triplet": lambda: LOSSES["D26"](form="triplet"),
    "D34": lambda: Triplet(0.6, miner=EasyPositive(), **PLAIN),
    "D35 all": lambda: LOSSES["D35"](negatives="all"),
    "D35 drop": lambda: LOSSES["D35"](negatives="hard", drop_nonpositive=True),
    "D37 generalized": lambda: LOSSES["D37"](form="generalized"),
    "D38 centers": lambda: LOSSES["D38"](negatives="centers"),
    "D43 classes": lambda: LOSSES["D43"](num_classes=4, nu=0.1, beta=1.3),
    "D46 log_ratio": lambda: LOSSES["D46"](form="log_ratio"),
    "D46 logdet": lambda: LOSSES["D46"](form="logdet", ridge=1e-12),  # the ridge's scale is a constant in the gradient
}
VARIANTS |= {
    "E01 auto": lambda: LOSSES["E01"](scale="auto", label_smoothing=0.1, class_weight=torch.tensor([1.0, 2, 3, 4])),
    "E02 combined": lambda: LOSSES["E02"](scale=8.0, multiplier=1.5, margin=0.3, cosine_margin=0.2),
    "E02 categories": lambda: LOSSES["E02"](scale=8.0, label_smoothing=0.2, categories=(0, 0, 1, 0)),
    "E03 annealed": lambda: LOSSES["E03"](margin=3, anneal=(10.0, 1.0, 0.1), scale=2.0),
    "E06 hard": lambda: LOSSES["E06"](easy=False, scale=4.0, norm_scale=1.5),
    "E07e cos": lambda: LOSSES["E07e"](form="cos", plus=True, scale=4.0),
    "E08 centres": lambda: LOSSES["E08"](loss=LOSSES["E04"](), filter=0.3),
    "E09 gradient": lambda: LOSSES["E09"](update="gradient"),
    "E11 all": lambda: LOSSES["E11"](share=1.0, weight=0.0),
    "E13 unmined": lambda: LOSSES["E13"](eps=None, beta=5.0),
    "E15 alone": lambda: LOSSES["E15"](variance_weight=0, scale=5.0),
    "E17 through": lambda: LOSSES["E17"](detach_weights=False, pos_temperature=2.0),
    "E19 above": lambda: LOSSES["E19"](hard_above=0.2, weight=2.0),
    "E20 self": lambda: LOSSES["E20"](count_self=True),
    **{f"E20p {v}": lambda v=v: LOSSES["E20p"](variant=v) for v in ("Ds", "Iu", "Ib", "O")},
    "E22 self": lambda: LOSSES["E22"](count_self=True, normalizer="positives"),
    "E25 anchors": lambda: LOSSES["E25"](reduction="anchors", temperature=0.3),
    "E26 in": lambda: LOSSES["E26"](form="in"),
    "E26 apart": lambda: LOSSES["E26"](form="apart"),
    "E39 plain": lambda: LOSSES["E39"](squared=False, eps=0.1),
    "E36 proxies": lambda: LOSSES["E36"](loss=MultiSimilarity(), n=1),
    "E36m contrastive": lambda: LOSSES["E36m"](loss=GeneralizedContrastive(normalize=True)),
    "E37 backward": lambda: LOSSES["E37"](loss=Triplet(0.6), direction="backward", temperature=0.3),
    "E38 exponential": lambda: LOSSES["E38"](exponential=True, proxy_weight=1.0),
    "E44q signs": lambda: LOSSES["E44q"](kind="binary"),
    "E28 flat": lambda: LOSSES["E28"](scale=2.0, bias=-1.0),
}
ALL = LOSSES | VARIANTS
ORDERED = {
    "D20",
    "D20 ovo",
    "D47",
    "E36",
    "E36 proxies",
}  # pairs are formed in the order of the batch, or matched at random
UNROTATABLE = {"D08", "D09", "D10", "D11", "D12", "D13", "D22", "D22 nearest", "D23", "D23 smooth", "D27", "D47", "D48"}
UNROTATABLE |= {k for k, f in ALL.items() if isinstance(f(), ClassCosines | ProxyForm | SampledSoftmax | HIST)}
UNROTATABLE |= {"E16"}  # variance over the coordinates
# Parts of these losses are constants by definition, so that the gradient is not the slope of the value; their own files
# test it with those parts frozen. D47: the scale of its virtual samples (tests/deep/test_discriminant.py).
# E05: the lengths (tests/deep/test_margin_softmax.py). E14, E17: the weights of the pairs (tests/deep/test_pairs.py).
PARTLY_CONSTANT = {"D47", "E05", "E14", "E17"}


UNROTATABLE |= {"E35", "E38", "E38 exponential", "E44q", "E44q signs"}
OF_NUMBERS = {"E39", "E40"}  # a matrix y holds distances between labels, not similarities
# The value changes in jumps; tests/deep/test_ranking.py and test_hashing.py check the gradient that it is given.
JUMPS = {"E24", "E44q", "E44q signs"}


def make(key):
    torch.manual_seed(0)
    return ALL[key]().double().eval()


@pytest.mark.parametrize("key", [k for k in ALL if k not in PARTLY_CONSTANT | JUMPS])
def test_gradcheck(key):
    """P3."""
    loss = make(key)
    z, y = batch(7, n=10)
    params = [p for p in loss.parameters() if p.requires_grad]
    for p in params:
        p.data += 0.05 * torch.randn(p.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda u, *_: loss(u, y), (z.requires_grad_(), *params), eps=1e-7, atol=1e-5)
    assert gradient(loss, z.detach(), y).abs().sum() > 1e-6, "the batch of this test must exercise the loss"


MINED = {
    "batch-hard": lambda: Triplet(0.6, miner=BatchHard()),
    "batch-hard, swap": lambda: Triplet(0.6, swap=True, miner=BatchHard()),
    "batch-hard, soft, plain": lambda: Triplet("soft", miner=BatchHard(), **PLAIN),
    "random triplets": lambda: Triplet(0.6, miner=RandomTriplets(2, random_state=0)),
    "random pairs": lambda: Contrastive(2.0, miner=RandomTriplets(random_state=0)),
    "random, cosine": lambda: NCALoss(distance="cosine", miner=RandomTriplets(2, random_state=0)),
}


@pytest.mark.parametrize("key", [k for k in ALL | MINED if k not in PARTLY_CONSTANT | JUMPS])
def test_second_derivatives(key):
    """Of the loss in embeddings and parameters; a copy for each call, since a miner draws anew in each."""
    torch.manual_seed(0)
    loss = (ALL | MINED)[key]().double().eval()
    z, y = batch(7, n=10)
    params = [p for p in loss.parameters() if p.requires_grad]
    for p in params:
        p.data += 0.05 * torch.randn(p.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)

    def value(u, *ps):
        if ps:
            return loss(u, y)
        return copy.deepcopy(loss)(u, y)

    assert torch.autograd.gradgradcheck(value, (z.requires_grad_(), *params), eps=1e-6, atol=1e-6)


@pytest.mark.parametrize("key", ["D16", "D18", "D18 soft", "D18 swap soft", "D21", "D21 exp", "D26", "D35", "D37"])
def test_second_derivatives_against_references(key):
    """Embeddings and references are two variables; anchors without a positive, and one that meets itself."""
    loss, (z, y), (refs, ref_y) = make(key), batch(7, n=6), batch(8, n=7)
    y, refs = y.clone(), torch.cat([refs, z[:1]])
    y[3], ref_y = 17, torch.cat([ref_y, y[:1]])
    own = torch.tensor([7, -1, -1, -1, -1, -1])

    def value(u, v):
        return loss(u, y, v, ref_y, own)

    assert torch.autograd.gradgradcheck(value, (z.requires_grad_(), refs.requires_grad_()), eps=1e-6, atol=1e-6)


def test_third_derivatives():
    """Nothing is cut off after the second: ∂³ of NCALoss by central differences of its Hessian."""
    (z, y), loss = batch(7, n=6, c=2), NCALoss()
    v, w = batch(1, n=6)[0], batch(2, n=6)[0]

    def hessian_form(u):
        (g,) = torch.autograd.grad(loss(u, y), u, create_graph=True)
        (h,) = torch.autograd.grad((g * v).sum(), u, create_graph=True)
        return (h * v).sum()

    (third,) = torch.autograd.grad(hessian_form(z.requires_grad_()), z)
    ends = [hessian_form((z + s * 1e-5 * w).detach().requires_grad_()) for s in (1, -1)]
    assert_close((third * w).sum(), (ends[0] - ends[1]).detach() / 2e-5, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("key", [k for k in ALL if k.split()[0] not in {"D20", "D47"} | JUMPS])
def test_second_derivatives_of_coincident_points_are_finite(key):
    """Duplicates within and across classes, and a class alone."""
    loss, (z, y) = make(key), batch(7, n=10)
    z[1], z[4], z[5] = z[0], z[0], z[6]
    z.requires_grad_()
    (g,) = torch.autograd.grad(loss(z, y), z, create_graph=True)
    if g.requires_grad:
        (h,) = torch.autograd.grad(g.square().sum(), z, allow_unused=True)
        assert h is None or h.isfinite().all()


@pytest.mark.parametrize("key", [k for k in ALL if k not in ORDERED])
def test_order_of_the_batch_does_not_matter(key):
    """P1; with it D34c, D36c, D37d."""
    loss, (z, y) = make(key), batch(7)
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(0))
    assert_close(loss(z[order], y[order]), loss(z, y), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    "key",
    [
        k
        for k, f in ALL.items()
        if not list(f().parameters()) and k.split()[0] not in {"D20", "D48", "E09", "E37", "E44", "E47"}
    ],
)
def test_names_of_classes_do_not_matter(key):
    """P2."""
    loss, (z, y) = make(key), batch(7)
    assert_close(loss(z, 10 - 3 * y), loss(z, y), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("key", [k for k in ALL if k not in UNROTATABLE])
def test_rotation_of_the_embedding_does_not_matter(key):
    """P4."""
    loss, (z, y) = make(key), batch(7)
    Q = torch.linalg.qr(batch(1, n=4)[0]).Q
    assert_close(loss(z @ Q, y), loss(z, y), rtol=1e-9, atol=1e-11)


TRANSLATED = ["E39", "E40", "D16", "D17", "D21", "D29", "D36", "D37", "D38", "D46", "D46 logdet"]


@pytest.mark.parametrize("key", TRANSLATED)
def test_translation_does_not_matter_to_losses_of_distances(key):
    """P4; with it D38c."""
    loss, (z, y) = make(key), batch(7)
    assert_close(loss(z + 3.0, y), loss(z, y), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("labels", ["one class", "all different", "single", "empty"])
@pytest.mark.parametrize("key", ALL)
def test_batches_without_pairs_are_defined(key, labels):
    """P5, P6."""
    loss, (z, y) = make(key).train(), batch(7, n=4)
    z, y = {"one class": (z, y * 0), "all different": (z, y), "single": (z[:1], y[:1]), "empty": (z[:0], y[:0])}[labels]
    z = z.clone().requires_grad_()
    value = loss(z, y)
    value.backward()
    assert value.ndim == 0 and value.isfinite()
    assert z.grad.isfinite().all()


NEEDS_TRIPLETS = ["D18", "D18 soft", "D19", "D25", "D26", "D26 triplet", "D28", "D35", "D36", "D37", "D37 generalized"]
NEEDS_TRIPLETS += ["E13", "E13 unmined", "E14", "E15 alone", "E17", "E17 through", "E19", "E19 above"]
NEEDS_TRIPLETS += ["E20", "E20p", "E20p Ds", "E20p Iu", "E20p Ib", "E20p O", "E21", "E21r", "E22", "E23", "E23h", "E24"]
NEEDS_TRIPLETS += ["E25", "E25 anchors", "E26 apart", "E27", "E36", "E36 proxies", "E47", "E47t"]
NEEDS_POSITIVES = ["E26", "E26 in", "E35", "E36m", "E41", "E44q", "E44q signs"]  # negatives are but more candidates


@pytest.mark.parametrize(
    ("key", "labels"),
    [(key, labels) for key in NEEDS_TRIPLETS for labels in ("one class", "all different", "single", "empty")]
    + [(key, labels) for key in NEEDS_POSITIVES for labels in ("all different", "single", "empty")],
)
def test_nothing_to_compare_is_a_zero_that_backpropagates(key, labels):
    z, y = batch(7, n=4)
    z, y = {"one class": (z, y * 0), "all different": (z, y), "single": (z[:1], y[:1]), "empty": (z[:0], y[:0])}[labels]
    z = z.clone().requires_grad_()
    value = make(key)(z, y)
    value.backward()
    assert value == 0 and (z.grad == 0).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("key", ALL)
def test_half_precision_is_the_float32_loss_of_the_same_numbers(key, dtype):
    """P7."""
    torch.manual_seed(0)
    loss, (z, y) = ALL[key]().eval(), batch(7)
    z = z.to(dtype)
    z[1] = z[0]  # coincident points, same or other class
    z[2] = 0
    full = z.float().requires_grad_()
    expected = loss(full, y)
    half = z.clone().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = loss(half, y)
    assert value.dtype == torch.float32
    assert_close(value, expected, rtol=1e-6, atol=1e-7)
    expected.backward()
    value.backward()
    assert full.grad.isfinite().all() and half.grad.isfinite().all()


@pytest.mark.parametrize("key", LOSSES)
def test_bad_input_is_named(key):
    loss, (z, y) = make(key), batch(7)
    broken = z.clone()
    broken[3, 1] = torch.nan
    with pytest.raises(ValueError, match="z has NaN or infinite values in 1 of 12 rows, first in row 3"):
        loss(broken, y)
    with pytest.raises(ValueError, match="12 embeddings need"):
        loss(z, y[:-1])
    with pytest.raises(ValueError, match="matrix \\(n, p\\)"):
        loss(z[None], y)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("key", ALL)
def test_columns_at_the_edge_are_finite_or_the_loss_has_none(key, dtype):
    for edge, place in PAIR_EDGES.items():
        torch.manual_seed(0)
        zs = [place(batch(k, n=4)[0]).to(dtype).requires_grad_() for k in (0, 1)]  # a class for each of the rows
        try:
            objective = Columns(ALL[key]().train())
        except TypeError as error:
            assert re.fullmatch(r"\w+ has no form for columns; take Ranking, InfoNCE or SigLIP", str(error))
            return
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == torch.bfloat16):
            value = objective(torch.nn.Identity(), tuple(zs))
        value.backward()
        assert value.dtype == torch.float32 and value.isfinite(), edge
        assert all(z.grad.isfinite().all() for z in zs), edge


EDGES = {
    "one point": lambda z: torch.full_like(z, 0.1),
    "zero": torch.zeros_like,
    "a point for each class": lambda z: torch.eye(4)[torch.arange(12) % 4],
    "1e-20": lambda z: 1e-20 * z,
    "1e-30": lambda z: 1e-30 * z,
    "1e8": lambda z: 1e8 * z,
}


@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.parametrize("key", [*ALL, "D46 logdet, default ridge"])
def test_edges_in_float32_are_finite(key, edge):
    torch.manual_seed(0)
    loss = LOSSES["D46"](form="logdet") if key not in ALL else ALL[key]()
    z, y = EDGES[edge](batch(7)[0].float()), torch.arange(12) % 4
    assert loss(z, y).isfinite()
    assert gradient(loss, z, y).isfinite().all()


@pytest.mark.parametrize("size", [1e19, 1e20, 1e30])
@pytest.mark.parametrize("key", ALL)
def test_overflow_in_float32_is_named(key, size):
    """Squares of such norms exceed 3.4e38; a loss that takes none has a finite value and gradient."""
    torch.manual_seed(0)
    loss, (z, y) = ALL[key](), batch(7)
    z = size * z.float()
    try:
        value, slope = loss(z, y), gradient(loss, z, y)
    except OverflowError as error:
        assert re.search(r"norms? up to \d.*e\+\d\d.*torch.float32 can hold.*normalise the embeddings", str(error))
        assert loss.double()(z.double(), y).isfinite()
    else:
        assert value.isfinite() and slope.isfinite().all()
        assert not isinstance(loss, Loss)


def test_parameters_that_are_not_finite_are_named():
    loss, (z, y) = make("D23"), batch(7)
    loss.proxies.data[1, 2] = torch.nan
    with pytest.raises(OverflowError, match="NaN or infinite numbers in its parameters proxies"):
        loss(z, y)


OF_CLASSES = ["D08", "D13", "D22", "D23", "D27", "D43 classes", "D48"]
OF_CLASSES += [k for k, f in ALL.items() if isinstance(f(), ClassCosines | SampledSoftmax | CenterLoss | HIST)]
OF_CLASSES += ["E10", "E11"]


@pytest.mark.parametrize("key", OF_CLASSES)
def test_labels_out_of_range_are_named(key):
    z, y = batch(7)
    with pytest.raises(ValueError, match="labels must lie in 0 … 3 for num_classes=4, got 0 … 4"):
        make(key)(z, torch.where(y == 3, 4, y))
    with pytest.raises(ValueError, match="labels must lie in 0 … 3 for num_classes=4, got -1 … 3"):
        make(key)(z, torch.where(y == 0, -1, y))


@pytest.mark.parametrize("key", OF_CLASSES)
def test_labels_that_are_no_class_numbers_are_named(key):
    z, y = batch(7)
    with pytest.raises(
        ValueError, match=r"class labels must be integers, got torch\.float64|need targets of the same shape"
    ):
        make(key)(z, y.double())


TAKES_REFS = [k for k, f in ALL.items() if isinstance(f(), Loss) and not isinstance(f(), ProxyForm)]


@pytest.mark.parametrize("size", [0, 1])
@pytest.mark.parametrize("key", [k for k in TAKES_REFS if k not in {"D20 all", "D43 classes"}])  # they have penalties
def test_a_sample_alone_is_compared_with_nothing(key, size):
    loss, (z, y) = make(key).train(), batch(7)
    z = z[:size].clone().requires_grad_()
    value = loss(z, y[:size])
    value.backward()
    assert value == 0 and (z.grad == 0).all()


@pytest.mark.parametrize("key", [k for k in TAKES_REFS if k not in {"D20", "D20 ovo"}])
def test_the_batch_given_as_its_own_references_changes_nothing(key):
    loss, (z, y) = make(key), batch(7)
    z = z.requires_grad_()
    (expected,) = torch.autograd.grad(loss(z, y), z)
    value = loss(z, y, z.clone(), y, torch.arange(len(y)))
    assert_close(value, loss(z, y), rtol=1e-12, atol=1e-12)
    assert_close(torch.autograd.grad(value, z)[0], expected, rtol=1e-9, atol=1e-11)


SIMILARITIES = [k for k in TAKES_REFS if k.split()[0] not in {"D20", "D38"} | OF_NUMBERS and k != "D43 classes"]


@pytest.mark.parametrize("key", SIMILARITIES)
def test_a_similarity_matrix_stands_for_labels(key):
    loss, (z, y) = make(key), batch(7)
    same = y[:, None] == y
    assert_close(loss(z, same), loss(z, y), rtol=1e-12, atol=1e-12)
    assert_close(loss(z, same.double()), loss(z, y), rtol=1e-12, atol=1e-12)


BY_BATCH_SIZE = {"E13"}  # divided by the size of the batch, also where anchors have nothing to compare
APART = [k for k in SIMILARITIES if k.split()[0] not in BY_BATCH_SIZE]


@pytest.mark.parametrize("key", APART)
def test_references_are_the_only_pairs_that_count(key):
    """References apart from the batch: the same as one batch of both in which all other pairs are unknown."""
    loss, (z, y), (refs, ref_y) = make(key), batch(7, n=6), batch(8, n=9)
    S = torch.full((15, 15), torch.nan)
    S[:6, 6:] = (y[:, None] == ref_y).float()
    value = loss(z, y, refs, ref_y)
    assert value != 0
    assert_close(value, loss(torch.cat([z, refs]), S), rtol=1e-10, atol=1e-12)


def test_references_are_checked():
    z, y = batch(0)
    loss = Triplet()
    with pytest.raises(ValueError, match="12 references need ref_y of shape \\(12,\\), got none"):
        loss(z, y, z)
    with pytest.raises(ValueError, match="refs have 3 dimensions and z has 4"):
        loss(z, y, z[:, :3], y)
    with pytest.raises(ValueError, match=r"similarity matrix must be \(B, R\) = \(12, 12\), got \(12, 5\)"):
        loss(z, torch.ones(12, 5))
    with pytest.raises(ValueError, match="takes no refs"):
        make("D22")(z, y, z, y)


@pytest.mark.parametrize("key", LOSSES)
def test_a_loss_can_be_copied_pickled_and_restored(key):
    loss, (z, y) = make(key), batch(7)
    for twin in (copy.deepcopy(loss), pickle.loads(pickle.dumps(loss))):
        assert_close(twin(z, y), loss(z, y), rtol=0, atol=0)
    fresh = ALL[key]().double().eval()
    fresh.load_state_dict(loss.state_dict())
    assert_close(fresh(z, y), loss(z, y), rtol=0, atol=0)


@pytest.mark.parametrize("key", LOSSES)
def test_parameters_of_a_loss_reach_the_optimiser_and_move(key):
    loss, (z, y) = make(key).train(), batch(7)
    params = [p for p in loss.parameters() if p.requires_grad]
    groups = loss.param_groups(1e-3)
    assert {id(p) for g in groups for p in g["params"]} == {id(p) for p in params}
    assert all(g["lr"] <= 1e-2 for g in groups)
    if params:
        for p in params:  # a layer behind another that starts at zero has no gradient yet
            p.data += 0.05 * torch.randn(p.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        before = [p.detach().clone() for p in params]
        optimizer = torch.optim.SGD(groups)
        loss(z, y).backward()
        optimizer.step()
        assert all(not torch.equal(p, b) for p, b in zip(params, before))


@pytest.mark.parametrize("p", [16, 64, 512])
@pytest.mark.parametrize("kind", [ProxyNCA, ProxyNCAPlusPlus, SoftTriple])
def test_a_step_turns_a_proxy_by_the_same_angle_in_all_dimensions(kind, p):
    """Adam's first step is the learning rate in each coordinate that has a gradient."""
    torch.manual_seed(0)
    loss = kind(5, p)
    start = loss.references.detach().clone()
    z, y = torch.randn(10, p), torch.arange(10) % 5
    loss(z, y).backward()
    torch.optim.AdamW(loss.param_groups(1e-3)).step()
    moved = (loss.references.detach() - start).norm(dim=-1)
    assert moved.max() <= TURN * (1 + 1e-3) and moved.max() > TURN / 2


def test_losses_add_up():
    z, y = batch(7)
    both = WeightedSum(make("D13"), make("D28"), weights=(1.0, 0.5))
    assert_close(both(z, y), make("D13")(z, y) + 0.5 * make("D28")(z, y))
    assert len(both.param_groups(1e-3)) == 1
    with pytest.raises(ValueError, match="2 losses need as many weights, got 1"):
        WeightedSum(make("D13"), make("D28"), weights=(1.0,))


def test_one_process_gathers_nothing():
    z, y = batch(7)
    assert_close(Gathered(make("D18"))(z, y), make("D18")(z, y), rtol=0, atol=0)


def test_no_loss_builds_a_cube():
    """All triplets of 512 points are 400 million; a loss may hold a few matrices of 512 × 512."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Largest(TorchDispatchMode):
        size = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            for t in out if isinstance(out, (tuple, list)) else [out]:
                if isinstance(t, torch.Tensor):
                    Largest.size = max(Largest.size, t.numel())
            return out

    z, y = torch.randn(128, 4, generator=torch.Generator().manual_seed(0)), torch.arange(128) % 4
    for key in ALL:
        torch.manual_seed(0)
        loss = ALL[key]()
        Largest.size = 0
        with Largest():
            loss(z.clone().requires_grad_(), y).backward()
        assert Largest.size <= 4 * 128 * 128, f"{key} holds {Largest.size} numbers at once"
