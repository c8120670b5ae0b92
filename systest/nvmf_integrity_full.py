#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# limit: 1200
# budget: VARVE_SECONDS=15
# long
# beside
"""nvmf_integrity.py's changes under verified I/O, for minutes."""
import os
import sys

os.environ.setdefault("VARVE_SECONDS", "90")    # of each of the two
from appliance_lib import main  # noqa: E402
from nvmf_integrity import (  # noqa: E402,F401
    test_verified_io_survives_all_changes, test_verified_io_survives_all_changes_without_srq_and_with_few_buffers)

if __name__ == "__main__":
    main(sys.modules[__name__])
