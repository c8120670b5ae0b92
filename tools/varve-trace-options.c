/* SPDX-License-Identifier: BSD-3-Clause */
/* The command line of varve-trace. */
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "tools/varve-trace.h"
#include "util/nearest.h"

static const char usage_text[] =
	"Usage: varve-trace [OPTION]...\n"
	"Prints the events of a trace file, of a running process, a dead one, or copied; without options "
	"those of the\n"
	"most recent file in /dev/shm.\n"
	"\n"
	"Which file:\n"
	"  -f, --file FILE      this one\n"
	"  -s, --name NAME      of the application NAME (with -p or -i: default varve)\n"
	"  -p, --pid PID        of this process: NAME_trace.pidPID\n"
	"  -i, --id ID          of this instance: NAME_trace.ID\n"
	"  -d, --dir DIR        look in DIR instead of /dev/shm\n"
	"      --list           list the files there, with the state of their writers, and read none\n"
	"      --remove-dead    remove those whose writer is certainly gone (with -s: of NAME only)\n"
	"\n"
	"Which events:\n"
	"  -c, --lcore N        of one lcore only\n"
	"  -l, --filter F[,F]   that match: tpoint=GLOB, group=NAME, owner=TEXT, object=ID or =0xADDRESS, "
	"lcore=N, or plain\n"
	"                       TEXT for any of tracepoint, owner and object. Filters of one kind are "
	"alternatives,\n"
	"                       filters of different kinds must all match. May be given several times\n"
	"      --object ID      of the object ID (such as r12) and those done directly for it: -l object=ID\n"
	"      --life ID        of all that belongs to ID, end to end: its parents and all that was done for "
	"them\n"
	"      --since TIME     not before TIME after the first event (a number with ns, us, ms or s)\n"
	"      --until TIME     not after TIME after the first event\n"
	"      --last TIME      the last TIME of the trace\n"
	"      --age TIME       of objects that lived for TIME or longer\n"
	"      --unfinished     of objects that never finished\n"
	"\n"
	"What to print:\n"
	"  -j, --json           JSON\n"
	"  -t, --ticks          TSC ticks instead of microseconds\n"
	"  -T, --delta          the time since the event printed before, not since the first one\n"
	"      --summary        not the events but how long objects were in each state, and lived, by owner\n"
	"      --by-owner       the same with each owner's states, and requests also with the bdev that served them\n"
	"      --slowest N      the N requests that took longest, each with all that was done for it\n"
	"  -F, --follow         events as they are recorded, until interrupted or the process ends\n"
	"      --from-start     with -F or --record: begin with what the file holds already\n"
	"      --for TIME       with -F or --record: for so long\n"
	"\n"
	"What to write (nothing is printed; existing files are left alone, but for pages of --html):\n"
	"      --perfetto FILE  Chrome trace JSON, which ui.perfetto.dev opens\n"
	"      --html FILE      one page for a browser, without network: timeline, histograms, slowest "
	"requests, owners\n"
	"      --ctf DIR        Common Trace Format 1.8, which babeltrace2 and Trace Compass read\n"
	"      --record FILE    follow, and write what is recorded into a trace file of its own, with long "
	"rings\n"
	"      --entries N      with --record: slots of each ring, a power of two (default 4194304; 32 bytes "
	"each)\n"
	"  -h, --help           this text\n";

enum long_only {
	OPT_LIST = 256,
	OPT_REMOVE_DEAD,
	OPT_OBJECT,
	OPT_LIFE,
	OPT_SINCE,
	OPT_UNTIL,
	OPT_LAST,
	OPT_SUMMARY,
	OPT_BY_OWNER,
	OPT_SLOWEST,
	OPT_AGE,
	OPT_UNFINISHED,
	OPT_FROM_START,
	OPT_PERFETTO,
	OPT_CTF,
	OPT_HTML,
	OPT_RECORD,
	OPT_ENTRIES,
	OPT_FOR,
};

static const struct option long_options[] = {
	{"file", required_argument, NULL, 'f'},
	{"name", required_argument, NULL, 's'},
	{"pid", required_argument, NULL, 'p'},
	{"id", required_argument, NULL, 'i'},
	{"dir", required_argument, NULL, 'd'},
	{"list", no_argument, NULL, OPT_LIST},
	{"remove-dead", no_argument, NULL, OPT_REMOVE_DEAD},
	{"lcore", required_argument, NULL, 'c'},
	{"filter", required_argument, NULL, 'l'},
	{"object", required_argument, NULL, OPT_OBJECT},
	{"life", required_argument, NULL, OPT_LIFE},
	{"since", required_argument, NULL, OPT_SINCE},
	{"until", required_argument, NULL, OPT_UNTIL},
	{"last", required_argument, NULL, OPT_LAST},
	{"json", no_argument, NULL, 'j'},
	{"ticks", no_argument, NULL, 't'},
	{"delta", no_argument, NULL, 'T'},
	{"age", required_argument, NULL, OPT_AGE},
	{"unfinished", no_argument, NULL, OPT_UNFINISHED},
	{"summary", no_argument, NULL, OPT_SUMMARY},
	{"by-owner", no_argument, NULL, OPT_BY_OWNER},
	{"slowest", required_argument, NULL, OPT_SLOWEST},
	{"follow", no_argument, NULL, 'F'},
	{"from-start", no_argument, NULL, OPT_FROM_START},
	{"perfetto", required_argument, NULL, OPT_PERFETTO},
	{"ctf", required_argument, NULL, OPT_CTF},
	{"html", required_argument, NULL, OPT_HTML},
	{"record", required_argument, NULL, OPT_RECORD},
	{"entries", required_argument, NULL, OPT_ENTRIES},
	{"for", required_argument, NULL, OPT_FOR},
	{"help", no_argument, NULL, 'h'},
	{NULL, 0, NULL, 0},
};

static bool trace_option_number_parse(const char *option, const char *text, long max, long *number)
{
	char *end;

	errno = 0;
	*number = strtol(text, &end, 10);
	if (end == text || *end != '\0' || errno != 0 || *number < 0 || *number > max) {
		trace_cli_error("%s: \"%s\" is not a number from 0 to %ld", option, text, max);
		return false;
	}
	return true;
}

/* "2.5ms" is 2500000 ns. Decimal digits only: no floating point. */
static bool trace_option_time_parse(const char *option, const char *text, uint64_t *ns)
{
	static const struct {
		const char *unit;
		uint64_t ns;
	} units[] = {{"ns", 1}, {"us", 1000}, {"ms", 1000000}, {"s", 1000000000}};
	size_t whole = strspn(text, "0123456789"), fraction = 0, u = 0;
	const char *unit = text + whole;

	if (*unit == '.') {
		fraction = strspn(unit + 1, "0123456789");
		unit += 1 + fraction;
	}
	while (u < 4 && strcmp(unit, units[u].unit) != 0) {
		u++;
	}
	if (whole == 0 || whole > 9 || u == 4 || (fraction == 0 && text[whole] == '.')) {
		trace_cli_error("%s: \"%s\" is not a time; give a number with ns, us, ms or s, such as 2.5ms", option,
				text);
		return false;
	}
	*ns = strtoull(text, NULL, 10) * units[u].ns;
	uint64_t digit_ns = units[u].ns;
	for (size_t i = 0; i < fraction; i++) {
		digit_ns /= 10;
		*ns += (uint64_t)(text[whole + 1 + i] - '0') * digit_ns;
	}
	return true;
}

/* Options whose value is only stored: a text, true, or a time. name: for messages about a wrong time. */
static const struct plain_option {
	int c;
	enum { TEXT, FLAG, TIME } kind;
	size_t place;
	const char *name;
} plain_options[] = {
	{'f', TEXT, offsetof(struct trace_options, file), NULL},
	{'s', TEXT, offsetof(struct trace_options, name), NULL},
	{'d', TEXT, offsetof(struct trace_options, dir), NULL},
	{OPT_PERFETTO, TEXT, offsetof(struct trace_options, perfetto), NULL},
	{OPT_CTF, TEXT, offsetof(struct trace_options, ctf), NULL},
	{OPT_HTML, TEXT, offsetof(struct trace_options, html), NULL},
	{OPT_RECORD, TEXT, offsetof(struct trace_options, record), NULL},
	{'t', FLAG, offsetof(struct trace_options, ticks), NULL},
	{'T', FLAG, offsetof(struct trace_options, delta), NULL},
	{'j', FLAG, offsetof(struct trace_options, json), NULL},
	{'F', FLAG, offsetof(struct trace_options, follow), NULL},
	{OPT_FROM_START, FLAG, offsetof(struct trace_options, from_start), NULL},
	{OPT_LIST, FLAG, offsetof(struct trace_options, list), NULL},
	{OPT_REMOVE_DEAD, FLAG, offsetof(struct trace_options, remove_dead), NULL},
	{OPT_SUMMARY, FLAG, offsetof(struct trace_options, summary), NULL},
	{OPT_BY_OWNER, FLAG, offsetof(struct trace_options, by_owner), NULL},
	{OPT_UNFINISHED, FLAG, offsetof(struct trace_options, unfinished), NULL},
	{OPT_SINCE, TIME, offsetof(struct trace_options, since_ns), "--since"},
	{OPT_UNTIL, TIME, offsetof(struct trace_options, until_ns), "--until"},
	{OPT_LAST, TIME, offsetof(struct trace_options, last_ns), "--last"},
	{OPT_AGE, TIME, offsetof(struct trace_options, age_ns), "--age"},
	{OPT_FOR, TIME, offsetof(struct trace_options, duration_ns), "--for"},
};

static bool trace_option_plain_take(struct trace_options *opt, const struct plain_option *plain, const char *arg)
{
	void *place = (char *)opt + plain->place;

	switch (plain->kind) {
	case TEXT:
		*(const char **)place = arg;
		return true;
	case FLAG:
		*(bool *)place = true;
		return true;
	default:
		return trace_option_time_parse(plain->name, arg, place);
	}
}

static bool trace_option_entries_take(struct trace_options *opt, const char *arg)
{
	long n;

	if (!trace_option_number_parse("--entries", arg, TRACE_READER_MAX_ENTRIES, &n)) {
		return false;
	}
	opt->entries = (uint64_t)n;
	if (n == 0 || (n & (n - 1)) != 0) {
		trace_cli_error("--entries: %ld is not a power of two", n);
		return false;
	}
	return true;
}

static bool trace_option_slowest_take(struct trace_options *opt, const char *arg)
{
	long n;

	if (!trace_option_number_parse("--slowest", arg, 1000000, &n)) {
		return false;
	}
	opt->slowest = (size_t)n;
	if (n == 0) {
		trace_cli_error("--slowest: how many? 0 is none");
		return false;
	}
	return true;
}

/* Options whose argument is checked first. */
static bool trace_option_take_checked(struct trace_options *opt, int c, char *arg)
{
	long n;

	switch (c) {
	case 'p':
		return trace_option_number_parse("-p", arg, INT32_MAX, &opt->pid);
	case 'i':
		return trace_option_number_parse("-i", arg, INT32_MAX, &opt->instance);
	case 'c':
		if (!trace_option_number_parse("-c", arg, UINT16_MAX, &n)) {
			return false;
		}
		opt->lcore = (int)n;
		return true;
	case 'l':
		return filter_parse(&opt->filter, arg);
	case OPT_OBJECT:
		return filter_add_object(&opt->filter, arg);
	case OPT_LIFE:
		if (!object_id_parse(arg, &opt->life_prefix, &opt->life_index)) {
			trace_cli_error("--life: \"%s\" is not the id of an object, such as r12", arg);
			return false;
		}
		return true;
	case OPT_ENTRIES:
		return trace_option_entries_take(opt, arg);
	case OPT_SLOWEST:
		return trace_option_slowest_take(opt, arg);
	default:
		return false; /* getopt_long() has said what is wrong */
	}
}

static bool trace_option_take(struct trace_options *opt, int c, char *arg)
{
	opt->summary = opt->summary || c == OPT_BY_OWNER;
	opt->follow = opt->follow || c == OPT_RECORD;
	for (size_t i = 0; i < sizeof(plain_options) / sizeof(plain_options[0]); i++) {
		if (plain_options[i].c == c) {
			return trace_option_plain_take(opt, &plain_options[i], arg);
		}
	}
	return trace_option_take_checked(opt, c, arg);
}

/* False, with a message printed, if options exclude each other, or if one of them would have no effect. */
static bool trace_options_agree(const struct trace_options *o)
{
	bool until = o->since_ns != UINT64_MAX || o->until_ns != UINT64_MAX;
	bool window = until || o->last_ns != UINT64_MAX, numbered = o->pid >= 0 || o->instance >= 0;
	bool chosen = o->slowest > 0 || o->life_prefix != 0 || window || o->age_ns != 0 || o->unfinished;
	bool written = o->perfetto != NULL || o->ctf != NULL || o->html != NULL, listed = o->list || o->remove_dead;
	int views = o->summary + (o->slowest > 0) + (o->perfetto != NULL) + (o->ctf != NULL) + (o->html != NULL) +
		    (o->record != NULL);
	const struct {
		bool wrong;
		const char *why;
	} rules[] = {
		{(o->file != NULL) + (o->pid >= 0) + (o->instance >= 0) > 1,
		 "-f, -p and -i each name a file; give one of them"},
		{o->file != NULL && o->name != NULL, "-f names the file; -s only means something without it"},
		{listed && (o->file != NULL || numbered),
		 "--list and --remove-dead look at a folder (-d), not at one file"},
		{listed && (o->json || o->follow || chosen || views > 0),
		 "--list and --remove-dead read no events: no other view goes with them"},
		{o->follow && (o->summary || chosen),
		 "-F goes with neither --summary, --slowest, --life, --age, --unfinished, --since, --until nor "
		 "--last: they need the whole trace"},
		{views > 1, "--summary, --slowest, --perfetto, --ctf, --html and --record are different views; "
			    "give one of them"},
		{o->follow && written, "-F goes with neither --perfetto, --ctf nor --html: they need the whole trace"},
		{o->json && (written || o->record != NULL), "-j only means something where something is printed"},
		{o->ticks && (o->json || written || o->record != NULL),
		 "-t only means something where text is printed"},
		{o->delta && (o->json || views > 0), "-T only means something where events are printed as text"},
		{o->duration_ns != UINT64_MAX && !o->follow, "--for only means something with -F or --record"},
		{o->from_start && !o->follow, "--from-start only means something with -F or --record"},
		{o->entries != 0 && o->record == NULL, "--entries only means something with --record"},
		{o->last_ns != UINT64_MAX && until, "--last goes with neither --since nor --until"},
	};

	for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
		if (rules[i].wrong) {
			trace_cli_error("%s", rules[i].why);
			return false;
		}
	}
	return true;
}

enum trace_options_result trace_options_parse(struct trace_options *opt, int argc, char **argv)
{
	int c;

	*opt = (struct trace_options){.dir = "/dev/shm",
				      .pid = -1,
				      .instance = -1,
				      .lcore = TRACE_ALL_LCORES,
				      .since_ns = UINT64_MAX,
				      .until_ns = UINT64_MAX,
				      .last_ns = UINT64_MAX,
				      .duration_ns = UINT64_MAX};
	while ((c = getopt_long(argc, argv, "f:s:p:i:d:c:l:jtTFh", long_options, NULL)) != -1) {
		if (c == 'h') {
			fputs(usage_text, stdout);
			return TRACE_OPTIONS_HELP;
		}
		if (!trace_option_take(opt, c, optarg)) {
			if (c == '?') {
				nearest_print_option("varve-trace", argv[optind - 1], long_options);
			}
			fputs("Try varve-trace -h.\n", stderr);
			return TRACE_OPTIONS_WRONG;
		}
	}
	if (optind < argc) {
		trace_cli_error("\"%s\" is no option; a file is given with -f", argv[optind]);
		return TRACE_OPTIONS_WRONG;
	}
	return trace_options_agree(opt) ? TRACE_OPTIONS_OK : TRACE_OPTIONS_WRONG;
}
