"""The doctor: what in this installation, machine, settings and location would stop a job.

Layer: doctor. Each check looks, and changes nothing unless it is allowed to write. A package that
is missing is a finding: nothing here imports one of them when it is loaded.
"""
