"""Commands of `outbox-bridge`; each module is imported when its command is called."""
