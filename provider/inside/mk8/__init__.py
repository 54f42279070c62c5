"""mk8.shell inside a sandbox: what its verbs do, and what none of them may. Only the standard library."""
