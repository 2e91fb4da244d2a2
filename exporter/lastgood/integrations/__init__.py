"""Watch a job whose training loop belongs to a framework: Hugging Face's ``Trainer``, Lightning.

Each function returns the framework's own kind of callback; the keywords are those of :func:`lastgood.watch`. The
frameworks are imported when they are used. Accelerate needs none of this: its prepared model and optimizer are what
``watch`` takes. Where a framework reaches no hook of ours, the steps of ``watch`` are documented in docs/training.md.
"""

from __future__ import annotations

from lastgood.integrations.hf_trainer import hf_callback
from lastgood.integrations.lightning_trainer import lightning_callback

__all__ = ["hf_callback", "lightning_callback"]
