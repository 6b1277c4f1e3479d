"""The command `cairn`: one command a file.

Layer: cli (top; nothing imports it).
"""
