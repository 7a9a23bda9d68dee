"""Sets up what tells muster of torch's memory, then lets the sitecustomize run that would
have run without it. See muster's README, "observe"."""
import sys

try:
    import muster_observe
    _again = muster_observe.leave(__file__)
    muster_observe.install()
except Exception:
    _again = True  # it could not be told: the next line must not find this file once more
if _again:
    _error = ImportError("No module named 'sitecustomize'")
    _error.name = "sitecustomize"  # module site takes that for none at all
    raise _error
# This file's folder is not in sys.path any more, so this finds the next one, or fails as
# it would have failed.
del sys.modules["sitecustomize"]
import sitecustomize  # noqa: E402,F401
