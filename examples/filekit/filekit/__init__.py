"""Example workers for jobkit: facts, thumbnails and a catalogue of a folder's files."""
