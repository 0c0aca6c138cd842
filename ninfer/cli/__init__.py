"""The command line. Knows nothing that could not be done through the other packages."""
