"""Workloads: one file each, found by the name of its configuration."""
