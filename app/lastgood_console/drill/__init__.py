"""Measure the detector: ``lastgood drill`` breaks devices in many ways in real training and scores what is found."""

from lastgood_console.drill.command import main

__all__ = ["main"]
