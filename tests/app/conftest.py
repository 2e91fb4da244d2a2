"""Fixtures of the console's tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.app.metrics_server import Metrics


@pytest.fixture(autouse=True)
def empty_cache() -> Iterator[None]:
    """Streamlit's caches outlive a page test: empty them, where Streamlit is in use at all."""
    yield
    import sys

    if "streamlit" in sys.modules:
        import streamlit as st

        st.cache_data.clear()
        st.cache_resource.clear()


@pytest.fixture
def metrics() -> Iterator[Metrics]:
    """Return a metrics server that answers as a test says."""
    from tests.app.metrics_server import Metrics

    server = Metrics()
    yield server
    server.close()
