# SPDX-License-Identifier: BSD-3-Clause
# Completion of varve's programs in fish: varve-complete knows what there is.
function __varve_complete
    set -l words (commandline -opc)
    set -l helper (dirname (command -v $words[1]))
    if test -x $helper/varve-complete
        set helper $helper/varve-complete
    else
        set helper $helper/../lib/varve/varve-complete
    end
    $helper $words (commandline -ct | string collect -a) 2>/dev/null
end
for program in varve varve-rpc varve-ctl varve-cluster varve-trace varve-top varve-doctor varve-perf varve-lvol varve-gateway
    complete -c $program -a '(__varve_complete)'
end
