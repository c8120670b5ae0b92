/* SPDX-License-Identifier: BSD-3-Clause */
/* Parses the argument of -e. It has no state: a string in, masks or an error out. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trace/trace_internal.h"

/* A part of the string, not NUL-terminated. */
struct token {
	const char *at;
	size_t len;
};

static bool token_is(struct token p, const char *text)
{
	return strlen(text) == p.len && memcmp(p.at, text, p.len) == 0;
}

/* Returns *rest up to the separator or its end, and sets *rest to the remainder; its `at` is NULL after the last token.
 */
static struct token token_next(struct token *rest, char separator)
{
	const char *end = memchr(rest->at, separator, rest->len);
	struct token p = {rest->at, end != NULL ? (size_t)(end - rest->at) : rest->len};

	if (end != NULL) {
		rest->at = end + 1;
		rest->len -= p.len + 1;
	} else {
		rest->at = NULL;
	}
	return p;
}

/* How much of a token an error repeats. */
static int token_shown_length(struct token p)
{
	return p.len < 64 ? (int)p.len : 64;
}

static bool hex_parse(struct token p, uint64_t *value)
{
	uint64_t v = 0;

	if (p.len > 2 && p.at[0] == '0' && (p.at[1] == 'x' || p.at[1] == 'X')) {
		p.at += 2;
		p.len -= 2;
	}
	if (p.len == 0 || p.len > 16) {
		return false;
	}
	for (size_t i = 0; i < p.len; i++) {
		unsigned char c = (unsigned char)p.at[i];
		if (!isxdigit(c)) {
			return false;
		}
		v = v << 4 | (unsigned)(isdigit(c) ? c - '0' : tolower(c) - 'a' + 10);
	}
	*value = v;
	return true;
}

/* Appends to the error as far as there is room. */
static void error_append(char *error, const char *text)
{
	size_t used = strlen(error);

	snprintf(error + used, TRACE_ERROR_MAX - used, "%s", text);
}

static int unknown_group(struct token p, char *error)
{
	trace_errorf(error, "unknown tracepoint group '%.*s'; there are: all", token_shown_length(p), p.at);
	for (unsigned g = 0; g < TRACE_NUM_GROUPS; g++) {
		if (trace_group_info(g) != NULL) {
			error_append(error, ", ");
			error_append(error, trace_group_info(g)->name);
		}
	}
	error_append(error, "; or a mask of group numbers, 0x...");
	return -EINVAL;
}

static int unknown_tpoint(struct token p, unsigned group, char *error)
{
	trace_errorf(error, "unknown tracepoint '%.*s' in group %s; it has: ", token_shown_length(p), p.at,
		     trace_group_info(group)->name);
	for (unsigned n = 0, listed = 0; n < TRACE_TPOINTS_PER_GROUP; n++) {
		const struct trace_tpoint_info *t = trace_tpoint_info(group * TRACE_TPOINTS_PER_GROUP + n);
		if (t != NULL) {
			error_append(error, listed++ > 0 ? ", " : "");
			error_append(error, t->def.name);
		}
	}
	error_append(error, "; or a hexadecimal mask of their numbers");
	return -EINVAL;
}

static int group_find(struct token p)
{
	for (unsigned g = 0; g < TRACE_NUM_GROUPS; g++) {
		if (trace_group_info(g) != NULL && token_is(p, trace_group_info(g)->name)) {
			return (int)g;
		}
	}
	return -ENOENT;
}

static int tpoint_find(struct token p, unsigned group)
{
	for (unsigned n = 0; n < TRACE_TPOINTS_PER_GROUP; n++) {
		const struct trace_tpoint_info *t = trace_tpoint_info(group * TRACE_TPOINTS_PER_GROUP + n);
		if (t != NULL && token_is(p, t->def.name)) {
			return (int)n;
		}
	}
	return -ENOENT;
}

/* Parses the part after the colon: a mask, or names separated by +. */
static int tpoints_parse(struct token which, unsigned group, uint64_t *mask, char *error)
{
	struct token rest = which;

	if (hex_parse(which, mask)) {
		if ((*mask & trace_group_tpoints(group)) == 0) {
			trace_errorf(error, "'%.*s' has no tracepoint of group %s; their mask is %llx",
				     token_shown_length(which), which.at, trace_group_info(group)->name,
				     (unsigned long long)trace_group_tpoints(group));
			return -EINVAL;
		}
		return 0;
	}
	*mask = 0;
	while (rest.at != NULL) {
		struct token name = token_next(&rest, '+');
		int n = tpoint_find(name, group);
		if (n < 0) {
			return unknown_tpoint(name, group, error);
		}
		*mask |= 1ull << n;
	}
	return 0;
}

static int group_mask_parse(struct token item, struct trace_masks *masks, char *error)
{
	uint64_t groups, known = 0;

	if (!hex_parse(item, &groups)) {
		trace_errorf(error, "'%.*s' is not a mask of tracepoint groups: 0x and up to 16 hexadecimal digits",
			     token_shown_length(item), item.at);
		return -EINVAL;
	}
	/* Bits of groups that do not exist are ignored: 0xffff has always meant all groups. */
	for (unsigned g = 0; g < TRACE_NUM_GROUPS; g++) {
		if (trace_group_info(g) != NULL && (groups >> g & 1) != 0) {
			masks->group[g] = UINT64_MAX;
			known |= 1ull << g;
		}
	}
	return known != 0 ? 0 : unknown_group(item, error);
}

static int item_parse(struct token item, struct trace_masks *masks, char *error)
{
	struct token which = item;
	struct token name = token_next(&which, ':');
	uint64_t mask = UINT64_MAX;
	int group, rc;

	if (token_is(item, "help")) {
		return TRACE_SPEC_HELP;
	}
	if (token_is(item, "all")) {
		for (unsigned g = 0; g < TRACE_NUM_GROUPS; g++) {
			masks->group[g] = trace_group_info(g) != NULL ? UINT64_MAX : 0;
		}
		return 0;
	}
	if (which.at == NULL && item.len > 1 && item.at[0] == '0' && (item.at[1] | 0x20) == 'x') {
		return group_mask_parse(item, masks, error);
	}
	group = group_find(name);
	if (group < 0) {
		return unknown_group(name, error);
	}
	if (which.at != NULL) {
		rc = tpoints_parse(which, (unsigned)group, &mask, error);
		if (rc != 0) {
			return rc;
		}
	}
	masks->group[group] |= mask;
	return 0;
}

int trace_spec_parse(const char *spec, struct trace_masks *masks, char *error)
{
	struct token rest = {spec, strlen(spec)};
	int help = 0;

	memset(masks, 0, sizeof(*masks));
	error[0] = '\0';
	while (rest.at != NULL) {
		int rc = item_parse(token_next(&rest, ','), masks, error);
		if (rc < 0) {
			return rc;
		}
		help |= rc;
	}
	return help;
}

void trace_print_help(FILE *out)
{
	fputs("-e takes, with commas between: all, GROUP, GROUP:HEXMASK, GROUP:NAME+NAME..., 0xGROUPMASK, "
	      "help\n",
	      out);
	for (unsigned g = 0; g < TRACE_NUM_GROUPS; g++) {
		if (trace_group_info(g) == NULL) {
			continue;
		}
		fprintf(out, "\n%s (0x%x): %s\n", trace_group_info(g)->name, 1u << g, trace_group_info(g)->help);
		for (unsigned n = 0; n < TRACE_TPOINTS_PER_GROUP; n++) {
			const struct trace_tpoint_info *t = trace_tpoint_info(g * TRACE_TPOINTS_PER_GROUP + n);
			if (t != NULL) {
				fprintf(out, "  %-24s %-7llx %s\n", t->def.name, 1ull << n, t->help);
			}
		}
	}
}
