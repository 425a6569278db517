"""``MCPCA`` itself: fitting from every form of input, and its file."""
