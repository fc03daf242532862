"""Delta's specification as values and codecs: actions, types, checkpoints, vectors, features.

Pure. Source: PROTOCOL.md, by section in each module.
"""
