"""Watch a Lightning ``Trainer``.

The callback attaches when training starts, once the strategy has wrapped the module. From then on ``training_step``
runs inside ``monitor.loss`` and the trainer's saves inside ``monitor.checkpoint``. A replay calls the module's
``training_step`` itself, with its logging switched off.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import lastgood


def lightning_callback(**settings: Any) -> Any:
    """Return a ``Callback``: ``Trainer(callbacks=[lightning_callback(run_dir=...)])``.

    ``settings``: the keywords of :func:`lastgood.watch`. After a resume the checkpoint is verified against its record,
    where it has one. For automatic optimization.
    """
    from lightning.pytorch import Callback

    watching = _Watching(settings)

    class LastgoodCallback(Callback):  # type: ignore[misc, unused-ignore]
        """Attach when training starts, let go when it ends or fails."""

        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            """Watch the wrapped module."""
            watching.begin(trainer, pl_module)

        def on_train_end(self, trainer: Any, pl_module: Any) -> None:
            """Audit the last steps."""
            watching.end(None)

        def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
            """Say how the attempt ended."""
            watching.end(exception)

    return LastgoodCallback()


class _Watching:
    """What one training of a trainer holds."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.monitor: lastgood.Monitor | None = None
        self.trainer: Any = None
        self.module: Any = None
        self.training_step: Any = None
        self.save: Any = None

    def begin(self, trainer: Any, module: Any) -> None:
        """Attach, say where the run goes on, and stand around the step and the saves."""
        strategy = trainer.strategy
        self.trainer, self.module = trainer, module
        self.training_step, self.save = strategy.training_step, trainer.save_checkpoint
        settings = {"accumulation": trainer.accumulate_grad_batches, **self.settings}
        self.monitor = lastgood.watch(
            strategy.model,
            strategy.optimizers,
            loss_fn=self._loss_fn,
            scaler=getattr(trainer.precision_plugin, "scaler", None),
            **settings,
        )
        if trainer.global_step:
            self.monitor.resume(trainer.ckpt_path, step=trainer.global_step)
        strategy.training_step, trainer.save_checkpoint = self._training_step, self._save

    def end(self, error: BaseException | None) -> None:
        """Put the methods back, then audit; after an exception only say so."""
        if self.monitor is None:
            return
        self.trainer.strategy.training_step, self.trainer.save_checkpoint = self.training_step, self.save
        monitor, self.monitor = self.monitor, None
        monitor.__exit__(None if error is None else type(error), error, None)

    def _loss_fn(self, model: Any, arguments: tuple[Any, ...]) -> Any:
        if model is self.trainer.strategy.model:
            out = self.training_step(*arguments)
        else:
            with self.trainer.precision_plugin.train_step_context(), _silent(self.module):
                out = self.module.training_step(*arguments)
        return (out["loss"] if isinstance(out, dict) else out), out

    def _training_step(self, *arguments: Any) -> Any:
        return self.training_step(*arguments) if self.monitor is None else self.monitor.loss(arguments)[1]

    def _save(self, filepath: Any, *arguments: Any, **options: Any) -> Any:
        if self.monitor is None:
            return self.save(filepath, *arguments, **options)
        with self.monitor.checkpoint(filepath):
            return self.save(filepath, *arguments, **options)


@contextmanager
def _silent(module: Any) -> Iterator[None]:
    """Let a step log nothing: what a replay computes is not the rank's own."""
    quiet = {"log": lambda *_, **__: None, "log_dict": lambda *_, **__: None}
    kept = {name: module.__dict__[name] for name in quiet if name in module.__dict__}
    module.__dict__.update(quiet)
    try:
        yield
    finally:
        for name in quiet:
            module.__dict__.pop(name)
        module.__dict__.update(kept)
