"""Ratios against other software, one file per question."""
