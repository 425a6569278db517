"""What any program of this kind needs and no mathematics: arguments, files, threads, progress, words."""
