/* SPDX-License-Identifier: BSD-3-Clause */
#include "usdt/reference.h"
#include "util/compiler.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "util/for_args.h"

static const struct probe {
	const char *name, *help;
	const struct {
		const char *type, *name, *help;
	} args[6]; /* one more than there may be, so that the last has no name */
} probes[] = {
#define ARG(c_, type_, name_, help_)  {#type_, #name_, help_},
#define USDT_PROBE(name_, help_, ...) {#name_, help_, {FOR_ARGS(ARG, , ##__VA_ARGS__)}},
#include "usdt/probes.def"
};
enum { NUM_PROBES = ARRAY_SIZE(probes) };

/* A line `usdt:__EXE__:NAME`. */
static bool script_uses(const char *path, const char *probe)
{
	char line[512], wanted[128];
	bool found = false;
	FILE *f = fopen(path, "r");

	snprintf(wanted, sizeof(wanted), "usdt:__EXE__:%s\n", probe);
	while (f != NULL && !found && fgets(line, sizeof(line), f) != NULL) {
		found = strcmp(line, wanted) == 0;
	}
	if (f != NULL) {
		fclose(f);
	}
	return found;
}

static void print_scripts(FILE *out, const char *probe, char *const *scripts, int num_scripts)
{
	int printed = 0;

	for (int i = 0; i < num_scripts; i++) {
		const char *slash = strrchr(scripts[i], '/');
		if (script_uses(scripts[i], probe)) {
			fprintf(out, "%s%s",
				printed++ > 0 ? ", " : "\nScripts: ", slash != NULL ? slash + 1 : scripts[i]);
		}
	}
	if (printed > 0) {
		fputs(".\n", out);
	}
}

static void print_probe(FILE *out, const struct probe *p)
{
	fprintf(out, "\n### %s\n\n%s\n", p->name, p->help);
	if (p->args[0].name != NULL) {
		fputs("\n| argument | type | name | what it is |\n| --- | --- | --- | --- |\n", out);
	}
	for (unsigned i = 0; p->args[i].name != NULL; i++) {
		fprintf(out, "| arg%u | %s | %s | %s |\n", i + 1, p->args[i].type, p->args[i].name, p->args[i].help);
	}
}

void usdt_print_reference(FILE *out, char *const *scripts, int num_scripts)
{
	fputs("<!-- SPDX-License-Identifier: BSD-3-Clause -->\n"
	      "<!-- Written by build/usdt/probes-page usdt/bt/*.bt from usdt/probes.def; do not edit. -->\n"
	      "# Probes\n\n"
	      "Every USDT probe of varve (provider `varve`), when it fires and what its arguments are. arg0 "
	      "of each is the\n"
	      "TSC at the event. How to use them: [usdt.md](usdt.md).\n",
	      out);
	for (int i = 0; i < NUM_PROBES; i++) {
		print_probe(out, &probes[i]);
		print_scripts(out, probes[i].name, scripts, num_scripts);
	}
}
