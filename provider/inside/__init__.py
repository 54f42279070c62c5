"""Programs that run inside a sandbox, each one file that needs nothing but Python."""
