/* SPDX-License-Identifier: BSD-3-Clause */
/* Prints an answer of the daemon for people or programs. Texts of the daemon cannot control the terminal
 * (tools/safe-text.h). Pure, but for the output. */
#ifndef TOOLS_PRINT_PRINT_H
#define TOOLS_PRINT_PRINT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum print_format {
	PRINT_JSON,
	PRINT_TABLE, /* columns that do not fit into the width are left out, and counted */
	PRINT_WIDE,  /* all columns, members of inner objects too */
	PRINT_YAML,
};

/* The format of that name (json, table, wide, yaml), or -1. */
int print_format_find(const char *name);

/* Prints value. width: of a PRINT_TABLE in columns; 0: without a limit. */
void print_value(const json_t *value, enum print_format format, unsigned width, FILE *out);

/* Room for what print_size() writes. */
enum { PRINT_SIZE_MAX = 24 };
/* Writes a number of bytes in powers of 1024: "512", "64.0M", "1.4G". Returns to. */
const char *print_size(uint64_t bytes, char to[PRINT_SIZE_MAX]);

/* The columns of the terminal that stdout is; 0: it is none. */
unsigned print_terminal_width(void);

/* The parts, for print_value() only. */
void print_table_text(const json_t *value, bool wide, unsigned width, FILE *out);
void print_yaml_text(const json_t *value, FILE *out);

#endif
