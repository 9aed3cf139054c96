"""The relay process: claim, publish, settle, rescue."""
