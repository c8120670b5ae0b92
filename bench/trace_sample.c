/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/trace_sample.h"
#include "trace/file_writer.h"
#include "trace/trace_def.h"

enum { DEPTH = 32, TICKS_PER_US = 2000, SLOW_US = 20000, OWNER_BDEV = 1, OWNER_DRIVE = 3, OWNER_HOST = 4, HOSTS = 4 };

/* One request under way. */
struct flight {
	uint64_t when; /* of its next event */
	uint64_t object;
	unsigned step, host, bdev;
	bool slow, lost;
	uint32_t number;
};

struct lcore {
	unsigned number;
	uint32_t random;
	unsigned begun, ended;
	struct flight flights[DEPTH];
};

/* What happens to a request, and the mean time to the next step, in 1/100 microseconds. */
static const struct step {
	uint16_t tpoint;
	uint16_t mean;
} steps[TRACE_SAMPLE_EVENTS] = {
	{TRACE_TPOINT_RDMA_REQ_NEW, 10},
	{TRACE_TPOINT_RDMA_REQ_NEED_BUFFER, 20},
	{TRACE_TPOINT_RDMA_REQ_HAVE_BUFFER, 15},
	{TRACE_TPOINT_RDMA_REQ_RDY_TO_EXECUTE, 10},
	{TRACE_TPOINT_RDMA_REQ_EXECUTING, 30},
	{TRACE_TPOINT_BDEV_IO_START, 20},
	{TRACE_TPOINT_BDEV_NVME_IO_START, 25},
	{TRACE_TPOINT_NVME_PCIE_SUBMIT, 8000},
	{TRACE_TPOINT_NVME_PCIE_COMPLETE, 20},
	{TRACE_TPOINT_BDEV_NVME_IO_DONE, 15},
	{TRACE_TPOINT_BDEV_IO_DONE, 10},
	{TRACE_TPOINT_RDMA_REQ_EXECUTED, 10},
	{TRACE_TPOINT_RDMA_REQ_TX_PENDING_C2H, 20},
	{TRACE_TPOINT_RDMA_REQ_RDY_TO_COMPL, 10},
	{TRACE_TPOINT_RDMA_REQ_COMPLETING_C2H, 600},
	{TRACE_TPOINT_RDMA_REQ_COMPLETED, 50},
};

static uint32_t random_next(struct lcore *l)
{
	return l->random = l->random * 1664525u + 1013904223u;
}

static void flight_begin(const struct trace_sample *s, struct lcore *l, struct flight *f, uint64_t now)
{
	f->number = l->begun++;
	f->step = 0;
	f->when = now + random_next(l) % 1000;
	f->host = (random_next(l) >> 16) % HOSTS;
	f->bdev = (random_next(l) >> 16) % 2;
	f->slow = s->slow_every != 0 && f->number % s->slow_every == s->slow_every - 1;
	f->lost = f->number >= s->requests - (s->unfinished < s->requests ? s->unfinished : s->requests);
}

/* The packed arguments of a step; returns their number of bytes. */
static size_t args_make(const struct trace_sample *s, const struct lcore *l, const struct flight *f, uint8_t *to)
{
	const struct trace_file_tpoint *t = &trace_tpoint_info(steps[f->step].tpoint)->def;
	uint64_t io = f->object + 0x100, nvme = f->object + 0x200;
	size_t n = 0;

	for (unsigned i = 0; i < t->num_args; i++) {
		const char *name = t->args[i].name;
		uint64_t value = strcmp(name, "qd") == 0       ? DEPTH
				 : strcmp(name, "qpair") == 0  ? 0x600000 + 0x1000 * (l->number * HOSTS + f->host)
				 : strcmp(name, "type") == 0   ? 1
				 : strcmp(name, "offset") == 0 ? f->number * 8ull
				 : strcmp(name, "cid") == 0    ? f->number % 128
				 : strcmp(name, "opc") == 0    ? 2
				 : strcmp(name, "dw10") == 0   ? f->number * 8
				 : strcmp(name, "dw12") == 0   ? 7
							       : 0;
		if (strcmp(name, "ctx") == 0) {
			value = t->object_type == TRACE_OBJECT_BDEV_IO        ? f->object
				: t->object_type == TRACE_OBJECT_BDEV_NVME_IO ? io
									      : nvme;
		}
		memcpy(to + n, &value, t->args[i].size);
		n += t->args[i].size;
	}
	return n;
}

static int step_write(struct trace_file_writer *w, const struct trace_sample *s, struct lcore *l, struct flight *f)
{
	const struct trace_file_tpoint *t = &trace_tpoint_info(steps[f->step].tpoint)->def;
	uint8_t args[TRACE_FILE_MAX_ARG_BYTES];
	struct trace_file_entry e = {.tsc = f->when, .tpoint_id = t->tpoint_id};

	e.owner_id = t->owner_type == TRACE_OWNER_BDEV           ? OWNER_BDEV + f->bdev
		     : t->owner_type == TRACE_OWNER_NVMF_RDMA_QP ? OWNER_HOST + l->number * HOSTS + f->host
		     : t->owner_type == TRACE_OWNER_NVME_PCIE_QP ? OWNER_DRIVE
								 : 0;
	e.object_id = f->object + (t->object_type == TRACE_OBJECT_BDEV_IO         ? 0x100
				   : t->object_type == TRACE_OBJECT_BDEV_NVME_IO  ? 0x200
				   : t->object_type == TRACE_OBJECT_NVME_PCIE_REQ ? 0x300
										  : 0);
	e.size = t->tpoint_id == TRACE_TPOINT_BDEV_IO_START ? 8 : 0;
	return trace_file_put(w, l->number, &e, args, args_make(s, l, f, args));
}

/* The next event of all lcores; NULL when all is over. */
static struct flight *next_flight(struct lcore *lcores, const struct trace_sample *s, struct lcore **of)
{
	struct flight *first = NULL;

	for (unsigned i = 0; i < s->lcores; i++) {
		for (unsigned k = 0; k < DEPTH; k++) {
			struct flight *f = &lcores[i].flights[k];
			if (f->step < TRACE_SAMPLE_EVENTS && (first == NULL || f->when < first->when)) {
				first = f;
				*of = &lcores[i];
			}
		}
	}
	return first;
}

static void flight_step(const struct trace_sample *s, struct lcore *l, struct flight *f)
{
	uint64_t mean = (uint64_t)steps[f->step].mean * TICKS_PER_US / 100;
	bool in_drive = steps[f->step].tpoint == TRACE_TPOINT_NVME_PCIE_SUBMIT;

	if (in_drive && f->lost) {
		f->step = TRACE_SAMPLE_EVENTS;
		return;
	}
	f->when += mean / 2 + random_next(l) % (mean + 1) + (in_drive && f->slow ? SLOW_US * TICKS_PER_US : 0);
	f->step++;
	if (f->step == TRACE_SAMPLE_EVENTS && l->begun < s->requests) {
		flight_begin(s, l, f, f->when);
	}
}

static void tables_make(const struct trace_sample *s, struct trace_file_tables *t)
{
	*t = (struct trace_file_tables){
		.tsc_rate = TICKS_PER_US * 1000000ull, .num_rings = s->lcores, .num_entries = 64};
	for (unsigned id = 0; id < TRACE_NUM_TPOINTS; id++) {
		t->tpoints[id] = trace_tpoint_def(id);
		t->masks[id / TRACE_TPOINTS_PER_GROUP] |= (uint64_t)(t->tpoints[id].name[0] != '\0')
							  << id % TRACE_TPOINTS_PER_GROUP;
	}
	for (unsigned i = 1; i < TRACE_NUM_TYPES; i++) {
		t->owner_prefix[i] = trace_owner_types[i].prefix;
		t->object_prefix[i] = trace_object_types[i].prefix;
	}
	while (t->num_entries < s->requests * 24ull) {
		t->num_entries *= 2;
	}
}

static void owners_write(struct trace_file_writer *w, const struct trace_sample *s)
{
	char text[120];

	trace_file_owner(w, OWNER_BDEV, 1, TRACE_OWNER_BDEV, "Nvme0n1");
	trace_file_owner(w, OWNER_BDEV + 1, 1, TRACE_OWNER_BDEV, "Nvme0n2");
	trace_file_owner(w, OWNER_DRIVE, 1, TRACE_OWNER_NVME_PCIE_QP, "0000:01:00.0 qid:1");
	for (unsigned i = 0; i < s->lcores * HOSTS; i++) {
		snprintf(text, sizeof(text),
			 "nqn.2026-11.io.varve:host%u 192.0.2.%u:%u nqn.2026-11.io.varve:sub qid:%u", i % HOSTS,
			 10 + i % HOSTS, 50000 + i, 1 + i / HOSTS);
		trace_file_owner(w, (uint16_t)(OWNER_HOST + i), 1, TRACE_OWNER_NVMF_RDMA_QP, text);
	}
}

int trace_sample_write(const char *path, const struct trace_sample *s)
{
	struct trace_file_tables *t = malloc(sizeof(*t));
	struct lcore *lcores = calloc(s->lcores, sizeof(*lcores)), *l = NULL;
	struct trace_file_writer *w = NULL;
	struct flight *f;
	int rc = -ENOMEM;

	if (t != NULL && lcores != NULL) {
		tables_make(s, t);
		rc = trace_file_create(path, t, &w);
	}
	if (rc == 0) {
		owners_write(w, s);
		for (unsigned i = 0; i < s->lcores; i++) {
			lcores[i].number = i;
			lcores[i].random = i + 1;
			for (unsigned k = 0; k < DEPTH; k++) {
				lcores[i].flights[k].object = 0x7f0000000000 + i * 0x1000000ull + k * 0x1000;
				lcores[i].flights[k].step = TRACE_SAMPLE_EVENTS;
				if (lcores[i].begun < s->requests) {
					flight_begin(s, &lcores[i], &lcores[i].flights[k], 1000000000);
				}
			}
		}
		while (rc == 0 && (f = next_flight(lcores, s, &l)) != NULL) {
			rc = step_write(w, s, l, f);
			flight_step(s, l, f);
		}
		int end = trace_file_close(w);
		rc = rc != 0 ? rc : end;
	}
	free(t);
	free(lcores);
	return rc;
}
