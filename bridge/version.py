"""The version of the distribution, read by the build and shown by `outbox-bridge --version`."""

__version__ = "0.1.0"
