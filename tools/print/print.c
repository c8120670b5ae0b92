/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/print/print.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "tools/safe-text.h"
#include "util/parse.h"

#define DEFAULT_WIDTH 80

int print_format_find(const char *name)
{
	static const char *const names[] = {"json", "table", "wide", "yaml"};

	for (int i = 0; i < (int)(sizeof(names) / sizeof(names[0])); i++) {
		if (strcmp(names[i], name) == 0) {
			return i;
		}
	}
	return -1;
}

const char *print_size(uint64_t bytes, char to[PRINT_SIZE_MAX])
{
	static const char units[] = "KMGTPE";
	double scaled = (double)bytes;
	int unit = -1;

	while (scaled >= 1023.95 && unit < 5) { /* 1023.95 would be shown as 1024.0 */
		scaled /= 1024;
		unit++;
	}
	if (unit < 0) {
		snprintf(to, PRINT_SIZE_MAX, "%u", (unsigned)bytes);
	} else {
		snprintf(to, PRINT_SIZE_MAX, "%.1f%c", scaled, units[unit]);
	}
	return to;
}

unsigned print_terminal_width(void)
{
	struct winsize size = {0};
	const char *columns = getenv("COLUMNS");
	uint64_t number;

	if (!isatty(STDOUT_FILENO)) {
		return 0;
	}
	if (columns != NULL && parse_uint64(columns, 20, 10000, &number) == 0) {
		return (unsigned)number;
	}
	return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col != 0 ? size.ws_col : DEFAULT_WIDTH;
}

static void print_json_text(const json_t *value, FILE *out)
{
	char *text = json_dumps(value, JSON_INDENT(2) | JSON_ENCODE_ANY);

	if (text != NULL) {
		fprintf(out, "%s\n", text);
	}
	free(text);
}

void print_value(const json_t *value, enum print_format format, unsigned width, FILE *out)
{
	char *text = NULL;
	size_t len = 0;
	FILE *memory = open_memstream(&text, &len);

	if (memory == NULL) {
		return;
	}
	switch (format) {
	case PRINT_TABLE:
	case PRINT_WIDE:
		print_table_text(value, format == PRINT_WIDE, width, memory);
		break;
	case PRINT_YAML:
		print_yaml_text(value, memory);
		break;
	default:
		print_json_text(value, memory);
	}
	fclose(memory);
	safe_text_print(out, text, len);
	free(text);
}
