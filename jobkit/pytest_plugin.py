"""Fixtures for applications that use jobkit. Loaded in every pytest run, so it imports nothing at its top."""
