"""Every format of checkpoint on disk: read without running anything, compared name by name, damage named."""

from __future__ import annotations

import io
import pickle
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from tests.app.checkpoint_cases import FORMATS, flip, recorded, trained

from lastgood import checkpoint_verify, checkpoints

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled:UserWarning")
formats = pytest.mark.parametrize("format", FORMATS)


class Saved:
    """A checkpoint in one format; ``file`` holds tensor "2.weight"."""

    def __init__(self, path: Path, format: str) -> None:
        self.path = path
        self.model, self.optimizer = trained()
        self.file = FORMATS[format](path, self.model, self.optimizer)
        recorded(path, self.model, self.optimizer)

    def verify(self) -> int:
        return checkpoint_verify.main([str(self.path)])


@formats
def test_untouched_bytes_pass(tmp_path: Path, format: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert Saved(tmp_path / "save", format).verify() == 0
    out = capsys.readouterr().out
    assert "all 27 tensors have the bytes that were saved by attempt 1 at step 50." in out
    assert "not" not in out


@formats
@pytest.mark.parametrize("what", ["2.weight", "2.weight/exp_avg_sq"])
def test_a_flipped_bit_on_disk_names_the_tensor(
    tmp_path: Path, format: str, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = Saved(tmp_path / "save", format)
    weight = saved.model.get_parameter("2.weight")
    flip(saved.file, weight if what == "2.weight" else saved.optimizer.state[weight]["exp_avg_sq"])
    assert saved.verify() == 1
    out = capsys.readouterr().out
    assert "26 of 27 tensors have the bytes" in out
    assert f"  {what} differs" in out
    assert out.count("differs") == 1


@formats
def test_a_truncated_file_is_never_passed(tmp_path: Path, format: str, capsys: pytest.CaptureFixture[str]) -> None:
    saved = Saved(tmp_path / "save", format)
    size = saved.file.stat().st_size
    saved.file.write_bytes(saved.file.read_bytes()[: size - 70])
    assert saved.verify() in {1, 2}
    said = capsys.readouterr()
    assert f"{saved.file.name} has {size - 70} of {size} bytes" in said.out + said.err


@pytest.mark.parametrize("format", [f for f in FORMATS if not f.startswith("torch")])
def test_a_truncated_file_names_the_tensors_that_it_lost(
    tmp_path: Path, format: str, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = Saved(tmp_path / "save", format)
    saved.file.write_bytes(saved.file.read_bytes()[:-4])
    assert saved.verify() == 1
    out = capsys.readouterr().out
    assert "cannot be read: " in out
    assert f"{saved.file.name} ends 4 bytes too early" in out


@pytest.mark.parametrize("format", ["torch, a file per rank", "dcp", "safetensors, sharded"])
def test_a_missing_file_is_said(tmp_path: Path, format: str, capsys: pytest.CaptureFixture[str]) -> None:
    saved = Saved(tmp_path / "save", format)
    saved.file.unlink()
    assert saved.verify() == 1
    out = capsys.readouterr().out
    assert f"{saved.file.name} is missing" in out
    if "rank" not in format:
        assert "2.weight" in out


def test_a_missing_shard_is_known_from_the_index_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = Saved(tmp_path / "save", "safetensors, sharded")
    where = checkpoints.record_path(saved.path)
    where.write_text(where.read_text().replace('"files"', '"other"'))
    saved.file.unlink()
    assert saved.verify() == 1
    out = capsys.readouterr().out
    assert "is missing: model.safetensors.index.json says that it holds tensors" in out
    assert "not found in the checkpoint: 2.weight" in out


def test_a_distributed_save_that_was_not_finished_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = Saved(tmp_path / "save", "dcp")
    (saved.path / ".metadata").unlink()
    assert saved.verify() == 2
    err = capsys.readouterr().err
    assert ".metadata is missing: the save was not finished" in err
    assert err.count("\n") == 1


def test_the_bad_copy_of_one_rank_is_not_hidden_by_the_good_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = Saved(tmp_path / "save", "torch, a file per rank")
    flip(saved.path / "rank-2.pt", saved.model.get_parameter("0.weight"))
    assert saved.verify() == 1
    assert "0.weight differs in rank-2.pt" in capsys.readouterr().out


def test_buffers_that_each_rank_has_of_its_own_need_not_be_alike(tmp_path: Path) -> None:
    saved = Saved(tmp_path / "save", "torch, a file per rank")
    other = torch.load(saved.file, weights_only=True)
    other["model"]["1.running_mean"] += 1
    torch.save(other, saved.file)
    assert saved.verify() == 0


def test_pieces_in_a_file_per_rank_are_put_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "pieces"
    path.mkdir()
    model, optimizer = trained()
    for rank in range(12):  # more than ten: rank-10 comes behind rank-9
        state = {name: list(t.tensor_split(12))[rank] if t.dim() else t for name, t in model.state_dict().items()}
        numbered: Any = optimizer.state_dict()
        numbered["state"] = {
            n: {k: t.tensor_split(12)[rank] if t.dim() else t for k, t in s.items()}
            for n, s in numbered["state"].items()
        }
        torch.save({"model": {k: t.clone() for k, t in state.items()}, "optimizer": numbered}, path / f"rank-{rank}.pt")
    recorded(path, model, optimizer)
    assert checkpoint_verify.main([str(path)]) == 0, capsys.readouterr().out
    flip(path / "rank-1.pt", model.state_dict()["0.weight"][1])
    assert checkpoint_verify.main([str(path)]) == 1
    assert "0.weight differs" in capsys.readouterr().out


def test_a_file_that_holds_more_than_tensors_is_left_out_and_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = Saved(tmp_path / "save", "safetensors, sharded")
    torch.save({"arguments": Path("x")}, saved.path / "training_args.bin")
    assert saved.verify() == 0
    assert "not checked: training_args.bin holds more than tensors" in capsys.readouterr().out


def test_a_framework_that_nests_folders_is_read(tmp_path: Path) -> None:
    path = tmp_path / "save"
    path.mkdir()
    model, optimizer = trained()
    dcp.save({"model": model.state_dict()}, checkpoint_id=path / "pytorch_model_fsdp_0", no_dist=True)
    dcp.save({"optimizer": optimizer.state_dict()}, checkpoint_id=path / "optimizer_0", no_dist=True)
    recorded(path, model, optimizer)
    assert checkpoint_verify.main([str(path)]) == 0


def test_parts_that_dcp_wrote_as_safetensors_are_put_together(tmp_path: Path) -> None:
    path = tmp_path / "save"
    model, _ = trained()
    writer = dcp.HuggingFaceStorageWriter(str(path), save_distributed=True)
    dcp.save(model.state_dict(), storage_writer=writer, no_dist=True)
    recorded(path, model)
    assert checkpoint_verify.main([str(path)]) == 0


# files from outside


class Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return (open, ("exploded", "w"))


@pytest.mark.parametrize("bomb", [Bomb(), {"a": Bomb()}, type("X", (), {})])
def test_metadata_that_would_run_code_is_refused(
    tmp_path: Path, bomb: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    saved = Saved(tmp_path / "save", "dcp")
    data = io.BytesIO()
    pickler = pickle._Pickler(data)  # type: ignore[attr-defined]
    try:
        pickler.dump(bomb)
    except Exception:
        data = io.BytesIO(b"cos\nsystem\n(S'touch exploded'\ntR.")
    (saved.path / ".metadata").write_bytes(data.getvalue())
    assert saved.verify() == 2
    assert "which no distributed checkpoint needs" in capsys.readouterr().err
    assert not Path("exploded").exists()


def test_a_part_that_would_run_code_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    saved = Saved(tmp_path / "save", "dcp")
    places = dcp.FileSystemReader(saved.path).read_metadata().storage_data
    place = next(info for index, info in places.items() if index.fqn == "model.2.weight")
    blob = io.BytesIO()
    torch.save(Bomb(), blob)
    data = bytearray(saved.file.read_bytes())
    data[place.offset : place.offset + place.length] = blob.getvalue().ljust(place.length, b"\0")
    saved.file.write_bytes(data)
    assert saved.verify() == 1
    assert f"2.weight cannot be read: {saved.file.name} cannot be read at byte" in capsys.readouterr().out
    assert not Path("exploded").exists()


def test_metadata_that_names_a_file_elsewhere_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = Saved(tmp_path / "save", "dcp")
    where = saved.path / ".metadata"
    where.write_bytes(where.read_bytes().replace(b"__0_0.distcp", b"../../../etc"))
    assert saved.verify() == 2
    assert "names the file '../../../etc': it must be one inside the checkpoint" in capsys.readouterr().err


@pytest.mark.parametrize("content", [b"", b"\x00" * 40, pickle.dumps({"a": 1}), pickle.dumps([1]), b"\x80\x04."])
def test_metadata_that_is_none_is_said_in_one_line(
    tmp_path: Path, content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = Saved(tmp_path / "save", "dcp")
    (saved.path / ".metadata").write_bytes(content)
    assert saved.verify() == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x02",
        struct.pack("<Q", 1 << 60) + b"{}",
        struct.pack("<Q", 2) + b"[]",
        struct.pack("<Q", 20) + b'{"a": {"dtype": "F"}}',
        struct.pack("<Q", 62) + b'{"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}',
    ],
)
def test_a_file_that_is_no_safetensors_is_said_in_one_line(
    tmp_path: Path, content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = Saved(tmp_path / "save.safetensors", "safetensors")
    saved.file.write_bytes(content)
    assert saved.verify() == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_sizes_that_no_file_can_hold_take_no_memory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = Saved(tmp_path / "save.safetensors", "safetensors")
    header = b'{"2.weight": {"dtype": "F32", "shape": [1099511627776], "data_offsets": [0, 4398046511104]}}'
    saved.file.write_bytes(struct.pack("<Q", len(header)) + header + b"\0" * 64)
    assert saved.verify() == 1
    assert "2.weight cannot be read: save.safetensors ends 4398046511040 bytes too early" in capsys.readouterr().out
