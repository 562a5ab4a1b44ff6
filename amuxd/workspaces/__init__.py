"""Directories that sessions work in: git worktrees that amux made, or directories that it was given."""
