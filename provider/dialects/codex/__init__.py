"""The Codex contract, begun: its pure parts, each with its tests. No tool uses them yet."""
