"""Objects of other libraries, taken apart without importing those libraries."""
