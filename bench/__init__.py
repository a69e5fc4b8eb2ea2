"""Benchmarks of one PyTorch script on TPU, CUDA and CPU under one timing contract."""
