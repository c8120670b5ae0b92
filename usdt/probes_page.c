/* SPDX-License-Identifier: BSD-3-Clause */
/* probes-page usdt/bt/SCRIPT.bt... > doc/probes.md */
#include "usdt/reference.h"

int main(int argc, char **argv)
{
	usdt_print_reference(stdout, argv + 1, argc - 1);
	return 0;
}
