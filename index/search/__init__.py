"""One search for HTTP and the command line: modes, fusion, collapse, calibration."""
