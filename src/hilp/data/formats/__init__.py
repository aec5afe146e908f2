"""Readers: one file a format, or a family of them."""
