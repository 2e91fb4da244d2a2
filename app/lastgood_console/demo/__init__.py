"""Show what lastgood is for: ``lastgood demo`` trains, breaks one device on purpose, and tells what came of it."""

from lastgood_console.demo.command import main

__all__ = ["main"]
