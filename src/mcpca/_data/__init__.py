"""From whatever the user has to rows of named contexts: formats, labels, names, blocks."""
