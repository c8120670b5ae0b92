/* SPDX-License-Identifier: BSD-3-Clause */
#include "usdt/bt/script.h"

#include <ctype.h>
#include <string.h>

#define POINT_END " \t\r\n{," /* what no attach point has outside of strings */

static const char usdt[] = "usdt:", spdk_provider[] = ":spdk:";

/* Probes that guides for SPDK's users name and varve lacks: doc/compat.md says the same. */
static const struct {
	const char *name, *why;
} lacking[] = {
	{"nvmf_tgt_pause_polling", "the polling of a target is never paused as a whole"},
	{"nvmf_tgt_resume_polling", "the polling of a target is never paused as a whole"},
};

static bool bt_is_name(char c)
{
	return isalnum((unsigned char)c) || c == '_';
}

static bool bt_begins_with(const char *text, const char *word)
{
	return strncmp(text, word, strlen(word)) == 0;
}

static size_t bt_until(const char *text, const char *end)
{
	const char *found = strstr(text, end);

	return found != NULL ? (size_t)(found - text) + strlen(end) : strlen(text);
}

/* The length of a string literal that begins at `text`. */
static size_t bt_string_length(const char *text)
{
	size_t n = 1;

	while (text[n] != '\0' && text[n] != '"') {
		n += text[n] == '\\' && text[n + 1] != '\0' ? 2 : 1;
	}
	return n + (text[n] == '"');
}

/* The length of a preprocessor line, with the lines that it is continued on. */
static size_t bt_directive_length(const char *text)
{
	size_t n = 0;

	while (text[n] != '\0' && text[n] != '\n') {
		n += text[n] == '\\' && text[n + 1] != '\0' ? 2 : 1;
	}
	return n;
}

/* The length of what is no code at `text`: a comment, a string, or a preprocessor line. 0: there is code. */
static size_t bt_skip(const char *text, bool at_line_start)
{
	if (bt_begins_with(text, "//")) {
		return strcspn(text, "\n");
	}
	if (bt_begins_with(text, "/*")) {
		return 2 + bt_until(text + 2, "*/");
	}
	if (*text == '"') {
		return bt_string_length(text);
	}
	return at_line_start && *text == '#' ? bt_directive_length(text) : 0;
}

/* Whether a preprocessor line may begin behind these bytes: behind a line's end, white space and comments. */
static bool bt_stays_at_line_start(bool at_line_start, const char *text, size_t len)
{
	return text[len - 1] == '\n' ||
	       (at_line_start && ((len == 1 && strchr(" \t\r", *text) != NULL) || bt_begins_with(text, "/*")));
}

void bt_script_maps(const char *text, void (*see)(void *arg, const char *name, size_t len), void *arg)
{
	bool at_line_start = true;

	while (*text != '\0') {
		size_t n = bt_skip(text, at_line_start);

		if (n == 0) {
			n = 1;
			while (*text == '@' && bt_is_name(text[n])) {
				n++;
			}
			if (n > 1) {
				see(arg, text + 1, n - 1);
			}
		}
		at_line_start = bt_stays_at_line_start(at_line_start, text, n);
		text += n;
	}
}

/* Writes `len` bytes with the placeholders in them replaced. */
static void bt_write_replaced(FILE *out, const char *text, size_t len, const struct bt_script *script)
{
	const struct {
		const char *name, *value;
	} placeholders[] = {{"__EXE__", script->exe}, {"__PID__", script->pid}, {"__TSC_KHZ__", script->tsc_khz}};

	for (const char *end = text + len; text < end;) {
		size_t n = 1;

		for (size_t i = 0; i < sizeof(placeholders) / sizeof(placeholders[0]) && n == 1; i++) {
			if (bt_begins_with(text, placeholders[i].name)) {
				fputs(placeholders[i].value, out);
				n = strlen(placeholders[i].name);
			}
		}
		if (n == 1) {
			fputc(*text, out);
		}
		text += n;
	}
}

/* Where in a script the writer is. */
struct bt_place {
	unsigned depth; /* of braces */
	bool in_clause; /* behind the beginning of: attach points, perhaps a filter, a block */
	enum { BT_OTHER, BT_BEGIN, BT_END } block;
	bool had_begin, had_end;
	bool any_probe, any_left_out; /* clauses */
};

/* The length of what no byte of `end` is in; strings may have any bytes. */
static size_t bt_field_length(const char *text, const char *end)
{
	size_t n = 0;

	while (text[n] != '\0' && strchr(end, text[n]) == NULL) {
		n += text[n] == '"' ? bt_string_length(text + n) : 1;
	}
	return n;
}

/* The length of an attach point, usdt:PATH:NAME, usdt:PATH:PROVIDER:NAME, or one of another kind. A filter or a comment
 * may follow a probe's name at once. */
static size_t bt_point_length(const char *text)
{
	if (!bt_begins_with(text, usdt)) {
		return bt_field_length(text, POINT_END);
	}
	size_t n = strlen(usdt);

	n += bt_field_length(text + n, POINT_END ":");
	for (unsigned names = 0; text[n] == ':' && names < 2; names++) {
		n++;
		n += bt_field_length(text + n, POINT_END ":/");
	}
	return n;
}

/* Writes the attach point of a probe, with our provider in place of spdk. */
static size_t bt_write_usdt(FILE *out, const char *text, const struct bt_script *script)
{
	size_t len = bt_point_length(text);
	const char *provider = strstr(text, spdk_provider);

	if (provider == NULL || provider >= text + len) {
		bt_write_replaced(out, text, len, script);
		return len;
	}
	const char *name = provider + strlen(spdk_provider);

	fprintf(out, "usdt:%s:varve:", script->exe);
	bt_write_replaced(out, name, len - (size_t)(name - text), script);
	return len;
}

/* Remembers that a word outside of all blocks is BEGIN or END, and not part of a path or an expression. */
static void bt_note_block(const char *word, size_t len, struct bt_place *place)
{
	const char *next = word + len + strspn(word + len, " \t\r\n");

	if (*next != '{' && *next != ',') {
		return;
	}
	if (len == strlen("BEGIN") && bt_begins_with(word, "BEGIN")) {
		place->block = BT_BEGIN;
	} else if (len == strlen("END") && bt_begins_with(word, "END")) {
		place->block = BT_END;
	}
}

/* The length of what separates the parts of a clause: white space and comments. */
static size_t bt_gap(const char *text)
{
	size_t n = 0, len;

	do {
		len = strspn(text + n, " \t\r\n");
		if (text[n + len] == '/') {
			len += bt_skip(text + n + len, false);
		}
		n += len;
	} while (len > 0);
	return n;
}

/* An attach point of a list; what separates it from the one before, without its comma, is in front of it. */
struct bt_point {
	const char *text;
	size_t len;
	const char *gaps[2]; /* before the comma and behind it */
	size_t gap_lens[2];
	const char *name, *why; /* of a probe that varve lacks; otherwise NULL */
};

static void bt_point_look(struct bt_point *p, const char *text)
{
	p->text = text;
	p->len = bt_point_length(text);
	p->name = p->why = NULL;
	size_t name_len = 0;

	while (name_len < p->len && bt_is_name(text[p->len - name_len - 1])) {
		name_len++;
	}
	const char *name = text + p->len - name_len;

	for (size_t i = 0; i < sizeof(lacking) / sizeof(lacking[0]); i++) {
		if (bt_begins_with(text, usdt) && name[-1] == ':' && name_len == strlen(lacking[i].name) &&
		    bt_begins_with(name, lacking[i].name)) {
			p->name = lacking[i].name;
			p->why = lacking[i].why;
		}
	}
}

/* Goes on to the next point of the list. False: there is none. */
static bool bt_point_next(struct bt_point *p)
{
	const char *end = p->text + p->len;

	p->gaps[0] = end;
	p->gap_lens[0] = bt_gap(end);
	end += p->gap_lens[0];
	if (*end != ',') {
		return false;
	}
	p->gaps[1] = end + 1;
	p->gap_lens[1] = bt_gap(end + 1);
	bt_point_look(p, end + 1 + p->gap_lens[1]);
	return p->len > 0;
}

/* How many points of the list that begins at `text` varve has, and how many it lacks. */
static void bt_list_count(const char *text, unsigned *kept, unsigned *left_out)
{
	struct bt_point p;

	*kept = *left_out = 0;
	bt_point_look(&p, text);
	do {
		*(p.name == NULL ? kept : left_out) += 1;
	} while (bt_point_next(&p));
}

/* The length of a clause from the end of its list to the brace that ends it. */
static size_t bt_clause_length(const char *text)
{
	bool at_line_start = false;
	size_t n = 0, len;
	unsigned depth = 0;

	while (text[n] != '\0') {
		len = bt_skip(text + n, at_line_start);
		depth += text[n] == '{';
		if (text[n] == '}' && (depth == 0 || --depth == 0)) {
			return n + 1;
		}
		len = len > 0 ? len : 1;
		at_line_start = bt_stays_at_line_start(at_line_start, text + n, len);
		n += len;
	}
	return n;
}

static void bt_write_newlines(FILE *out, const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		if (text[i] == '\n') {
			fputc('\n', out);
		}
	}
}

static size_t bt_write_usdt(FILE *out, const char *text, const struct bt_script *script);

/* Writes the points of a list that varve has, and says which ones it lacks. Returns the list's length. */
static size_t bt_write_list(FILE *out, const char *text, const struct bt_script *script, struct bt_place *place)
{
	struct bt_point p = {.gap_lens = {0, 0}};
	bool any = false;

	bt_point_look(&p, text);
	do {
		for (unsigned i = 0; i < 2; i++) {
			bt_write_newlines(out, p.gaps[i], p.gap_lens[i]);
		}
		if (p.name != NULL) {
			fprintf(script->notes, "probe %s is left out: %s\n", p.name, p.why);
			continue;
		}
		fputs(any ? ", " : "", out);
		any = true;
		bt_note_block(p.text, p.len, place);
		if (bt_begins_with(p.text, usdt)) {
			bt_write_usdt(out, p.text, script);
		} else {
			bt_write_replaced(out, p.text, p.len, script);
		}
	} while (bt_point_next(&p));
	return (size_t)(p.text + p.len - text);
}

/* Writes what there is to a clause with probes that varve lacks, so that the line numbers stay. Returns the length of
 * what has been dealt with, 0: it has no such probe. */
static size_t bt_write_without_lacking(FILE *out, const char *text, const struct bt_script *script,
				       struct bt_place *place)
{
	unsigned kept, left_out;

	bt_list_count(text, &kept, &left_out);
	if (left_out == 0) {
		return 0;
	}
	size_t n = bt_write_list(out, text, script, place);
	if (kept == 0) {
		size_t rest = bt_clause_length(text + n);
		bt_write_newlines(out, text + n, rest);
		place->in_clause = false;
		place->any_left_out = true;
		return n + rest;
	}
	place->any_probe = true;
	return n;
}

static void bt_write_brace(FILE *out, char brace, const struct bt_script *script, struct bt_place *place)
{
	if (brace == '{') {
		fputc('{', out);
		if (place->depth++ == 0 && place->block == BT_BEGIN && !place->had_begin) {
			place->had_begin = true;
			fputs(script->begin, out);
		}
		return;
	}
	if (place->depth > 0 && --place->depth == 0) {
		if (place->block == BT_END && !place->had_end) {
			place->had_end = true;
			fputs(script->end, out);
		}
		place->block = BT_OTHER;
	}
	place->in_clause = place->depth > 0;
	fputc('}', out);
}

/* Whether what begins outside of all blocks is no probe. */
static bool bt_is_definition(const char *text)
{
	static const char *const words[] = {"struct", "union", "enum"};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		if (bt_begins_with(text, words[i]) && !bt_is_name(text[strlen(words[i])])) {
			return true;
		}
	}
	return false;
}

/* Writes what comes next in the script's code, and returns its length. */
static size_t bt_write_code(FILE *out, const char *text, const struct bt_script *script, struct bt_place *place)
{
	size_t n = 1;

	if (place->depth == 0 && !place->in_clause && strchr(" \t\r\n;", *text) == NULL) {
		place->in_clause = true;
		n = bt_write_without_lacking(out, text, script, place);
		if (n > 0) {
			return n;
		}
		n = 1;
		place->any_probe = place->any_probe || !bt_is_definition(text);
	}
	if (place->depth == 0 && *text == ';') {
		place->in_clause = false;
	}
	if (*text == '{' || *text == '}') {
		bt_write_brace(out, *text, script, place);
		return n;
	}
	if (place->depth == 0 && bt_begins_with(text, usdt)) {
		return bt_write_usdt(out, text, script);
	}
	while (bt_is_name(*text) && bt_is_name(text[n])) {
		n++;
	}
	if (place->depth == 0) {
		bt_note_block(text, n, place);
	}
	bt_write_replaced(out, text, n, script);
	return n;
}

bool bt_script_write(FILE *out, const char *text, const struct bt_script *script)
{
	struct bt_place place = {.block = BT_OTHER};
	bool at_line_start = true;

	if (bt_begins_with(text, "#!")) {
		text += strcspn(text, "\n");
	}
	while (*text != '\0') {
		size_t n = bt_skip(text, at_line_start);

		if (n > 0) {
			bt_write_replaced(out, text, n, script);
		} else {
			n = bt_write_code(out, text, script, &place);
		}
		at_line_start = bt_stays_at_line_start(at_line_start, text, n);
		text += n;
	}
	if (!place.had_begin && *script->begin != '\0') {
		fprintf(out, "\nBEGIN\n{%s}\n", script->begin);
	}
	if (!place.had_end && *script->end != '\0') {
		fprintf(out, "\nEND\n{%s}\n", script->end);
	}
	return place.any_probe || !place.any_left_out;
}
