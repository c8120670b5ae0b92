# SPDX-License-Identifier: BSD-3-Clause
"""varve in gdb: commands that show its objects in a live process or a core, and printers for its structures."""
from . import bdev, doctor, inflight, nvmf, printers, thread, trace


def register():
    for module in (bdev, thread, nvmf, inflight, trace, doctor):
        module.register()
    printers.register()
