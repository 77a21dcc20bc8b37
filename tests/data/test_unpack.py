"""Packed files that unpack to too much are refused by name, early, and without the memory."""

import contextlib
import gzip
import io
import resource
import struct
import tarfile
import tracemalloc
import zipfile
import zlib

import numpy as np
import pytest

from gatedjax import data
from gatedjax.__main__ import main
from gatedjax.data.files import _unpack
from gatedjax.data.files._unpack import ArchivePath

MB = 1_000_000
BOMB = gzip.compress(bytes(50 * MB), 9)
LIMIT = 1 * MB
TREE = b"(3 (2 A) (3 good))\n"


@contextlib.contextmanager
def little_memory(most=8 * MB):
    """Fails if Python takes more than this at once."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()


def tar(path, mode="w:gz", **members):
    with tarfile.open(path, mode) as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


@pytest.fixture
def trees(tmp_path):
    (tmp_path / "train.txt.gz").write_bytes(BOMB)
    return tmp_path


def bomb(kind, folder):
    """Writes 50 MB of zeros as a raw file of a set; returns the set and the name that is blamed."""
    zeros = bytes(50 * MB)
    if kind == "gz":
        (folder / "train.txt.gz").write_bytes(BOMB)
        return "sst", "train.txt.gz"
    if kind == "zip":
        with zipfile.ZipFile(folder / "trainDevTestTrees_PTB.zip", "w", zipfile.ZIP_DEFLATED) as z:
            z.writestr("trees/train.txt", zeros)
        return "sst", "trees/train.txt"
    if kind == "tgz":
        name = "./simple-examples/data/ptb.train.txt"
        tar(folder / "simple-examples.tgz", **{name: zeros})
        return "ptb", "ptb.train.txt"
    if kind == "imdb":
        tar(folder / "aclImdb_v1.tar.gz", **{"aclImdb/train/pos/0_9.txt": zeros})
        return "imdb", "0_9.txt"
    if kind == "not asked for":
        tar(folder / "aclImdb_v1.tar.gz", **{"other.bin": zeros})
        return "imdb", "other.bin"
    inner = {"cnn/questions/training/a.question.gz": BOMB}
    tar(folder / "cnn.tgz", **inner)
    return "cnn_cloze", "a.question.gz"


@pytest.mark.parametrize("kind", ["gz", "zip", "tgz", "imdb", "not asked for", "gz in tgz"])
def test_a_bomb_is_refused_by_name_without_its_memory(kind, tmp_path):
    name, blamed = bomb(kind, tmp_path)
    with (
        little_memory(),
        pytest.raises(ValueError, match=rf"{blamed}: .*1,000,000 bytes"),
    ):
        data.load(name, "train", manual_dir=tmp_path, unpack_limit=LIMIT)


def test_the_limit_is_1_gib_and_a_good_file_below_it_is_read(tmp_path):
    assert _unpack.LIMIT == _unpack.limit() == 1 << 30
    (tmp_path / "train.txt.gz").write_bytes(gzip.compress(TREE))
    load = lambda limit: data.load("sst", "train", manual_dir=tmp_path, unpack_limit=limit)  # noqa: E731
    assert len(load(len(TREE))) == 1
    with pytest.raises(ValueError, match=rf"train.txt.gz: .*more than {len(TREE) - 1} bytes"):
        load(len(TREE) - 1)
    with pytest.raises(ValueError, match="unpack_limit must be at least 1 byte, got 0"):
        load(0)


def test_a_limit_of_the_process_holds_for_a_bomb_under_the_default(trees, monkeypatch):
    # a machine with too little memory for the file: it is refused, not run out of
    monkeypatch.setenv("GATEDJAX_UNPACK_LIMIT", "1MB")
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    with open("/proc/self/status") as status:
        used = next(int(line.split()[1]) for line in status if line.startswith("VmData"))
    resource.setrlimit(resource.RLIMIT_DATA, ((used << 10) + 30 * MB, hard))
    try:
        with pytest.raises(ValueError, match=r"train.txt.gz: .*1,000,000"):
            data.load("sst", "train", manual_dir=trees)
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def test_environment_and_command_raise_and_lower_the_limit(trees, monkeypatch, capsys):
    def command(*args):
        status = main(["data", "check", "sst", "--manual-dir", str(trees), *args])
        out, err = capsys.readouterr()
        return status, out + err

    status, said = command("--unpack-limit", "1MB")
    assert (status, "unpacks to more than 1,000,000 bytes" in said) == (1, True)
    assert "FAILED" in said
    for size in ("1 boat", "0MB"):
        status, said = command("--unpack-limit", size)
        assert (status, "--unpack-limit: a size must be bytes" in said) == (2, True)
    monkeypatch.setenv("GATEDJAX_UNPACK_LIMIT", "2MiB")
    assert "unpacks to more than 2,097,152 bytes" in command()[1]
    status, said = command("--unpack-limit", "51MB")
    assert (status, "unpacks to more" in said) == (1, False)  # zeros, but they were read
    monkeypatch.setenv("GATEDJAX_UNPACK_LIMIT", "much")
    with pytest.raises(ValueError, match="GATEDJAX_UNPACK_LIMIT"):
        data.load("sst", "train", manual_dir=trees)


def test_preparing_refuses_a_bomb_before_it_writes(trees, tmp_path, capsys):
    target = tmp_path / "prepared"
    args = ["--manual-dir", str(trees), "--data-dir", str(target), "--unpack-limit", "1MB"]
    assert main(["data", "prepare", "sst", *args]) == 2
    assert "train.txt.gz: unpacks to more than 1,000,000" in capsys.readouterr().err
    assert not target.exists()


@pytest.mark.parametrize(
    ("text", "size"), [("5", 5), ("2GiB", 2 << 30), ("500MB", 500 * MB), (" 1 KiB ", 1024)]
)
def test_sizes_are_read(text, size):
    assert _unpack.parse_size(text) == size


# archives that are more than their members ----------------------------------------------------


def test_many_small_members_may_not_be_more_than_the_archive_allows(tmp_path):
    reviews = {f"aclImdb/train/pos/{i}_9.txt": bytes(MB) for i in range(4)}
    tar(tmp_path / "aclImdb_v1.tar.gz", **reviews)
    with pytest.raises(ValueError, match=r"aclImdb_v1.tar.gz: .*1,000,000"):
        data.load("imdb", "train", manual_dir=tmp_path, unpack_limit=MB)
    with pytest.raises(ValueError, match="no usable line"):
        data.load("imdb", "train", manual_dir=tmp_path, unpack_limit=5 * MB)


def test_a_good_archive_may_have_more_than_the_limit_if_it_is_large_itself(tmp_path):
    # like Daily Mail: each question is small, all together are gigabytes
    noise = np.random.default_rng(0).integers(97, 122, (8, 40_000), np.uint8)
    reviews = {f"aclImdb/train/{'pos' if i % 2 else 'neg'}/{i}_9.txt": x.tobytes()
               for i, x in enumerate(noise)}  # fmt: skip
    tar(tmp_path / "aclImdb_v1.tar.gz", **reviews)
    assert len(data.load("imdb", "train_full", manual_dir=tmp_path, unpack_limit=50_000)) == 8


def test_a_header_of_an_archive_is_not_read_without_end(tmp_path):
    # the comment of a member, which tarfile reads whole
    pax = tarfile.TarInfo("aclImdb/train/pos/0_9.txt")
    pax.pax_headers = {"comment": "x" * (20 * MB)}
    with tarfile.open(tmp_path / "aclImdb_v1.tar.gz", "w:gz", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(pax)
    with (
        little_memory(20 * MB),
        pytest.raises(ValueError, match=r"aclImdb_v1.tar.gz: .*1,000,000"),
    ):
        data.load("imdb", "train", manual_dir=tmp_path, unpack_limit=LIMIT)


def test_holes_of_members_count_for_the_archive(tmp_path):
    with tarfile.open(tmp_path / "aclImdb_v1.tar.gz", "w:gz", format=tarfile.PAX_FORMAT) as archive:
        for number in range(4):
            member = tarfile.TarInfo(f"aclImdb/train/pos/{number}_9.txt")
            member.pax_headers = {"GNU.sparse.map": "0,0", "GNU.sparse.size": str(MB // 2)}
            archive.addfile(member)
    with pytest.raises(ValueError, match=r"aclImdb_v1.tar.gz: .*1,000,000"):
        data.load("imdb", "train", manual_dir=tmp_path, unpack_limit=MB)


def test_a_zip_gives_no_more_than_its_directory_states(tmp_path):
    path = lying_zip(tmp_path, bytes(50 * MB), 10)
    with little_memory():
        assert ArchivePath(path, "a").read_bytes() == bytes(10)
    path = lying_zip(tmp_path, TREE, 60)
    with pytest.raises(ValueError, match="must have 60 bytes, as its directory states, got 19"):
        ArchivePath(path, "a").read_bytes()
    path = lying_zip(tmp_path, TREE, 19)
    assert ArchivePath(path, "a").read_bytes() == TREE
    path.write_bytes(path.read_bytes().replace(struct.pack("<L", zlib.crc32(TREE)), bytes(4)))
    with pytest.raises(ValueError, match="damaged zip file: Bad CRC"):
        ArchivePath(path, "a").read_bytes()


def lying_zip(folder, content, stated):
    """A zip whose directory states another size, with the CRC of the content cut to it."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = packer.compress(content) + packer.flush()
    crc = zlib.crc32(content[:stated])
    flags = 8  # the sizes are behind the data
    local = struct.pack("<4s5H3L2H", b"PK\3\4", 20, flags, 8, 0, 33, 0, 0, 0, 1, 0) + b"a"
    entry = struct.pack(
        "<4s6H3L5H2L",
        *(b"PK\1\2", 20, 20, flags, 8, 0, 33, crc, len(packed), stated, 1, 0, 0, 0, 0, 0, 0),
    ) + b"a"  # fmt: skip
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 1, 1, len(entry), len(local) + len(packed), 0)
    path = folder / "lie.zip"
    path.write_bytes(local + packed + entry + end)
    return path


def test_a_zip_packed_in_another_way_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr("a", bytes(1000))
    with pytest.raises(ValueError, match="stored or deflated, got compression method 12"):
        ArchivePath(tmp_path / "a.zip", "a").read_bytes()


def test_a_tar_file_whose_first_name_begins_like_a_zip_file_is_a_tar_file(tmp_path):
    assert ArchivePath(tar(tmp_path / "a.tar", "w", PKG=b"x"), "PKG").read_bytes() == b"x"
    zipfile.ZipFile(tmp_path / "empty.zip", "w").close()
    with pytest.raises(ValueError, match="must contain PKG, got none"):
        ArchivePath(tmp_path / "empty.zip", "PKG").read_bytes()


# word vectors ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_bomb_of_word_vectors_is_refused(tmp_path):
    path = tmp_path / "vectors.txt.gz"
    words = data.Vocabulary(["the"])
    load = lambda: data.load_embeddings(path, words, dim=2, unpack_limit=LIMIT)  # noqa: E731
    path.write_bytes(BOMB)  # one line of 50 MB
    with little_memory(), pytest.raises(ValueError, match=r"line 1: .*1,048,576"):
        load()
    path.write_bytes(gzip.compress(b"the 0.5 0.5\n" * 200_000))
    with little_memory(), pytest.raises(ValueError, match=r"txt.gz: .*1,000,000"):
        load()
    path.write_bytes(gzip.compress(b"the 0.5 0.25\n"))
    np.testing.assert_array_equal(load().matrix[2], [0.5, 0.25])
