"""A lake's tools for agents, by the Model Context Protocol: they read all, and write on branches.

| module | owns |
| --- | --- |
| `tools` | what each tool does, by served SQL and its rules |
| `app` | the tools in the protocol's form, over standard input and output or HTTP |
"""

from __future__ import annotations
