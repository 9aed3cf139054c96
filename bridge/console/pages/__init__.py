"""The console's pages, one a file."""
