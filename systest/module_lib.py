# SPDX-License-Identifier: BSD-3-Clause
"""What system tests do with a module of block devices is in its folder, bdev_modules/NAME/systest.py. All of it is optional:

    PASSING                 methods that change nothing that is saved in a configuration, beside the *_get_* ones
    ELSEWHERE               methods that need what is not on every machine (a cluster): a system test of their own saves and loads what they make
    class Steps             mixed into config_random_lib.Maker. STEPS names its methods that are one random thing each that an operator may do: all
                            methods of the module that are not PASSING must take part, and some step must leave bdevs to be saved
    answers(call, folder)   calls methods with call(METHOD, **params), which holds the answers against their shapes; leaves nothing behind
    stock(folder)           what control software sends: a list of (method, parameters, expected) as stock_lib.play() takes it
"""
import functools
import importlib.util
import re
import subprocess

from appliance_lib import BUILD, DEADLINE, TOP, check


@functools.cache
def modules():
    """By name, those of the modules that this varve was built with that have a systest.py."""
    text = subprocess.run([BUILD / "bin/varve", "-h"], capture_output=True, text=True, timeout=DEADLINE, check=True).stdout
    names = re.search(r"^Modules of block devices in this program:(.*)$", text, re.M)
    check(names, f"varve -h names no modules: {text}")
    found = {}
    for name in names[1].split():
        path = TOP / "bdev_modules" / name / "systest.py"
        if path.exists():
            spec = importlib.util.spec_from_file_location(f"bdev_modules_{name}_systest", path)
            found[name] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(found[name])
    return found


def of_modules(what):
    """That attribute of each module that has it."""
    return [getattr(m, what) for m in modules().values() if hasattr(m, what)]
