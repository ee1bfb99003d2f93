"""Tests of what users write."""

from .samplers import check_sampler

__all__ = ["check_sampler"]
