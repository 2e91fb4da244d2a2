"""Page scripts, run by Streamlit through the router ``lastgood_console/app.py``."""
