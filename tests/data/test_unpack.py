"""Files in archives: they are read without unpacking the archive, and damage is reported."""

import gzip
import io
import struct
import tarfile
import zipfile
import zlib

import pytest

from gatedjax import data
from gatedjax.data.files._unpack import ArchivePath, Damaged, members

TREE = b"(3 (2 A) (3 good))\n"


def tar(path, mode="w:gz", **members):
    with tarfile.open(path, mode) as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def test_a_packed_file_and_members_of_archives_are_read(tmp_path):
    (tmp_path / "train.txt.gz").write_bytes(gzip.compress(TREE))
    assert len(data.load("sst", "train", manual_dir=tmp_path)) == 1
    inside = {"a/x": b"1", "a/y": b"2", "b/x": b"3"}
    # the name of an archive may be wrong, so its content decides how it is packed
    for mode in ("w", "w:gz", "w:bz2", "w:xz"):
        path = tar(tmp_path / "archive.tgz", mode, **inside)
        assert list(members(path, lambda name: name[0] == "a")) == [("a/x", b"1"), ("a/y", b"2")]
        assert ArchivePath(path, "b/x").read_bytes() == b"3"


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
def test_a_damaged_archive_is_reported(mode, tmp_path):
    path = tar(tmp_path / "a.tar", mode, x=bytes(range(256)) * 400)
    whole = path.read_bytes()
    for content in (whole[: len(whole) // 2], b"", b"no archive"):
        path.write_bytes(content)
        with pytest.raises(Damaged, match=r"a\.tar: truncated or damaged archive") as caught:
            list(members(path, lambda name: True))
        assert "\n" not in str(caught.value)


def test_a_zip_has_what_its_directory_states(tmp_path):
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


def test_a_tar_file_whose_first_name_begins_like_a_zip_file_is_a_tar_file(tmp_path):
    assert ArchivePath(tar(tmp_path / "a.tar", "w", PKG=b"x"), "PKG").read_bytes() == b"x"
    zipfile.ZipFile(tmp_path / "empty.zip", "w").close()
    with pytest.raises(ValueError, match="must contain PKG, got none"):
        ArchivePath(tmp_path / "empty.zip", "PKG").read_bytes()
