"""Images: idx files, scikit-learn's digits, TFDS's sets, and their batches."""

import gzip
import zlib
from pathlib import Path

import numpy as np
import pytest

from gatedjax import data
from gatedjax._commands.data import main as data_command
from gatedjax.data.sets import _images
from gatedjax.data.sets._all import SETS


def idx(array):
    magic = bytes([0, 0, 8, array.ndim])
    return magic + b"".join(n.to_bytes(4, "big") for n in array.shape) + array.tobytes()


@pytest.fixture
def raw(tmp_path, np_rng):
    """48 training and 10 test images; a test may rewrite a file."""
    folder = tmp_path / "mnist"
    folder.mkdir()
    for part, n in (("train", 48), ("t10k", 10)):
        images = np_rng.integers(0, 256, (n, 28, 28)).astype(np.uint8)
        (folder / f"{part}-images-idx3-ubyte").write_bytes(idx(images))
        labels = (np.arange(n) % 10).astype(np.uint8)
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(idx(labels))
    return folder


def test_idx_files_are_read_in_order_and_the_last_twelfth_is_for_validation(raw):
    whole = data.load("mnist", "train_full", manual_dir=raw)
    train = data.load("mnist", "train", manual_dir=raw)
    held = data.load("mnist", "validation", manual_dir=raw.parent)
    assert isinstance(train, data.ImageSource)
    assert (len(whole), len(train), len(held)) == (48, 44, 4)
    assert np.array_equal(np.concatenate([train.images, held.images]), whole.images)
    assert np.array_equal(np.concatenate([train.labels, held.labels]), np.arange(48) % 10)
    assert held.example_ids.tolist() == [44, 45, 46, 47]
    sizes = [[*map(len, _images.hold_out(np.zeros(count)))] for count in (0, 1, 11)]
    assert sizes == [[0, 0], [0, 1], [10, 1]]
    content = (raw / "train-images-idx3-ubyte").read_bytes()
    assert whole.images.tobytes() == content[16:]
    test = data.load("mnist", "test", manual_dir=raw)
    assert test[3]["label"] == 3
    assert test[3]["example_id"] == 200_000_003
    assert np.array_equal(test[3]["image"], test.images[3])
    assert "official file has 10,000" in test.info.substitute
    assert test.report.reconciles


def test_packed_files_and_class_names(raw):
    plain = data.load("fashion_mnist", "test", manual_dir=raw)
    for path in list(raw.iterdir()):
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    packed = data.load("fashion_mnist", "test", manual_dir=raw)
    assert np.array_equal(packed.images, plain.images)
    assert packed.info.class_names[9] == "Ankle boot"
    assert data.load("mnist", "test", manual_dir=raw).info.class_names[9] == "9"


IMAGES, LABELS = "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        (IMAGES, lambda b: b"", "must begin .*got 0x00000000 and 0 bytes"),
        (IMAGES, lambda b: b[:-1], r"must have 7,856 bytes, .* got 7,855"),
        (IMAGES, lambda b: b[:10], "a header of 16 bytes, got 0x00000803 and 10 bytes"),
        (IMAGES, lambda b: b + b"x", "got 7,857"),
        (IMAGES, lambda b: b"\x89PNG" + b[4:], "must begin with 0x00000803 .*got 0x89504e47"),
        (
            IMAGES,
            lambda b: idx(np.zeros((10, 32, 30), np.uint8)),
            "must have 28 x 28 pixels, got 32 x 30",
        ),
        (IMAGES, lambda b: idx(np.zeros(10, np.uint8)), "an idx file of images must"),
        (IMAGES, lambda b: idx(np.zeros((0, 28, 28), np.uint8)), "10 labels in .* got 0 images"),
        (LABELS, lambda b: b[:-3], r"must have 18 bytes, .*got 15"),
        (LABELS, lambda b: idx(np.zeros((1, 28, 28), np.uint8)), "an idx file of labels must"),
        (
            IMAGES,
            lambda b: idx(np.zeros((9, 28, 28), np.uint8)),
            "10 labels in .*t10k.*got 9 images",
        ),
    ],
)
def test_broken_files_are_refused_by_name(raw, name, change, message):
    path = raw / name
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(ValueError, match=rf"{name}: .*{message}|{name}: {message}"):
        data.load("mnist", "test", manual_dir=raw)


def test_missing_files_are_refused_by_name(raw):
    (raw / LABELS).unlink()
    with pytest.raises(FileNotFoundError, match=f"no {LABELS} "):
        data.load("mnist", "test", manual_dir=raw)
    (raw / IMAGES).unlink()
    with pytest.raises(FileNotFoundError, match=rf"no {IMAGES} .*cvdf-datasets"):
        data.load("mnist", "test", manual_dir=raw)


def test_an_unknown_label_is_set_aside(raw, capsys):
    (raw / LABELS).write_bytes(idx(np.array([0, 1, 10, 3, 4, 5, 6, 255, 8, 9], np.uint8)))
    test = data.load("mnist", "test", manual_dir=raw)
    assert test.labels.tolist() == [0, 1, 3, 4, 5, 6, 8, 9]
    assert (test.example_ids - 200_000_000).tolist() == [0, 1, 3, 4, 5, 6, 8, 9]
    assert [(Path(q.file).name, q.line, q.reason) for q in test.quarantine] == [
        (LABELS, 3, "unknown label 10; labels are 0 to 9"),
        (LABELS, 8, "unknown label 255; labels are 0 to 9"),
    ]
    assert test.report.reconciles
    with pytest.raises(ValueError, match="unknown label 10"):
        data.load("mnist", "test", manual_dir=raw, strict=True)
    assert data_command(["check", "mnist", "--manual-dir", str(raw)]) == 0
    assert "unknown label 255" in capsys.readouterr().out
    (raw / LABELS).write_bytes(b"")
    assert data_command(["check", "mnist", "--manual-dir", str(raw)]) == 1


# digits --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_digits_are_shared_out_once_and_for_all(capsys):
    train, held, test, whole = (
        data.load("digits", split) for split in ("train", "validation", "test", "train_full")
    )
    assert (len(train), len(held), len(test), len(whole)) == (1_294, 144, 359, 1_438)
    ids = np.concatenate([train.example_ids, held.example_ids])
    assert np.array_equal(np.sort(ids), whole.example_ids)
    # example ids are places in scikit-learn's order: no image is in two parts
    everything = np.concatenate([ids, test.example_ids - 200_000_000])
    assert np.array_equal(np.sort(everything), np.arange(1_797))
    assert held.example_ids[:5].tolist() == [0, 3, 22, 24, 26]
    counts = np.bincount(test.labels)
    assert counts.min() >= 35
    assert counts.max() <= 37
    rows = data.ImageBatches(test, batch_size=8)[0]["rows"]
    assert rows.shape == (8, 8, 8)
    assert rows.max() == 1.0
    assert all(source.report.reconciles for source in (train, held, test, whole))
    assert data_command(["check", "digits"]) == 0
    assert "test texts that are also in train: 0 of 359" in capsys.readouterr().out
    with pytest.raises(ValueError, match="options must be empty for 'digits', got 'level'"):
        data.load("digits", "train", level="phrase")


# batches -------------------------------------------------------------------------------------


@pytest.fixture
def source(raw):
    return data.load("mnist", "train_full", manual_dir=raw)


def test_a_batch_holds_rows_between_0_and_1_and_filler(source):
    batches = data.ImageBatches.eval(source, batch_size=10)
    assert batches.padding_fraction == pytest.approx(2 / 50)
    batch = batches[4]
    assert batch["weight"].tolist() == [1] * 8 + [0] * 2
    assert batch["example_id"].tolist() == [*range(40, 48), -1, -1]
    assert batch["lengths"].tolist() == [28] * 8 + [0] * 2
    assert batch["label"].tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 0, 0]
    assert not batch["rows"][8:].any()
    wanted = source.images[40:].astype(np.float32) / np.float32(255)
    assert np.array_equal(batch["rows"][:8], wanted)
    assert wanted.max() == 1.0
    assert {name: array.dtype for name, array in batch.items()} == {
        **dict.fromkeys(("rows", "weight"), np.float32),
        **dict.fromkeys(("lengths", "label", "example_id"), np.int32),
    }


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_images_that_tfds_has_shuffled_go_back_to_their_places(monkeypatch, np_rng):
    from tensorflow_datasets.core import hashing

    images = np_rng.integers(0, 256, (30, 28, 28, 1)).astype(np.uint8)
    labels = (np.arange(30) % 10).astype(np.uint8)
    order = sorted(range(30), key=hashing.Hasher("test").hash_key)
    assert order != sorted(order)
    records = [{"image": images[i], "label": int(labels[i])} for i in order]
    read = SETS["mnist"].tfds_rows
    with pytest.raises(ValueError, match=r"'mnist', test: the prepared set .*manual_dir"):
        read(records, "test")
    monkeypatch.setitem(_images.CHECKSUMS, ("mnist", "test"), zlib.crc32(labels.tobytes()))
    rows = read(records, "test")
    assert [row.label for row in rows.rows] == labels.tolist()
    assert all(np.array_equal(row.content, images[row.index, ..., 0]) for row in rows.rows)
