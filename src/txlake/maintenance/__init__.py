"""Maintenance by itself: what a lake's tables need, in which order it is done, and by whom.

`needs`, `policy` and `order` decide, without I/O. `survey` reads what they decide by, `claims`
shares the tables among processes, `work` does what is due by the statements that users type, and
`maintainer` is one round of all that.
"""
