"""The report: what the files of several runs say, gathered and drawn as one HTML page."""
