"""Turn an incident into files for other people: canonical JSON with a published schema, CSV, Markdown, offline HTML."""
