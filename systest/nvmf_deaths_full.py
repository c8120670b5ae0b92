#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# limit: 1800
# long
# beside
"""nvmf_deaths.py with 200 hosts that are killed, and 20 restarts of the target, half of them by kill -9."""
import os
import sys

os.environ.setdefault("VARVE_KILLS", "200")
os.environ.setdefault("VARVE_RESTARTS", "10")
from appliance_lib import main  # noqa: E402
from nvmf_deaths import (  # noqa: E402,F401
    test_a_target_killed_under_a_host_is_found_again_with_all_data, test_a_target_stopped_under_a_host_is_found_again_with_all_data,
    test_hosts_killed_at_random_points_leave_nothing_and_disturb_nobody)

if __name__ == "__main__":
    main(sys.modules[__name__])
