"""Watch Hugging Face's ``Trainer``.

The callback attaches when training begins, once the trainer has wrapped the model. From then on the trainer's
``compute_loss`` runs inside ``monitor.loss`` and its saves inside ``monitor.checkpoint``; both are put back at the end.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch

import lastgood


def hf_callback(trainer: Any, **settings: Any) -> Any:
    """Return a ``TrainerCallback`` for this trainer: ``trainer.add_callback(hf_callback(trainer, run_dir=...))``.

    ``settings``: the keywords of :func:`lastgood.watch`. After a resume the checkpoint is verified against its record,
    where it has one.
    """
    from transformers import TrainerCallback

    watching = _Watching(trainer, settings)

    class LastgoodCallback(TrainerCallback):  # type: ignore[misc, unused-ignore]
        """Attach at the beginning of training, let go at its end."""

        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            """Watch the wrapped model."""
            watching.begin(int(state.global_step))

        def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            """Audit the last steps."""
            watching.end()

    return LastgoodCallback()


class _Watching:
    """What one training of a trainer holds."""

    def __init__(self, trainer: Any, settings: dict[str, Any]) -> None:
        self.trainer, self.settings = trainer, settings
        self.monitor: lastgood.Monitor | None = None
        self.compute_loss, self.save = trainer.compute_loss, trainer._save_checkpoint

    def begin(self, step: int) -> None:
        """Attach, say where the run goes on, and stand around the loss and the saves."""
        trainer = self.trainer
        settings = {"accumulation": trainer.args.gradient_accumulation_steps, **self.settings}
        self.monitor = lastgood.watch(
            trainer.model_wrapped,
            trainer.optimizer,
            loss_fn=self._loss_fn,
            scaler=getattr(trainer.accelerator, "scaler", None),
            **settings,
        )
        if step:
            self.monitor.resume(self._path(step), step=step)
        trainer.compute_loss, trainer._save_checkpoint = self._compute_loss, self._save

    def end(self) -> None:
        """Put the trainer's methods back, then audit."""
        self.trainer.compute_loss, self.trainer._save_checkpoint = self.compute_loss, self.save
        if self.monitor is not None:
            self.monitor.close()

    def _path(self, step: int) -> Path:
        given = self.trainer.args.resume_from_checkpoint
        return Path(given) if given else Path(self.trainer.args.output_dir) / f"checkpoint-{step}"

    def _loss_fn(self, model: Any, batch: Any) -> Any:
        inputs, items = batch
        return self.compute_loss(model, dict(inputs), num_items_in_batch=items)  # it takes keys out of its inputs

    def _compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        if return_outputs or not torch.is_grad_enabled() or self.monitor is None:
            return self.compute_loss(model, inputs, return_outputs, num_items_in_batch)
        return self.monitor.loss((dict(inputs), num_items_in_batch))

    def _save(self, model: Any, trial: Any) -> Any:
        if self.monitor is None:
            return self.save(model, trial)
        folder = os.path.join(self.trainer._get_output_dir(trial=trial), f"checkpoint-{self.trainer.state.global_step}")
        with self.monitor.checkpoint(folder):
            return self.save(model, trial)
