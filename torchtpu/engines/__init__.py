"""The ways of running: each builds Programs from operator calls. No operator-specific code."""
