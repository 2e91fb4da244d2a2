"""Turn an incident into files for other people: canonical JSON with a published schema, and one offline HTML page."""
