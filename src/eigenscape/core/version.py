"""The version of this package, where the build, the command line and every record of a measurement take it from.

It stands in the source, so that a checkout that is not installed (`PYTHONPATH=src`) knows it, too.
"""

VERSION = "0.1.0"
