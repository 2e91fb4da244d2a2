"""The console, the HTTP API, the exports and the command line. Never imports torch."""
