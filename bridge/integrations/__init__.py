"""Enqueueing through other libraries' connections, one thin module a library.

Nothing here is loaded by `import bridge`; each module needs its library and no other.
"""

from __future__ import annotations
