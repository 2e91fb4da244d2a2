"""Draw parts of pages: plain functions from a run's state to HTML text or altair charts. None imports streamlit."""
