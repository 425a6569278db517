"""Tools of those who release the package; none of them is installed."""
