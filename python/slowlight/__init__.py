"""Clients of slowlight's interfaces, with Python's standard library alone."""
