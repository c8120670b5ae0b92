# SPDX-License-Identifier: BSD-3-Clause
"""Prints the rate of this machine's time stamp counter, which emulated CPUs have too, in kHz. Used by vm.sh."""
import ctypes
import mmap
import time

RDTSC = b"\x0f\x31\x48\xc1\xe2\x20\x48\x09\xd0\xc3"     # rdtsc; shl $32, %rdx; or %rdx, %rax; ret


def moment():
    """(ns, ticks) as close together as a busy machine lets us have them."""
    def take():
        before, ticks, after = time.monotonic_ns(), counter(), time.monotonic_ns()
        return after - before, before + (after - before) // 2, ticks
    return min(take() for _ in range(50))[1:]


page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
page.write(RDTSC)
counter = ctypes.CFUNCTYPE(ctypes.c_uint64)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
start, first = moment()
time.sleep(0.05)
end, last = moment()
print((last - first) * 1_000_000 // (end - start))
