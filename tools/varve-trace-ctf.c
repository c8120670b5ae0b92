/* SPDX-License-Identifier: BSD-3-Clause */
/* --ctf DIR: the Common Trace Format, version 1.8 (diamon.org/ctf/v1.8.3): a file of metadata, and one stream per lcore
 * in packets. All fields are aligned to bytes. */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/varve-trace.h"

enum { CTF_MAGIC = 0xc1fc1fc1u, PACKET_BYTES = 1 << 18, EVENT_MAX = 16384 };

/* As the metadata below declare it. */
struct packet_head {
	uint32_t magic, stream_id;
	uint64_t timestamp_begin, timestamp_end, content_size, packet_size, events_discarded;
	uint32_t cpu_id;
} __attribute__((packed));

static const char declarations[] =
	"/* CTF 1.8 */\n"
	"typealias integer { size = 8; align = 8; signed = false; } := uint8_t;\n"
	"typealias integer { size = 16; align = 8; signed = false; } := uint16_t;\n"
	"typealias integer { size = 32; align = 8; signed = false; } := uint32_t;\n"
	"typealias integer { size = 64; align = 8; signed = false; } := uint64_t;\n"
	"typealias integer { size = 8; align = 8; signed = false; base = 16; } := hex8_t;\n"
	"typealias integer { size = 16; align = 8; signed = false; base = 16; } := hex16_t;\n"
	"typealias integer { size = 32; align = 8; signed = false; base = 16; } := hex32_t;\n"
	"typealias integer { size = 64; align = 8; signed = false; base = 16; } := hex64_t;\n"
	"trace {\n"
	"	major = 1;\n"
	"	minor = 8;\n"
	"	byte_order = le;\n"
	"	packet.header := struct { uint32_t magic; uint32_t stream_id; };\n"
	"};\n";

static const char stream_declaration[] =
	"typealias integer { size = 64; align = 8; signed = false; map = clock.tsc.value; } := tsc_t;\n"
	"stream {\n"
	"	id = 0;\n"
	"	packet.context := struct {\n"
	"		tsc_t timestamp_begin; tsc_t timestamp_end; uint64_t content_size; uint64_t "
	"packet_size;\n"
	"		uint64_t events_discarded; uint32_t cpu_id;\n"
	"	};\n"
	"	event.header := struct { uint16_t id; tsc_t timestamp; };\n"
	"};\n";

/* ---- Metadata ---- */

/* Prints a name with an underscore before it, which readers remove: so no name can be a keyword. */
static void ctf_argument_name_print(struct out *o, const char *name)
{
	out_text(o, "_arg_");
	for (; *name != '\0'; name++) {
		out_char(o, isalnum((unsigned char)*name) ? *name : '_');
	}
}

static bool ctf_name_is_taken(const struct trace_tpoint *t, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		if (strcmp(t->args[i].name, t->args[n].name) == 0) {
			return true;
		}
	}
	return false;
}

static void ctf_tpoint_print(struct out *o, const struct trace_tpoint *t)
{
	out_text(o, "event {\n\tname = \"");
	for (const char *c = t->name; *c != '\0'; c++) {
		out_char(o, isalnum((unsigned char)*c) || strchr("_-. :", *c) != NULL ? *c : '_');
	}
	out_printf(o, "\";\n\tid = %u;\n\tstream_id = 0;\n\tfields := struct {\n", t->id);
	if (t->owner_type != 0) {
		out_text(o, "\t\tstring { encoding = UTF8; } _owner;\n");
	}
	out_text(o, "\t\tuint32_t _size;\n\t\thex64_t _object;\n");
	if (t->object_type != 0) {
		out_text(o, "\t\tstring { encoding = UTF8; } _id;\n\t\tstring { encoding = UTF8; } _related;\n"
			    "\t\tuint64_t _state_ticks;\n");
	}
	for (unsigned i = 0; i < t->num_args; i++) {
		const struct trace_tpoint_arg *a = &t->args[i];
		if (a->type == TRACE_ARG_STR) {
			out_text(o, "\t\tstring { encoding = UTF8; } ");
		} else {
			out_printf(o, "\t\t%s%u_t ", a->type == TRACE_ARG_PTR ? "hex" : "uint", 8u * a->size);
		}
		ctf_argument_name_print(o, a->name);
		if (ctf_name_is_taken(t, i)) {
			out_printf(o, "_%u", i);
		}
		out_text(o, ";\n");
	}
	out_text(o, "\t};\n};\n");
}

static void ctf_clock_print(const struct trace_view *v, const struct trace_snapshot *s, struct out *o)
{
	uint64_t ns = trace_snapshot_realtime_ns(s, v->base_tsc);

	out_printf(o,
		   "clock {\n\tname = tsc;\n\tfreq = %" PRIu64 ";\n\toffset_s = %" PRIu64 ";\n\toffset = %" PRIu64
		   ";\n};\n",
		   v->tsc_rate, ns / 1000000000u, trace_ns_to_ticks(ns % 1000000000u, v->tsc_rate));
}

static void ctf_metadata_print(const struct trace_view *v, const struct trace_snapshot *s, struct out *o)
{
	out_text(o, declarations);
	out_text(o, "env {\n\ttracer_name = \"varve\";\n};\n");
	ctf_clock_print(v, s, o);
	out_text(o, stream_declaration);
	for (unsigned id = 0; id < trace_reader_num_tpoints(v->r); id++) {
		const struct trace_tpoint *t = trace_reader_tpoint(v->r, id);
		if (t != NULL) {
			ctf_tpoint_print(o, t);
		}
	}
}

/* ---- Streams ---- */

struct stream {
	struct out out;
	struct packet_head head;
	size_t used; /* of content, behind the head */
	uint32_t gaps;
	uint8_t content[PACKET_BYTES + EVENT_MAX];
};

static void ctf_packet_write(struct stream *s)
{
	if (s->used == 0) {
		return;
	}
	s->head.content_size = s->head.packet_size = 8 * (sizeof(s->head) + s->used);
	out_bytes(&s->out, (const char *)&s->head, sizeof(s->head));
	out_bytes(&s->out, (const char *)s->content, s->used);
	out_flush(&s->out);
	s->used = 0;
}

static void ctf_bytes_put(struct stream *s, const void *bytes, size_t n)
{
	memcpy(s->content + s->used, bytes, n);
	s->used += n;
}

static void ctf_text_put(struct stream *s, const char *text, size_t n)
{
	ctf_bytes_put(s, text, n);
	s->content[s->used++] = '\0';
}

static void ctf_object_id_put(const struct trace_view *v, struct stream *s, uint8_t type, uint64_t index)
{
	char text[OUT_NUMBER_MAX], escaped[6 * OUT_NUMBER_MAX];
	size_t n = index != TRACE_NO_OBJECT ? object_id_format(v->r, type, index, text) : 0;

	text_escape(escaped, sizeof(escaped), text, n);
	ctf_text_put(s, escaped, strlen(escaped));
}

static void ctf_args_put(struct stream *s, const struct trace_batch *b, const struct trace_event *e,
			 const struct trace_tpoint *t)
{
	char text[4 * UINT8_MAX + 8];

	for (unsigned i = 0; i < t->num_args; i++) {
		struct trace_arg a = trace_event_arg(b, e, t, i);
		if (a.type == TRACE_ARG_STR) {
			text_escape(text, sizeof(text), a.text, a.length);
			ctf_text_put(s, text, strlen(text));
		} else {
			ctf_bytes_put(s, &a.number, t->args[i].size);
		}
	}
}

static void ctf_event_put(struct trace_view *v, struct stream *s, const struct trace_batch *b,
			  const struct trace_event *e)
{
	const struct trace_tpoint *t = trace_reader_tpoint(v->r, e->tpoint_id);
	uint64_t tsc = e->tsc - v->base_tsc, state = e->state_ticks == TRACE_NO_TIME ? 0 : e->state_ticks;

	if (s->used == 0) {
		s->head.timestamp_begin = tsc;
	}
	s->head.timestamp_end = tsc;
	s->head.events_discarded += e->gaps - s->gaps; /* lost events: their number is not always known */
	s->gaps = e->gaps;
	ctf_bytes_put(s, &e->tpoint_id, sizeof(e->tpoint_id));
	ctf_bytes_put(s, &tsc, sizeof(tsc));
	if (t->owner_type != 0) {
		const struct printed_owner *owner = owner_printed(v, e->owner_id, e->tsc);
		ctf_text_put(s, owner->text, owner->text_length);
	}
	ctf_bytes_put(s, &e->size, sizeof(e->size));
	ctf_bytes_put(s, &e->object_id, sizeof(e->object_id));
	if (t->object_type != 0) {
		ctf_object_id_put(v, s, t->object_type, e->object_index);
		ctf_object_id_put(v, s, e->related_type, e->related_index);
		ctf_bytes_put(s, &state, sizeof(state));
	}
	ctf_args_put(s, b, e, t);
	if (s->used >= PACKET_BYTES) {
		ctf_packet_write(s);
	}
}

/* ---- Files ---- */

static int ctf_file_create(const char *dir, const char *name)
{
	char path[4200];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0) {
		trace_cli_error("%s: %s", path, strerror(errno));
	}
	return fd;
}

static bool ctf_file_finish(struct out *o, const char *dir)
{
	out_flush(o);
	if (close(o->fd) != 0 && o->error == 0) {
		o->error = errno;
	}
	if (o->error != 0) {
		trace_cli_error("%s: writing failed: %s", dir, strerror(o->error));
	}
	return o->error == 0;
}

static bool ctf_stream_write(struct trace_view *v, const char *dir, const struct trace_snapshot *s, uint32_t lcore,
			     const bool *keep)
{
	struct stream *stream = calloc(1, sizeof(*stream));
	char name[32];

	if (stream == NULL) {
		trace_cli_error("out of memory");
		return false;
	}
	snprintf(name, sizeof(name), "lcore_%u", lcore);
	stream->head.magic = CTF_MAGIC;
	stream->head.cpu_id = lcore;
	stream->out.fd = ctf_file_create(dir, name);
	bool ok = stream->out.fd >= 0;
	for (size_t i = 0; ok && i < s->batch.num_events; i++) {
		if (s->batch.events[i].lcore == lcore && (keep == NULL || keep[i])) {
			ctf_event_put(v, stream, &s->batch, &s->batch.events[i]);
		}
	}
	if (ok) {
		ctf_packet_write(stream);
		ok = ctf_file_finish(&stream->out, dir);
	}
	free(stream);
	return ok;
}

static bool ctf_lcore_has_events(const struct trace_snapshot *s, uint32_t lcore, const bool *keep)
{
	for (size_t i = 0; i < s->batch.num_events; i++) {
		if (s->batch.events[i].lcore == lcore && (keep == NULL || keep[i])) {
			return true;
		}
	}
	return false; /* readers refuse an empty stream */
}

int ctf_run(struct trace_view *v, const struct trace_snapshot *s, const bool *keep, const char *dir)
{
	static struct out metadata;

	if (mkdir(dir, 0700) != 0 && errno != EEXIST) {
		trace_cli_error("%s: %s", dir, strerror(errno));
		return 1;
	}
	metadata.fd = ctf_file_create(dir, "metadata");
	if (metadata.fd < 0) {
		return 1;
	}
	ctf_metadata_print(v, s, &metadata);
	bool ok = ctf_file_finish(&metadata, dir);
	for (size_t i = 0; ok && i < s->num_lcores; i++) {
		if (ctf_lcore_has_events(s, s->lcores[i].lcore, keep)) {
			ok = ctf_stream_write(v, dir, s, s->lcores[i].lcore, keep);
		}
	}
	return ok ? 0 : 1;
}
