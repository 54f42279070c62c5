"""Performance claims, each a ratio against a peer measured in the same run. `make bench`; begin at `__main__.py`."""
