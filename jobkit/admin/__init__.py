"""Administration: the only door through which the command line and every dashboard read and act.

`Reads` shows, `Actions` changes; both act for an `Actor`. Invariants: no page and no command writes SQL;
everything that is shown went through the redactor, and nothing is found by what redaction hides; every
action is checked, is conditional on the state at the moment of writing, and leaves one audit row.
"""
