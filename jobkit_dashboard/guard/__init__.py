"""What stands in front of every page: limits, hosts, sessions, forgery checks and headers.

Invariant: each check is a plain function of what the request says, so that a table of cases tests it.
"""
