"""A character transformer that trains on a laptop: two blocks, about a quarter of a million parameters.

It has a little dropout on purpose: replaying a step then needs the random state of the rank that ran it.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from lastgood.demo.text import IGNORED_TARGET, VOCABULARY

CONTEXT = 64
"""Characters the model looks back on."""

Batch = tuple[torch.Tensor, torch.Tensor]


class Block(nn.Module):
    """Causal self-attention and a feed-forward layer, each with a residual."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.norm_attention = nn.LayerNorm(width)
        self.attention = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)
        self.norm_feed = nn.LayerNorm(width)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return ``x`` (rows x length x width) with attention and feed-forward added."""
        x = x + self.dropout(self.attend(self.norm_attention(x)))
        out: torch.Tensor = x + self.dropout(self.feed(self.norm_feed(x)))
        return out

    def attend(self, x: torch.Tensor) -> torch.Tensor:
        """Return what every position takes from the positions before it."""
        rows, length, width = x.shape
        query, key, value = self.attention(x).view(rows, length, 3, self.heads, width // self.heads).unbind(2)
        mixed = F.scaled_dot_product_attention(
            query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), is_causal=True
        )
        out: torch.Tensor = self.projection(mixed.transpose(1, 2).reshape(rows, length, width))
        return out


class CharacterTransformer(nn.Module):
    """Predict the next character at every position."""

    def __init__(self, width: int = 96, blocks: int = 2, heads: int = 4, dropout: float = 0.05) -> None:
        super().__init__()
        self.characters = nn.Embedding(len(VOCABULARY), width)
        self.positions = nn.Embedding(CONTEXT, width)
        self.blocks = nn.Sequential(*(Block(width, heads, dropout) for _ in range(blocks)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, len(VOCABULARY), bias=False)

    def forward(self, characters: torch.Tensor) -> torch.Tensor:
        """Return the logits (rows x length x vocabulary) for ``characters`` (rows x length, int64)."""
        places = torch.arange(characters.shape[1], device=characters.device)
        hidden = self.blocks(self.characters(characters) + self.positions(places))
        logits: torch.Tensor = self.head(self.norm(hidden))
        return logits


def loss_of(model: nn.Module, batch: Batch) -> torch.Tensor:
    """Return the mean cross-entropy in nats per character; not a number when every target is ignored."""
    inputs, targets = batch
    logits = model(inputs)
    loss: torch.Tensor = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED_TARGET)
    return loss
