"""Bridges into other frameworks; each imports its framework only when it is used."""
