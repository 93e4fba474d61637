"""The formats of files: each module turns the content of one file into a title and text."""
