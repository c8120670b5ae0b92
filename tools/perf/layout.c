/* SPDX-License-Identifier: BSD-3-Clause */
/* How the namespaces are shared among the streams. */
#include <stdio.h>

#include "tools/perf/perf.h"
#include "tools/perf/verify.h"

static unsigned perf_streams_per_namespace(const struct perf *p)
{
	return p->opts.check_ledger ? 1 : p->num_workers * p->opts.qpairs;
}

static bool perf_streams_add(struct perf *p, struct perf_target *t, const struct nvme_ns *ns)
{
	unsigned n = perf_streams_per_namespace(p);
	uint64_t start = p->opts.region_start, whole = ns->num_blocks * ns->block_size;
	uint64_t bytes = whole > start ? whole - start : 0;
	uint64_t region = p->opts.region_bytes && p->opts.region_bytes < bytes ? p->opts.region_bytes : bytes;
	uint64_t units = region / p->opts.io_size / n;

	uint32_t largest = t->ctrlr ? nvme_ctrlr_max_transfer(t->ctrlr) : UINT32_MAX;

	if (p->opts.io_size % ns->block_size != 0 || p->opts.io_size > largest) {
		fprintf(stderr, "varve-perf: --io-size %u: namespace %u wants a multiple of %u, at most %u\n",
			p->opts.io_size, ns->nsid, ns->block_size, largest);
		return false;
	}
	if (start % ns->block_size != 0 || (p->opts.check_ledger != NULL && region != p->opts.region_bytes)) {
		fprintf(stderr,
			"varve-perf: namespace %u: %llu bytes from byte %llu: it has %llu bytes, in blocks of %u\n",
			ns->nsid, (unsigned long long)p->opts.region_bytes, (unsigned long long)start,
			(unsigned long long)whole, ns->block_size);
		return false;
	}
	if (ns->md_size != 0 &&
	    !nvme_md_is_pi(ns->md_size, ns->pi_type, ns->pi_format)) { /* the data would include it */
		fprintf(stderr,
			"varve-perf: namespace %u: its blocks carry %u bytes of metadata; only protection "
			"information of a known format, and nothing else, is possible\n",
			ns->nsid, ns->md_size);
		return false;
	}
	if (units < p->opts.queue_depth) {
		fprintf(stderr,
			"varve-perf: namespace %u: %llu bytes are too few for %u queue pairs with %u I/Os of %u bytes "
			"each\n",
			ns->nsid, (unsigned long long)region, n, p->opts.queue_depth, p->opts.io_size);
		return false;
	}
	for (unsigned i = 0; i < n; i++) {
		uint64_t first = start / ns->block_size + i * units * (p->opts.io_size / ns->block_size);
		struct perf_stream *s =
			perf_stream_create(&p->opts, t, &p->workers[i % p->num_workers], ns, first, units);

		if (s == NULL) {
			fprintf(stderr, "varve-perf: out of memory; --mem gives more\n");
			return false;
		}
		if (p->opts.check_ledger != NULL && !perf_ledger_load(p, s)) {
			return false;
		}
		s->wanted = true;
	}
	return true;
}

/* The next namespace that is used; ns: NULL begins. */
static const struct nvme_ns *perf_next_ns(const struct perf *p, const struct perf_target *t, const struct nvme_ns *ns)
{
	do {
		ns = nvme_ctrlr_next_ns(t->ctrlr, ns ? ns->nsid : 0);
	} while (ns != NULL && p->opts.nsid != 0 && ns->nsid != p->opts.nsid);
	return ns;
}

/* Whether the controller lets as many queue pairs connect as the namespaces need. */
static bool perf_queues_suffice(const struct perf *p, const struct perf_target *t)
{
	unsigned namespaces = 0, each = perf_streams_per_namespace(p), granted = nvme_ctrlr_io_queues(t->ctrlr);

	for (const struct nvme_ns *ns = perf_next_ns(p, t, NULL); ns != NULL; ns = perf_next_ns(p, t, ns)) {
		namespaces++;
	}
	if (namespaces * each <= granted) {
		return true;
	}
	fprintf(stderr,
		"varve-perf: %s: %u namespaces with %u queue pairs each need %u, and the controller grants %u; choose "
		"one "
		"namespace with -n, or give fewer --qpairs or cores\n",
		p->opts.targets[t->index].subnqn, namespaces, each, namespaces * each, granted);
	return false;
}

bool perf_create_streams(struct perf *p)
{
	for (unsigned i = 0; i < p->opts.num_targets; i++) {
		struct perf_target *t = &p->targets[i];
		const struct nvme_ns *ns = NULL;
		unsigned found = 0;

		if (!perf_queues_suffice(p, t)) {
			return false;
		}
		while ((ns = perf_next_ns(p, t, ns)) != NULL) {
			found++;
			if (!perf_streams_add(p, t, ns)) {
				return false;
			}
		}
		if (found == 0) {
			fprintf(stderr, "varve-perf: %s has no %snamespace\n", p->opts.targets[i].subnqn,
				p->opts.nsid ? "such " : "");
			return false;
		}
	}
	for (unsigned i = 0; i < p->locals.num; i++) {
		struct nvme_ns ns = perf_local_ns(&p->locals.targets[i]);

		if (!perf_streams_add(p, &p->locals.targets[i], &ns)) {
			return false;
		}
	}
	return true;
}
