# SPDX-License-Identifier: BSD-3-Clause
"""The decision tree of doc/operations.md as a program, which changes nothing."""
