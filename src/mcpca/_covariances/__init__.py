"""From rows to products with the covariances of contexts: as an array, on a device, or by passes over rows."""
