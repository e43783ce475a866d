"""The CPU back end: ops under the names and signatures of `inkling_core.ops`, made for serving.

Not a definition: every function here is held to its namesake in `inkling_core.ops` by tests.
"""

from inkling_core.backend import Backend

CPU = Backend("cpu")
