"""Answer over HTTP beside the pages, on the same port.

:mod:`.operations` is one table of what can be asked; :mod:`.routes` makes the routes of it and :mod:`.openapi` the
OpenAPI document, so the two cannot differ. :mod:`.handlers` answer, :mod:`.access` says who may read, and
:mod:`.front` stands before Streamlit, which would answer any unknown path with a page and status 200.
"""
