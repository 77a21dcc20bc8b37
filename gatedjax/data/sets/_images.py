"""MNIST, Fashion-MNIST and scikit-learn's digits: images as sources."""

import dataclasses
import functools
import math
import struct
import zlib
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

import numpy as np

from gatedjax.data.files._lines import FileRow, FileRows
from gatedjax.data.files._paths import AnyPath, Files, find, read_bytes
from gatedjax.data.files._source import Example, Quarantined, ReadReport, Source, SourceInfo
from gatedjax.data.sets._declaration import (
    HELD_OUT,
    ID_BASE,
    SPLIT_SEED,
    DataSet,
    Embedded,
    Record,
    SetOptions,
    stratified_split,
)

FILES = {"train": "train-images-idx3-ubyte", "test": "t10k-images-idx3-ubyte"}
LABELS = {"train": "train-labels-idx1-ubyte", "test": "t10k-labels-idx1-ubyte"}
CHECKSUMS = {
    ("mnist", "train"): 0xBA07E8EF,
    ("mnist", "test"): 0xEE8604D9,
    ("fashion_mnist", "train"): 0x2ED6E46A,
    ("fashion_mnist", "test"): 0x242BC73F,
}
"""CRC-32 of the official labels as bytes, in the order of the files."""
SIZE = (28, 28)
DIGITS = tuple("0123456789")
FASHION = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
    *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)


@dataclasses.dataclass(frozen=True, eq=False)
class Columns(Sequence[Example]):
    """n images as examples, made on access."""

    images: np.ndarray  # uint8 [n, rows, columns]
    labels: np.ndarray  # int32 [n]
    example_ids: np.ndarray  # int32 [n]

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index):
        return {
            "image": self.images[index],
            "label": int(self.labels[index]),
            "example_id": int(self.example_ids[index]),
        }


class ImageSource(Source):
    """The images of a split, as examples {"image" uint8 [rows, columns], "label", "example_id"}.

    Args:
      images: uint8 [n, rows, columns].
      labels: int [n], the class of each image.
      example_ids: int [n], the number of each image in its data set.
      scale: the value of white, 255, or 16 for scikit-learn's digits. Batches divide the images by
        it; the examples have the values as given.
      info: a `SourceInfo` with the name of the set, the split and the names of the classes.
      report: a `ReadReport` with the counts of used and unused images; None means that all were
        used.

    Raises:
      ValueError: if images, labels and example_ids do not have the same length n.
    """

    def __init__(
        self,
        images: np.ndarray,
        labels: np.ndarray,
        example_ids: np.ndarray,
        info: SourceInfo,
        report: ReadReport | None = None,
        *,
        scale: int = 255,
    ) -> None:
        if images.ndim != 3 or not len(images) == len(labels) == len(example_ids):
            raise ValueError(
                "images, labels and example_ids must be [n, rows, columns], [n] and [n], got "
                f"{images.shape}, {labels.shape} and {example_ids.shape}"
            )
        self.images = np.asarray(images, np.uint8)
        self.labels = np.asarray(labels, np.int32)
        self.example_ids = np.asarray(example_ids, np.int32)
        self.scale = scale
        super().__init__(Columns(self.images, self.labels, self.example_ids), info, report)

    def __repr__(self) -> str:
        rows, columns = self.images.shape[1:]
        which = f"{self.info.name!r}, {self.info.split!r}"
        return f"ImageSource({which}, {len(self)} images of {rows} x {columns})"


def read_rows(path: Path, part: str) -> FileRows:
    """Reads the images of a part and, from the same folder, their labels."""
    beside = find([path.parent], LABELS[part])
    if beside is None:
        raise FileNotFoundError(
            f"{path}: there is no {LABELS[part]} (or {LABELS[part]}.gz) next to it"
        )
    images, labels = _read_idx(path, _IMAGES, "images"), _read_idx(beside, _LABELS, "labels")
    if images.shape[1:] != SIZE:
        rows, columns = images.shape[1:]
        raise ValueError(f"{path}: images must have 28 x 28 pixels, got {rows} x {columns}")
    if len(images) != len(labels):
        raise ValueError(
            f"{path}: there must be an image for each of the {len(labels):,} labels in {beside}, "
            f"got {len(images):,} images"
        )
    return rows_of(images, labels, str(beside))


def rows_of(images: Collection[np.ndarray], labels: Iterable[int], name: str) -> FileRows:
    """Returns a row for each image, with the image as its content and the class as its label."""
    rows, quarantine = [], []
    for index, (image, value) in enumerate(zip(images, labels, strict=True)):
        if 0 <= value < len(DIGITS):
            rows.append(FileRow(index, int(value), image))
        else:
            reason = f"unknown label {value}; labels are 0 to 9"
            quarantine.append(Quarantined(name, index + 1, reason))
    return FileRows(tuple(rows), tuple(quarantine), counted=len(images))


def hold_out(labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Holds out the last twelfth, 5,000 of 60,000; returns positions (training, validation)."""
    # A very small part still has an image for validation.
    count = max(min(1, len(labels)), len(labels) // 12)
    # The validation images are not drawn at random, so that all programs hold out the same images.
    return np.arange(len(labels) - count), np.arange(len(labels) - count, len(labels))


def examples(rows: FileRows, base: int, options: SetOptions) -> Columns:
    """Stacks the images of rows into a sequence of examples."""
    return Columns(
        np.array([row.content for row in rows.rows], np.uint8).reshape(-1, *SIZE),
        np.array([row.label for row in rows.rows], np.int32),
        np.array([base + row.index for row in rows.rows], np.int32),
    )


def source(columns: Columns, info: SourceInfo, report: ReadReport, _: object) -> ImageSource:
    """Returns a source of the images, labels and ids in `columns`."""
    return ImageSource(**vars(columns), info=info, report=report)


def read_records(name: str, records: Sequence[Record], part: str) -> FileRows:
    """Returns the images of a prepared TFDS part as rows, in the order of the official files."""
    from tensorflow_datasets.core import hashing

    # The k-th record of TFDS is the image with the k-th smallest hash, so that sorting the hashes
    # of all positions gives the way back.
    hash_key = hashing.Hasher(part).hash_key
    places = np.argsort([f"{hash_key(index):032x}" for index in range(len(records))])
    ordered = [records[at] for at in np.argsort(places)]
    labels = np.array([record["label"] for record in ordered], np.uint8)
    # The order in TFDS is no part of its interface. The checksum notices a version that changes it.
    if zlib.crc32(labels.tobytes()) != CHECKSUMS[name, part]:
        raise ValueError(
            f"data set {name!r}, {part}: the prepared set must have the official images in an "
            "order that gatedjax knows: read the raw files with manual_dir=... instead"
        )
    return rows_of([record["image"][..., 0] for record in ordered], labels, name)


def digits(split: str) -> ImageSource:
    """Returns a split of scikit-learn's digits: 1,797 images of 8 x 8 pixels from 0 to 16."""
    from sklearn.datasets import load_digits

    data = load_digits()
    # The seed is a constant and no option, because accuracies can only be compared on the same test
    # images.
    train, test = stratified_split(data.target, 0.2, seed=SPLIT_SEED)
    part = test if split == "test" else train
    used = part
    if split in ("train", "validation"):
        training, validation = stratified_split(data.target[train], HELD_OUT, seed=SPLIT_SEED)
        used = train[training if split == "train" else validation]
    return ImageSource(
        data.images[used].astype(np.uint8),
        data.target[used],
        ID_BASE["test" if split == "test" else "train"] + used,
        SourceInfo("digits", split, DIGITS),
        ReadReport(lines=len(part), used=len(part)),
        scale=16,
    )


def _declare(name: str, url: str, classes: tuple[str, ...]) -> DataSet:
    return DataSet(
        name=name,
        official={"train": 60_000, "test": 10_000},
        unit="images",
        where=f"{url} (four idx files)",
        files=Files(FILES, tops=(name, ""), url=url),
        read_rows=read_rows,
        examples=examples,
        classes=classes,
        hold_out=hold_out,
        source=source,
        tfds_rows=functools.partial(read_records, name),
    )


_IMAGES, _LABELS = 0x0803, 0x0801


def _read_idx(path: AnyPath, magic: int, content: str) -> np.ndarray:
    """Reads an IDX file and returns its bytes as a uint8 array with the shape in its header."""
    data = read_bytes(path)
    axes = magic & 0xFF
    header = 4 * (1 + axes)
    start = int.from_bytes(data[:4], "big")
    if start != magic or len(data) < header:
        raise ValueError(
            f"{path}: an idx file of {content} must begin with 0x{magic:08x} and a header of "
            f"{header} bytes, got 0x{start:08x} and {len(data)} bytes"
        )
    shape = struct.unpack(f">{axes}I", data[4:header])
    # The product of Python integers cannot overflow, whatever sizes a damaged header states.
    expected = header + math.prod(shape)
    if len(data) != expected:
        raise ValueError(
            f"{path}: an idx file must have {expected:,} bytes, as its header states, got "
            f"{len(data):,}: take another copy"
        )
    return np.frombuffer(data, np.uint8, offset=header).reshape(shape)


DECLARED = (
    _declare("mnist", "https://storage.googleapis.com/cvdf-datasets/mnist/", DIGITS),
    _declare(
        "fashion_mnist", "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/", FASHION
    ),
    Embedded(
        name="digits",
        origin="part of scikit-learn",
        sizes={"train": 1_294, "validation": 144, "test": 359},
        source=digits,
        unit="images",
    ),
)
