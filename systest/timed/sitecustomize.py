# SPDX-License-Identifier: BSD-3-Clause
"""Python that finds this in its path writes a time before each line of its standard error: seconds since the moment (CLOCK_MONOTONIC) in VARVE_TEST_BEGUN."""
import os
import sys
import time


class TimedLines:
    def __init__(self, to, begun):
        self.to, self.begun, self.at_start = to, begun, True

    def write(self, text):
        if text and self.at_start:
            self.to.write(f"{time.monotonic() - self.begun:8.3f} s  ")
        self.at_start = text.endswith("\n") if text else self.at_start
        return self.to.write(text)

    def __getattr__(self, name):
        return getattr(self.to, name)


if "VARVE_TEST_BEGUN" in os.environ:
    sys.stderr = TimedLines(sys.stderr, float(os.environ["VARVE_TEST_BEGUN"]))
