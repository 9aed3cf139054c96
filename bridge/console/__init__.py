"""The operator's pages in a browser: see, decide, act, prove."""
