"""Chaos: real faults in random rounds, and a strict reckoning after each."""
