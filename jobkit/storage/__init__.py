"""The only room that speaks SQL: tables, statements, engines, migrations.

Invariant: each change of a job's state in the whole project is a statement of this package.
"""
