# SPDX-License-Identifier: BSD-3-Clause
# Completion of varve's programs in bash: varve-complete knows what there is.
_varve_complete() {
	local line=${COMP_LINE:0:COMP_POINT} words command helper word prefix
	read -ra words <<<"$line"
	command=${words[0]}
	[[ $line == *[[:space:]] ]] && words+=("")
	word=${words[-1]}
	helper=$(command -v "$command") || return
	helper=${helper%/*}
	[ -x "$helper/varve-complete" ] && helper+=/varve-complete || helper+=/../lib/varve/varve-complete
	# bash has split the word where = and : stand; what is before the last of them is on the line already.
	prefix=${word%"${word##*[=:]}"}
	COMPREPLY=()
	while IFS= read -r word; do
		COMPREPLY+=("${word#"$prefix"}")
	done < <("$helper" "$command" "${words[@]:1}" 2>/dev/null)
	if [ ${#COMPREPLY[@]} = 1 ] && [[ ${COMPREPLY[0]} == *= ]]; then
		compopt -o nospace 2>/dev/null
	fi
}
complete -o default -F _varve_complete varve varve-rpc varve-ctl varve-cluster varve-trace varve-top varve-doctor varve-perf varve-lvol varve-gateway
