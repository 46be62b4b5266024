"""Documents and files: one version is read, and no error loses an old file."""

from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path

import pytest

from metakel import KernelSum
from metakel._files import Format, write_atomically, write_file
from metakel.errors import CannotWrite, InputError
from metakel.kernels import legendre

FORMAT = Format("test.Thing", version=3, noun="thing")
KERNEL = KernelSum.uniform(legendre(3, scaling="l2"))


def loaded(data, what=None):
    with FORMAT.load(data, what) as content:
        return content


def test_a_document_gives_its_content_back():
    assert loaded(FORMAT.dump({"c": 5})) == {"c": 5}


@pytest.mark.parametrize("version", [0, 2, 4, None, "3", 3.0, True, [3]])
def test_other_versions_are_refused(version):
    with pytest.raises(InputError, match=r"version .*; expected 'test\.Thing', version 3"):
        loaded({"format": "test.Thing", "version": version})


@pytest.mark.parametrize("data", [None, 7, "x", [], {}, {"format": "other", "version": 3}])
def test_other_formats_are_refused(data):
    with pytest.raises(InputError, match=r"^stored thing has format"):
        loaded(data)
    with pytest.raises(InputError, match=r"^here has format"):
        loaded(data, "here")


def test_what_the_reader_finds_wrong_names_the_file(tmp_path):
    path = tmp_path / "thing.json"
    write_file(path, FORMAT.dump({"c": 5}))
    with pytest.raises(InputError, match=r"thing\.json: c is odd"), FORMAT.read_file(path):
        raise InputError("c is odd")
    with pytest.raises(InputError, match=r"thing\.json is damaged"), FORMAT.read_file(path) as data:
        data["d"]
    for text in (b"{", b"\xff\xfe", b""):
        path.write_bytes(text)
        with (
            pytest.raises(InputError, match=r"thing\.json is not a saved thing"),
            FORMAT.read_file(path),
        ):
            pass
    with pytest.raises(InputError, match="there is no file"), FORMAT.read_file(tmp_path / "no"):
        pass
    with (
        pytest.raises(InputError, match="is a folder; expected a file"),
        FORMAT.read_file(tmp_path),
    ):
        pass


def test_numbers_are_read_back_bit_by_bit(tmp_path):
    numbers = [0.1, 1 / 3, 5e-324, 1.7976931348623157e308, -0.0, 2**70]
    write_file(tmp_path / "x.json", FORMAT.dump({"c": numbers}))
    with FORMAT.read_file(tmp_path / "x.json") as content:
        assert repr(content["c"]) == repr(numbers)


def no_space(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("step", ["fsync", "replace", "chmod"])
def test_a_full_disk_leaves_the_old_file_and_no_other(tmp_path, monkeypatch, step):
    path = tmp_path / "kernel.json"
    KERNEL.save(path)
    before = path.read_bytes()
    monkeypatch.setattr(os, step, no_space)
    with pytest.raises(CannotWrite, match=r"kernel\.json cannot be written: No space left"):
        KERNEL.scaled(2.0).save(path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["kernel.json"]


def test_an_interrupt_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    path = tmp_path / "page.html"
    write_atomically(path, "old")

    def interrupt(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["page.html"]


def test_the_file_and_then_its_folder_are_synced(tmp_path, monkeypatch):
    synced, fsync = [], os.fsync

    def note(descriptor):
        synced.append(stat.S_ISDIR(os.fstat(descriptor).st_mode))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    write_atomically(tmp_path / "x", "text")
    assert synced == [False, True]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no such device here")
def test_devices_are_written_to_and_stay_devices():
    with pytest.raises(CannotWrite, match="No space left"):
        write_atomically("/dev/full", "text")
    write_atomically(os.devnull, "text")
    for device in ("/dev/full", os.devnull):
        assert stat.S_ISCHR(os.stat(device).st_mode)


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="no such device here")
@pytest.mark.parametrize("name", ["/dev/zero", "/dev/full", "fifo", "/"])
def test_devices_pipes_and_folders_are_not_read(name, tmp_path):
    # Reading the first two takes all memory, and opening a pipe may wait for ever.
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(InputError, match="expected a file"), FORMAT.read_file(tmp_path / name):
        pass


def test_places_that_cannot_be_written_are_named(tmp_path):
    for path in (tmp_path, tmp_path / "absent" / "x.json"):
        with pytest.raises(CannotWrite, match="cannot be written"):
            write_atomically(path, "text")


def test_permissions_are_those_of_any_new_file_or_of_the_old_one(tmp_path):
    (tmp_path / "plain").write_text("")
    write_atomically(tmp_path / "new", "text")
    assert (tmp_path / "new").stat().st_mode == (tmp_path / "plain").stat().st_mode
    (tmp_path / "new").chmod(0o640)
    write_atomically(tmp_path / "new", "other")
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640


def test_a_private_file_is_never_open_to_others(tmp_path, monkeypatch):
    path, sync, modes = tmp_path / "x", os.fsync, []

    def synced(descriptor: int) -> None:
        modes.append(os.fstat(descriptor))
        sync(descriptor)

    path.write_text("old")
    path.chmod(0o600)
    monkeypatch.setattr(os, "fsync", synced)
    write_atomically(path, "new")
    assert [stat.S_IMODE(m.st_mode) for m in modes if stat.S_ISREG(m.st_mode)] == [0o600]


@pytest.mark.skipif(os.access("/", os.W_OK), reason="root may write to every file")
def test_a_protected_file_is_not_replaced(tmp_path):
    (tmp_path / "x").write_text("old")
    (tmp_path / "x").chmod(0o444)
    with pytest.raises(CannotWrite, match="Permission denied"):
        write_atomically(tmp_path / "x", "new")
    assert (tmp_path / "x").read_text() == "old"


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "target").write_text("old")
    (tmp_path / "link").symlink_to("target")
    write_atomically(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text() == "new"


def test_what_json_cannot_hold_leaves_the_old_file(tmp_path):
    write_file(tmp_path / "x.json", FORMAT.dump({"c": 1}))
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_file(tmp_path / "x.json", FORMAT.dump({"c": float("nan")}))
    assert json.loads((tmp_path / "x.json").read_text())["c"] == 1


def test_brackets_within_brackets_are_refused(tmp_path):
    path = tmp_path / "deep"
    path.write_text("[" * 100_000)
    with pytest.raises(InputError, match="deep is not a saved thing"), FORMAT.read_file(path):
        pass
