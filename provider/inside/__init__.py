"""Programs that run inside a sandbox, each a package that needs nothing but Python."""
