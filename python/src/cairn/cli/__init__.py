"""The command `cairn`: one file per command.

Layer: cli (top; nothing imports it).
"""
