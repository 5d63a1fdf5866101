"""Images in folders: classes by sub-folder or by a table, unreadable files found before training, decoded when used."""

from __future__ import annotations

import copy
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset
from tqdm.auto import tqdm

from isometry.deep.extras import needs

ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
HELD_OUT = ("val", "valid", "validation", "test", "dev")  # names of the part that training does not see
LEARNED = ("train", "training")
READERS = 8  # threads that look at files; decoding leaves Python's lock
NAMED = 5  # bad files that a warning names


class ImageTransform:
    """A picture as numbers: the shorter side to size / crop, the middle (size, size) of it, in units of the network.

    Parameters
    ----------
    size : int, default=224
        Side of the images that the network takes.
    mean : sequence of float, default=(0.485, 0.456, 0.406)
        What is subtracted from each channel, for values in [0, 1]: three numbers, or one for grey images.
    std : sequence of float, default=(0.229, 0.224, 0.225)
        What each channel is divided by, for values in [0, 1]: as many numbers.
    crop : float, default=0.875
        Share of the side that is kept.

    Notes
    -----
    The transform of most networks that were trained on ImageNet; a `Network` by name knows its own.

    Examples
    --------
    >>> from PIL import Image
    >>> from isometry.deep import ImageTransform
    >>> transform = ImageTransform(size=32)
    >>> transform(Image.new("RGB", (80, 60))).shape
    torch.Size([3, 32, 32])
    """

    def __init__(
        self,
        size: int = 224,
        mean: Sequence[float] = (0.485, 0.456, 0.406),
        std: Sequence[float] = (0.229, 0.224, 0.225),
        crop: float = 0.875,
    ):
        if size < 1 or not 0 < crop <= 1 or len(mean) not in (1, 3) or len(mean) != len(std) or min(std) <= 0:
            raise ValueError(
                f"size={size} must be positive, crop={crop} in (0, 1], mean and std one or three numbers, std positive"
            )
        self.size, self.crop, self.mean, self.std = size, crop, tuple(mean), tuple(std)

    @property
    def shape(self) -> tuple[int, int, int]:
        """(c, h, w) of what it gives."""
        return len(self.mean), self.size, self.size

    def __call__(self, image: Any) -> Tensor:
        """A PIL image to a tensor (c, size, size)."""
        from PIL import Image

        image = image.convert("RGB" if len(self.mean) == 3 else "L")
        scale = round(self.size / self.crop) / min(image.size)
        w, h = (max(self.size, round(side * scale)) for side in image.size)
        left, top = (w - self.size) // 2, (h - self.size) // 2
        box = tuple(v / scale for v in (left, top, left + self.size, top + self.size))
        box = tuple(min(v, side) for v, side in zip(box, (*image.size, *image.size)))
        image = image.resize((self.size, self.size), Image.Resampling.BICUBIC, box=box, reducing_gap=2.0)
        x = torch.from_numpy(np.array(image, dtype=np.float32)).view(self.size, self.size, -1).permute(2, 0, 1) / 255
        return (x - torch.tensor(self.mean).view(-1, 1, 1)) / torch.tensor(self.std).view(-1, 1, 1)


class ImageFolder(Dataset[Any]):
    """Images of a folder, with the names of its sub-folders as classes: items (x, code).

        images = ImageFolder("birds", ImageTransform(64))
        Trainer(network, Triplet()).fit(images, validation=0.2)

    Sub-folders called train and val (or validation, test) hold the classes in turn, and say what is held out. Every
    file is decoded once, coarsely, before anything is trained: those that cannot be are left out, counted and named.

    Parameters
    ----------
    path : str or Path
        The folder.
    transform : callable or None, default=None
        From a PIL image to a tensor; None: ``ImageTransform()``. It runs in the workers of the loader.
    progress : bool, default=False
        Show a bar while files are looked at.

    Attributes
    ----------
    labels : array (n,)
        The class of each image by name.
    classes : list of str
        All classes in order; codes are places in that list.
    splits : array (n,) or None
        "train" or "val" for each image, if it is given.
    categories : array (n,) or None
        The category of each image's class, if it is given.
    skipped : list of tuple
        Files that cannot be read, and why.

    Notes
    -----
    For images on disk; decoded ones that fit into memory are faster as an array. Looking at all files costs a pass over
    them, in threads.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from PIL import Image
    >>> from isometry.deep import ImageFolder, ImageTransform
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for name in ("cat", "dog"):
    ...         (Path(folder) / name).mkdir()
    ...         Image.new("RGB", (8, 8)).save(Path(folder) / name / "one.png")
    ...     images = ImageFolder(folder, ImageTransform(8))
    ...     x, code = images[1]
    >>> len(images), images.classes, x.shape, int(code)
    (2, ['cat', 'dog'], torch.Size([3, 8, 8]), 1)
    """

    def __init__(
        self, path: str | os.PathLike[str], transform: Callable[[Any], Tensor] | None = None, *, progress: bool = False
    ):
        root = Path(path)
        if not root.is_dir():
            raise FileNotFoundError(f"there is no folder {root}; images are expected in sub-folders named by class")
        parts = [p for p in sorted(root.iterdir()) if p.is_dir() and not p.name.startswith(".")]
        split = [p.name.lower() for p in parts]
        files: list[tuple[Path, str, str]] = []
        if parts and set(split) <= {*LEARNED, *HELD_OUT} and set(split) & set(LEARNED) and len(parts) > 1:
            for part in parts:
                files += [(f, label, part.name) for f, label in _labelled(part)]
        else:
            files += [(f, label, "") for f, label in _labelled(root)]
        if not files:
            raise ValueError(
                f"{root} holds no images in sub-folders: expected is a sub-folder for each class with files such as "
                f"{', '.join(ENDINGS[:3])}"
            )
        found, labels, splits = zip(*files)
        self._set(root, found, labels, splits if any(splits) else None, None, transform, progress)

    @classmethod
    def from_table(
        cls,
        table: Mapping[str, Sequence[Any]],
        root: str | os.PathLike[str] = ".",
        transform: Callable[[Any], Tensor] | None = None,
        *,
        progress: bool = False,
    ) -> ImageFolder:
        """Images listed in a table with columns path and label and, if wanted, split and category.

        Parameters
        ----------
        table : DataFrame or dict
            The columns path and label and, if wanted, split and category.
        root : str or Path, default="."
            What the paths are relative to.
        transform : callable or None, default=None
            From a PIL image to a tensor; None: ``ImageTransform()``.
        progress : bool, default=False
            Show a bar while files are looked at.

        Returns
        -------
        ImageFolder
            The images.
        """
        columns = {name: list(table[name]) for name in ("path", "label", "split", "category") if name in table}
        missing = [name for name in ("path", "label") if name not in columns]
        if missing:
            raise ValueError(f"a table of images needs the columns path and label; it has no column {missing[0]!r}")
        data = cls.__new__(cls)
        files, labels = [Path(root) / str(p) for p in columns["path"]], [str(v) for v in columns["label"]]
        data._set(Path(root), files, labels, columns.get("split"), columns.get("category"), transform, progress)
        return data

    def _set(
        self, root: Path, files: Any, labels: Any, splits: Any, categories: Any, transform: Any, progress: bool
    ) -> None:
        with needs("PIL", "vision", "ImageFolder"):
            import PIL  # noqa: F401
        self.transform = ImageTransform() if transform is None else transform
        with ThreadPoolExecutor(min(READERS, os.cpu_count() or 1)) as pool:
            looked = pool.map(problem, files)
            problems = list(tqdm(looked, "reading images", len(files), disable=not progress, unit="file"))
        self.skipped = [(str(f), why) for f, why in zip(files, problems) if why is not None]
        good = np.array([why is None for why in problems])
        if not good.any():
            raise ValueError(f"none of the {len(files)} images of {root} can be read: {self.skipped[0][1]}")
        if self.skipped:
            shown = "; ".join(f"{f} ({why})" for f, why in self.skipped[:NAMED])
            more = f" and {len(self.skipped) - NAMED} more" if len(self.skipped) > NAMED else ""
            warnings.warn(f"{len(self.skipped)} of {len(files)} files are no readable images and are left out: "
                          f"{shown}{more}", stacklevel=4)  # fmt: skip
        self.files = [f for f, keep in zip(files, good) if keep]
        self.labels = np.asarray(labels, dtype=str)[good]
        self.splits = None if splits is None else np.array([as_split(s) for s in splits])[good]
        self.categories = None if categories is None else np.asarray(categories)[good]
        self.classes: list[str] = np.unique(self.labels).tolist()
        if len(self.classes) < 2:
            raise ValueError(
                f"all {len(self.files)} images of {root} are of one class, {self.classes[0]!r}: there is nothing to "
                "tell apart. Classes are the sub-folders of the folder that is given"
            )
        self.codes = np.searchsorted(self.classes, self.labels)

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, row: int) -> tuple[Tensor, int]:
        """The image and the code of its class."""
        from PIL import Image

        try:
            with Image.open(self.files[row]) as image:
                return self.transform(image), int(self.codes[row])
        except OSError as error:
            raise OSError(f"{self.files[row]} could be read when training began, and cannot now: {error}") from error

    def subset(self, rows: Sequence[int] | np.ndarray) -> ImageFolder:
        """Some of the images; codes are places among the classes that they are of.

        Parameters
        ----------
        rows : sequence of int
            Which images.

        Returns
        -------
        ImageFolder
            The images of these rows.
        """
        part = copy.copy(self)
        part.files, part.labels = [self.files[k] for k in rows], self.labels[rows]
        part.classes = np.unique(part.labels).tolist()
        part.codes = np.searchsorted(part.classes, part.labels)
        part.splits = None if self.splits is None else self.splits[rows]
        part.categories = None if self.categories is None else self.categories[rows]
        return part


def _labelled(root: Path) -> list[tuple[Path, str]]:
    """The images below each sub-folder, in the order of their names."""
    return [
        (file, folder.name)
        for folder in sorted(root.iterdir())
        if folder.is_dir() and not folder.name.startswith(".")
        for file in sorted(folder.rglob("*"))
        if file.suffix.lower() in ENDINGS and not file.name.startswith(".")
        if file.is_file() or (file.is_symlink() and not file.exists())  # a link to nothing is told of, not passed over
    ]


def problem(file: Path) -> str | None:
    """Why a file cannot be decoded; None if it can. A JPEG is decoded at an eighth of its size."""
    from PIL import Image

    try:
        with Image.open(file) as image:
            image.draft("RGB", (max(image.width // 8, 1), max(image.height // 8, 1)))
            image.load()
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        return str(error).replace(str(file), file.name) or type(error).__name__
    return None


def as_split(name: Any) -> str:
    """ "train" or "val", for the names in use."""
    text = str(name).strip().lower()
    if text in LEARNED or text in HELD_OUT:
        return "train" if text in LEARNED else "val"
    raise ValueError(f"split {name!r} is unknown: expected one of {', '.join((*LEARNED, *HELD_OUT))}")
