"""Leaves a worker's environment as its launcher made it, in $ENVIRON_DIR.

Python imports this before any script where PYTHONPATH names its folder.
"""

import json
import os

if "RANK" in os.environ:
    with open(os.path.join(os.environ["ENVIRON_DIR"], os.environ["RANK"] + ".json"), "x") as file:
        json.dump(dict(os.environ), file)
