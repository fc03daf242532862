"""The engines, a module each with `measure(meter)`.

`python -m bench.far.engines TASK` measures one task, given as JSON, in a process of its own.
"""
