"""Train by Hugging Face's Trainer, Accelerate and Lightning on the ranks of one gloo job, clean and with a fault."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from training_job import armed, batch_of, case, events, failure, run_cases

import lastgood
from lastgood.faults import Fault, Injector
from lastgood.fingerprint import digest_tensors
from lastgood.integrations import hf_callback, lightning_callback

FAULT = Fault(site="gradient", kind="scale", rank=1, step=4)
CADENCE = {"replica_every": 4, "replay_every": 4, "metrics_port": 0}


class Rows(Dataset[Any]):
    """48 rows: eight steps of two rows on each of three ranks."""

    def __init__(self, tokens: bool) -> None:
        self.tokens = tokens

    def __len__(self) -> int:
        return 48

    def __getitem__(self, index: int) -> Any:
        made = torch.Generator().manual_seed(index)
        if not self.tokens:
            return torch.randn(16, generator=made)
        ids = torch.randint(60, (8,), generator=made)
        return {"input_ids": ids, "labels": ids}


def told(root: Path, text: str, weights: str = "") -> dict[str, Any]:
    journal = root / "run" / "journal"
    if not journal.exists():
        dist.barrier()
        return {"weights": weights, "text": text}
    return {
        "weights": weights,
        "text": text,
        "not_run": events(root, "run.started")[0]["not_run"],
        "checks": sorted({(e["check"], e["phase"], e["result"]) for e in events(root, "check")}),
        "findings": [(e["check"], e["ranks"]) for e in events(root, "finding")],
        "started": [(e["from_step"], e["parent_verified"]) for e in events(root, "run.started")],
        "saved": [e["step"] for e in events(root, "checkpoint.saved")],
        "last": [e["last_step"] for e in events(root, "run.ended")],
    }


def three(root: Path, train: Any) -> Any:
    """Run without lastgood, with it, and with a fault."""
    torch.manual_seed(0)
    plain = train(root / "plain", None)
    return [plain, train(root / "clean", Injector(FAULT, rank=dist.get_rank())), train(root / "fault", armed(FAULT))]


@case
def hugging_face(root: Path) -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

    def train(root: Path, injector: Injector | None, resume: Path | None = None) -> Any:
        torch.manual_seed(0)
        model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=8, n_embd=16, n_layer=1, n_head=2))
        args = TrainingArguments(
            str(root / "out"), per_device_train_batch_size=2, num_train_epochs=1, save_steps=6, use_cpu=True,
            report_to=[], disable_tqdm=True, ddp_backend="gloo", logging_steps=100, gradient_accumulation_steps=1,
        )  # fmt: skip
        trainer = Trainer(model, args, train_dataset=Rows(tokens=True))
        if injector is not None:
            injector.wrap(model.transformer.h[0].mlp.c_fc)
            trainer.add_callback(hf_callback(trainer, run_dir=root / "run", injector=injector, **CADENCE))
        text = failure(lambda: trainer.train(resume_from_checkpoint=str(resume) if resume else None))
        return told(root, text, digest_tensors(model.named_parameters(), lanes=2).hex())

    seen = three(root, train)
    return [*seen, train(root / "clean", Injector(FAULT, rank=dist.get_rank()), root / "clean/out/checkpoint-6")]


@case
def accelerate(root: Path) -> Any:
    from accelerate import Accelerator

    def train(root: Path, injector: Injector | None) -> Any:
        torch.manual_seed(0)
        accelerator = Accelerator(cpu=True)
        model = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 4))
        optimizer: Any = torch.optim.AdamW(model.parameters(), 1e-2)
        inner = model
        wrapped, optimizer = accelerator.prepare(model, optimizer)
        monitor = None
        if injector is not None:
            injector.wrap(inner[0])
            monitor = lastgood.watch(
                wrapped, optimizer, loss_fn=mean_square, run_dir=root / "run", injector=injector, **CADENCE
            )

        def loop() -> None:
            for step in range(1, 9):
                with accelerator.accumulate(wrapped):
                    loss = monitor.loss(batch_of(step)) if monitor else mean_square(wrapped, batch_of(step))
                    accelerator.backward(loss)
                    optimizer.step()
                    optimizer.zero_grad()

        text = failure(loop)
        if monitor:
            monitor.close()
        return told(root, text, digest_tensors(inner.named_parameters(), lanes=2).hex())

    return three(root, train)


def mean_square(model: nn.Module, batch: Tensor) -> Tensor:
    loss: Tensor = model(batch).square().mean()
    return loss


@case
def lightning(root: Path) -> Any:
    import lightning.pytorch as pl
    from lightning.pytorch.callbacks import ModelCheckpoint
    from lightning.pytorch.strategies import DDPStrategy

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(16, 8), nn.Dropout(0.1), nn.Linear(8, 4))

        def training_step(self, batch: Tensor, index: int) -> Tensor:
            loss: Tensor = self.net(batch).square().mean()
            self.log("loss", loss, on_epoch=True)
            return loss

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters(), 1e-2)

    def train(root: Path, injector: Injector | None, resume: Path | None = None) -> Any:
        torch.manual_seed(0)
        module = Module()
        callbacks: list[Any] = [ModelCheckpoint(root, "{step}", every_n_train_steps=6)]
        if injector is not None:
            injector.wrap(module.net[0])
            callbacks.append(lightning_callback(run_dir=root / "run", injector=injector, **CADENCE))
        trainer = pl.Trainer(
            max_epochs=1, accelerator="cpu", devices=1, num_nodes=3, strategy=DDPStrategy(process_group_backend="gloo"),
            logger=False, enable_progress_bar=False, enable_model_summary=False,
            callbacks=callbacks, default_root_dir=root,
        )  # fmt: skip
        text = failure(lambda: trainer.fit(module, DataLoader(Rows(tokens=False), batch_size=2), ckpt_path=resume))
        if not text and injector is not None:
            assert trainer.callback_metrics["loss"].isfinite()
        weights = digest_tensors(module.named_parameters(), lanes=2).hex()
        return told(root, text, weights) | {"logged": float(trainer.callback_metrics.get("loss", 0))}

    seen = three(root, train)
    return [*seen, train(root / "clean", Injector(FAULT, rank=dist.get_rank()), root / "clean/step=6.ckpt")]


if __name__ == "__main__":
    os.environ["NODE_RANK"], os.environ["LOCAL_RANK"] = os.environ["RANK"], "0"
    run_cases()
