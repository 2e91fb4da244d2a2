"""Train by Hugging Face's Trainer, Accelerate and Lightning on the ranks of one gloo job, clean and with each fault."""

from __future__ import annotations

import os
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves
from torch.utils.data import DataLoader, Dataset
from training_job import armed, batch_of, case, events, failure, run_cases
from ways_job import ALL, FAULTS

import lastgood
from lastgood.faults import Injector
from lastgood.fingerprint import digest_tensors
from lastgood.integrations import hf_callback, lightning_callback

CADENCE = {"replica_every": 4, "replay_every": 4, "at_rest_every": 3, "state_every": 8, "metrics_port": 0}


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


def told(root: Path, text: str, digest: str = "") -> dict[str, Any]:
    journal = root / "run" / "journal"
    if not journal.exists():
        dist.barrier()
        return {"digest": digest, "text": text}
    return {
        "digest": digest,
        "text": text,
        "not_run": events(root, "run.started")[0]["not_run"],
        "checks": sorted({(e["check"], e["phase"], e["result"]) for e in events(root, "check")}),
        "injected": len(events(root, "injection")),
        "findings": [(e["check"], e["ranks"]) for e in events(root, "finding")],
        "verdicts": [e["status"] for e in events(root, "verdict")],
        "started": [(e["from_step"], e["parent_verified"]) for e in events(root, "run.started")],
        "saved": [e["step"] for e in events(root, "checkpoint.saved")],
        "last": [e["last_step"] for e in events(root, "run.ended")],
    }


def everything(model: nn.Module, optimizer: Any) -> str:
    """Digest weights, buffers and the optimizer's state, also of an optimizer that a framework wrapped."""
    inner: Any = getattr(optimizer, "optimizer", optimizer)
    leaves = [leaf for leaf in tree_leaves(list(inner.state.values())) if isinstance(leaf, Tensor)]
    tensors = [*model.named_parameters(), *model.named_buffers(), *((str(n), leaf) for n, leaf in enumerate(leaves))]
    return digest_tensors(tensors, lanes=2).hex()


def unarmed() -> Injector:
    return Injector(FAULTS["replay"], rank=dist.get_rank())


def examined(root: Path, train: Any, save: str) -> Any:
    """Run without lastgood, with it, with each fault, and on from the clean run's save of step 6."""
    torch.manual_seed(0)
    return {
        "plain": train(root / "plain", None),
        "clean": train(root / "clean", unarmed()),
        "faults": {name: train(root / name, armed(FAULTS[name])) for name in ALL},
        "resumed": train(root / "clean", unarmed(), root / "clean" / save),
    }


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
        return told(root, text, everything(model, trainer.optimizer))

    return examined(root, train, "out/checkpoint-6")


@case
def accelerate(root: Path) -> Any:
    from accelerate import Accelerator

    def train(root: Path, injector: Injector | None, resume: Path | None = None) -> Any:
        torch.manual_seed(0)
        accelerator = Accelerator(cpu=True)
        model = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 4))
        optimizer: Any = torch.optim.AdamW(model.parameters(), 1e-2)
        inner = model
        wrapped, optimizer = accelerator.prepare(model, optimizer)
        done = 0
        if resume is not None:
            accelerator.load_state(str(resume))
            done = 6
        monitor = None
        if injector is not None:
            injector.wrap(inner[0])
            monitor = lastgood.watch(
                wrapped, optimizer, loss_fn=mean_square, run_dir=root / "run", injector=injector, **CADENCE
            )
        if monitor and resume is not None:
            monitor.resume(resume, step=done)

        def loop() -> None:
            for step in range(done + 1, 9):
                with accelerator.accumulate(wrapped):
                    loss = monitor.loss(batch_of(step)) if monitor else mean_square(wrapped, batch_of(step))
                    accelerator.backward(loss)
                    optimizer.step()
                    optimizer.zero_grad()
                if step == 6:
                    with monitor.checkpoint(root / "save") if monitor else nullcontext():
                        accelerator.save_state(str(root / "save"))

        text = failure(loop)
        if monitor:
            monitor.close()
        return told(root, text, everything(inner, optimizer))

    return examined(root, train, "save")


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
        digest = everything(module, trainer.optimizers[0])
        return told(root, text, digest) | {"logged": float(trainer.callback_metrics.get("loss", 0))}

    return examined(root, train, "step=6.ckpt")


if __name__ == "__main__":
    os.environ["NODE_RANK"], os.environ["LOCAL_RANK"] = os.environ["RANK"], "0"
    run_cases()
