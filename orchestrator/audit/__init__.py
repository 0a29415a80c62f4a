"""The audit: whatever a record says that can be derived from the rest of it is derived again.

Rules of this package:
- One module a subject. A rule has one stable name, `subject.what-holds`, and says for each finding the
  JSON path, what was expected and what was found. Nothing stops at the first finding.
- Derived numbers are compared exactly, in the order of arithmetic of their writer. Where two clocks
  meet there is a tolerance, with its reason beside it.
- An audit needs a record and the standard library: no torch, and no NumPy, arrays on disk included. What
  defines the task is written here again and not imported from the task process: its word is what is
  audited.
- Pure, but for `artefacts` (a run folder's files) and `evidence` (which files to audit).

What this package leaves to others: form and types (`models`, `schemas/`), and whether sound evidence has
the right bits (`verdict`).
"""
