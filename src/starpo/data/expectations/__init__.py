"""Great Expectations suites between the stages, one per kind of data.

Importing Great Expectations costs seconds: only :mod:`starpo.data.expectations.suite` and the suites themselves do
it, and they are imported when the first suite is due.
"""
