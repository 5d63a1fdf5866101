"""Networks of timm, torchvision and transformers by name, with weights from local files: nothing is ever downloaded."""

from __future__ import annotations

import contextlib
import difflib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from isometry.deep.extras import needs
from isometry.deep.images import ImageTransform
from isometry.parameters import one_of

LIBRARIES = ("timm", "torchvision", "transformers")
POOLINGS = ("mean", "cls", "last", "gem")
LAST_LAYERS = ("fc", "classifier", "head", "heads.head")  # names of what torchvision's networks end with
SHOWN = 3  # differing names that an error lists
OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")


class Network(nn.Module):
    """A backbone and a head: images (B, c, h, w), or a tokeniser's dictionary, to embeddings (B, p).

    Its parts are called ``backbone`` and ``head``, for ``lr_groups={"backbone": 0.1}`` and ``freeze=("backbone",)``.

    Parameters
    ----------
    backbone : nn.Module
        From samples to features (B, num_features), or (B, tokens, num_features) in ``last_hidden_state``.
    num_features : int
        Dimension of the features.
    n_components : int or None, default=None
        Dimension p of the embeddings, by a linear head; None: the features as they are.
    pooling : {"mean", "cls", "last", "gem"}, default="mean"
        Of tokens: their mean, the first, the last, or the cube root of the mean of cubes; padding does not count.
    transform : callable or None, default=None
        What images go through before they come here; None: nothing is known of it.
    tokenize : callable or None, default=None
        What texts go through before they come here; None: samples are no texts.

    Notes
    -----
    What ``backbone`` builds; around a network of your own it gives pooling and a head.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import MLP, Network
    >>> Network(MLP(4, 8), num_features=8, n_components=2)(torch.eye(4)).shape
    torch.Size([4, 2])
    """

    def __init__(
        self,
        backbone: nn.Module,
        num_features: int,
        n_components: int | None = None,
        *,
        pooling: str = "mean",
        transform: ImageTransform | None = None,
        tokenize: Callable[[list[str]], dict[str, Tensor]] | None = None,
    ):
        super().__init__()
        self.backbone, self.num_features = backbone, num_features
        self.head: nn.Module = nn.Identity() if n_components is None else nn.Linear(num_features, n_components)
        self.pooling = one_of("pooling", pooling, POOLINGS)
        self.transform, self.tokenize = transform, tokenize

    def forward(self, x: Tensor | Mapping[str, Tensor]) -> Tensor:
        """Samples to embeddings (B, p).

        Parameters
        ----------
        x : Tensor or dict
            Images (B, c, h, w), or what a tokeniser gives.

        Returns
        -------
        Tensor
            Embeddings (B, p).
        """
        if isinstance(x, Tensor):
            return self.head(self.backbone(x).flatten(1))
        tokens = self.backbone(**x).last_hidden_state  # (B, T, q)
        return self.head(pool(tokens, x.get("attention_mask"), self.pooling))

    def features(self) -> Network:
        """The same backbone without a head.

        Returns
        -------
        Network
            A network that gives the features.
        """
        return Network(self.backbone, self.num_features, pooling=self.pooling, transform=self.transform,
                       tokenize=self.tokenize)  # fmt: skip


def as_network(found: Any, name: str) -> nn.Module:
    """What a function of the user's made, if it is a network."""
    if not isinstance(found, nn.Module):
        raise ValueError(f"{name} must give a torch module, it gave {found!r:.80}")
    return found


def pool(tokens: Tensor, mask: Tensor | None, how: str) -> Tensor:
    """One vector (B, q) for tokens (B, T, q); where the mask (B, T) is 0 there is padding."""
    mask = torch.ones(tokens.shape[:2], device=tokens.device) if mask is None else mask
    weight = mask.to(tokens.dtype)[..., None]  # (B, T, 1)
    if how == "cls":
        return tokens[:, 0]
    if how == "last":
        last = (mask.long() * torch.arange(mask.shape[1], device=mask.device)).argmax(1)
        return tokens[torch.arange(len(tokens), device=tokens.device), last]
    count = weight.sum(1).clamp_min(1)
    if how == "gem":
        return ((tokens.clamp_min(1e-6).pow(3) * weight).sum(1) / count).pow(1 / 3)
    return (tokens * weight).sum(1) / count


def backbone(
    name: str,
    weights: str | os.PathLike[str] | None = None,
    n_components: int | None = None,
    *,
    pooling: str = "mean",
    max_length: int = 256,
    **options: Any,
) -> Network:
    """A network by name: ``"timm:vit_small_patch14_dinov2"``, ``"torchvision:resnet50"``, ``"transformers:FOLDER"``.

    Parameters
    ----------
    name : str
        Library and model; for transformers the folder with config.json, the tokeniser and the weights.
    weights : str, Path or None, default=None
        A safetensors file with the weights, or "random" to begin without; None, for transformers alone: those in the
        folder. Nothing is downloaded: fetch the file on a machine that may, and give its place.
    n_components : int or None, default=None
        Dimension p of the embeddings, by a linear head; None: the features as they are.
    pooling : {"mean", "cls", "last", "gem"}, default="mean"
        How the tokens of a text become one vector.
    max_length : int, default=256
        Most tokens of a text; the rest is cut off.
    **options : dict
        Further arguments of the library's model, such as ``img_size=64``.

    Returns
    -------
    Network
        Backbone and head, with the transform or tokeniser that belongs to them.

    Notes
    -----
    Needs timm, torchvision or transformers, by the name. A name alone, without weights, is refused: a network that
    silently begins at random looks like one that learns badly.

    Examples
    --------
    >>> from isometry.deep import backbone
    >>> try:
    ...     backbone("timm:resnet18")
    ... except ValueError as error:
    ...     print("random weights" in str(error))
    True
    """
    library, _, model = name.partition(":")
    if library not in LIBRARIES or not model:
        raise ValueError(f"{name!r}: expected library:model, of {', '.join(LIBRARIES)}, such as 'timm:resnet18'")
    if weights is None and library != "transformers":
        raise ValueError(
            f"{name} would begin with random weights. Nothing is downloaded: give weights, a safetensors file that was "
            "fetched before, or weights='random' if that is what you want"
        )
    make = {"timm": _timm, "torchvision": _torchvision, "transformers": _transformers}[library]
    with offline():
        return make(model, weights, n_components, pooling=pooling, max_length=max_length, **options)


@contextlib.contextmanager
def offline() -> Iterator[None]:
    """A block in which the libraries are told not to reach for the net; they are never asked to, either."""
    before = {name: os.environ.get(name) for name in OFFLINE}
    os.environ.update(dict.fromkeys(OFFLINE, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.__setitem__(name, value)


def _timm(model: str, weights: Any, p: int | None, *, pooling: str, max_length: int, **options: Any) -> Network:
    with needs("timm", "vision", "a backbone of timm"):
        import timm
    if not timm.is_model(model.partition(".")[0]):
        raise unknown(f"timm:{model}", model, timm.list_models())
    net = timm.create_model(model, pretrained=False, num_classes=0, **options)
    config = net.pretrained_cfg
    read_weights(net, weights, f"timm:{model}", _as_tuple(config.get("classifier")))
    size = int((config.get("input_size") or (3, 224, 224))[-1])
    size = options["img_size"] if isinstance(options.get("img_size"), int) else size
    transform = ImageTransform(size, config["mean"], config["std"], config.get("crop_pct") or 0.875)
    return Network(net, int(net.num_features), p, pooling=pooling, transform=transform)


def _torchvision(model: str, weights: Any, p: int | None, *, pooling: str, max_length: int, **options: Any) -> Network:
    with needs("torchvision", "vision", "a backbone of torchvision"):
        from torchvision.models import get_model, list_models
    if model not in list_models():
        raise unknown(f"torchvision:{model}", model, list_models())
    net = get_model(model, weights=None, **options)
    where = next((name for name in LAST_LAYERS if _has_linear(net, name)), None)
    if where is None:
        raise ValueError(f"torchvision:{model} has no last layer that is known here ({', '.join(LAST_LAYERS)}): "
                         "wrap it yourself, in isometry.deep.Network")  # fmt: skip
    last = net.get_submodule(where)
    place = f"{where}.{len(last) - 1}" if isinstance(last, nn.Sequential) else where
    num_features = int(net.get_submodule(place).in_features)
    net.set_submodule(place, nn.Identity())
    read_weights(net, weights, f"torchvision:{model}", (place,))
    return Network(net, num_features, p, pooling=pooling, transform=ImageTransform())


def _has_linear(net: nn.Module, name: str) -> bool:
    try:
        layer = net.get_submodule(name)
    except AttributeError:
        return False
    return isinstance(layer[-1] if isinstance(layer, nn.Sequential) and len(layer) else layer, nn.Linear)


def _transformers(model: str, weights: Any, p: int | None, *, pooling: str, max_length: int, **options: Any) -> Network:
    with needs("transformers", "text", "a backbone of transformers"):
        from transformers import AutoConfig, AutoModel, AutoTokenizer
    folder = Path(model)
    if not (folder / "config.json").is_file():
        raise FileNotFoundError(
            f"transformers:{model}: there is no {folder / 'config.json'}. Names of a hub are not looked up, and "
            f"nothing is downloaded: fetch the model on a machine that may (hf download {model} --local-dir FOLDER), "
            "and give its folder"
        )
    config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False, **options)
    if weights is None and not list(folder.glob("*.safetensors")):
        raise FileNotFoundError(
            f"{folder} holds no weights as safetensors: fetch model.safetensors into it, give weights=FILE, or "
            "weights='random' to begin without"
        )
    net = AutoModel.from_config(config)
    if weights is None:
        weights = folder / "model.safetensors"
        if not weights.is_file():  # cut into several files, which the library puts together
            net = AutoModel.from_pretrained(folder, config=config, local_files_only=True, use_safetensors=True)
            weights = "random"
    read_weights(net, weights, f"transformers:{model}", ("cls", "lm_head", "classifier", "pooler"))
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise FileNotFoundError(
            f"{folder} holds no tokeniser that can be read ({error}); fetch its files too"
        ) from error
    size = int(getattr(config, "hidden_size", None) or config.d_model)
    longest = min(max_length, int(getattr(config, "max_position_embeddings", max_length)))
    return Network(net, size, p, pooling=pooling, tokenize=Tokenizer(tokenizer, longest))


class Tokenizer:
    """Texts as a dictionary of tensors (B, T), padded to the longest of them.

    Parameters
    ----------
    tokenizer : object
        A tokeniser of transformers.
    max_length : int
        Most tokens; the rest of a text is cut off.
    """

    def __init__(self, tokenizer: Any, max_length: int):
        self.tokenizer, self.max_length = tokenizer, max_length
        if tokenizer.pad_token is None:
            tokenizer.pad_token = tokenizer.eos_token

    def __call__(self, texts: list[str]) -> dict[str, Tensor]:
        found = self.tokenizer(texts, padding=True, truncation=True, max_length=self.max_length, return_tensors="pt")
        return {name: found[name] for name in ("input_ids", "attention_mask", "token_type_ids") if name in found}


def _as_tuple(names: Any) -> tuple[str, ...]:
    return () if names is None else (names,) if isinstance(names, str) else tuple(names)


def read_weights(net: nn.Module, weights: Any, name: str, classifier: Sequence[str]) -> None:
    """Put the weights of a file into a network; of another architecture, say which names differ, and change nothing.

    Weights of the classifier, which the network here has not, are passed over, and so is a first part of all names
    that the network does not have, such as "bert.".
    """
    if str(weights) == "random":
        return
    path = Path(weights)
    if path.suffix != ".safetensors":
        raise ValueError(f"{path}: weights are read from safetensors files alone, which hold no code; convert it first")
    try:
        there = load_file(path)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"there is no file {path} with the weights of {name}; nothing is downloaded: fetch it "
                                "on a machine that may, and give its place") from error  # fmt: skip
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path} is no safetensors file, or a damaged one ({error})") from error
    own = net.state_dict()
    there = {_known_name(k, own): v for k, v in there.items()}
    optional = {k for k in own if k.partition(".")[0] == "pooler" or k.endswith("position_ids")}
    skipped = {k for k in there if k not in own and any(k == c or k.startswith(f"{c}.") for c in classifier)}
    missing = [k for k in own if k not in there and k not in optional]
    foreign = [k for k in there if k not in own and k not in skipped]
    other = [f"{k} is {tuple(there[k].shape)} there and {tuple(own[k].shape)} here" for k in own
             if k in there and own[k].shape != there[k].shape]  # fmt: skip
    if missing or foreign or other:
        parts = (("it lacks", missing), ("it has besides", foreign), ("of another shape", other))
        said = "; ".join(f"{what} {', '.join(names[:SHOWN])}{' …' * (len(names) > SHOWN)} ({len(names)} in all)"
                         for what, names in parts if names)  # fmt: skip
        raise ValueError(f"{path} holds weights of another architecture than {name}: {said}")
    net.load_state_dict({k: there.get(k, own[k]) for k in own})


def _known_name(name: str, own: Mapping[str, Any]) -> str:
    """The name without a first part that only whole models have."""
    short = name.partition(".")[2]
    return short if name not in own and short in own else name


def unknown(name: str, model: str, models: Sequence[str]) -> ValueError:
    near = difflib.get_close_matches(model, models, 3)
    return ValueError(f"{name} is unknown" + (f"; did you mean {' or '.join(near)}?" if near else ""))
