/* SPDX-License-Identifier: BSD-3-Clause */
/* Reading a discovery log (Base 5.16.1.23): the header for the number of records, then all of them, then the header
 * again: when the generation has changed meanwhile, from the start. Control thread; the decoding is pure. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "env_dpdk/env.h"
#include "nvme/internal.h"
#include "util/log.h"

#define RECORDS_MAX 4096 /* more than a host can use; further records of a log are not read */
#define CHUNK       (64 * sizeof(struct nvmf_disc_log_entry)) /* bytes of one Get Log Page */
#define TRIES       5

struct discovery {
	struct nvme_ctrlr *ctrlr;
	nvme_discovery_fn done;
	void *arg;
	struct nvmf_discovery_log *header; /* DMA memory */
	uint8_t *chunk;                    /* DMA memory, CHUNK bytes */
	struct nvme_discovered *found;
	uint32_t count, records, read;
	uint64_t generation;
	unsigned tries;
	bool checking; /* the header is being read for the second time */
};

/* ASCII, padded with blanks or NULs, without a terminator. False: too long, or not printable. */
static bool padded_field_copy(char *to, size_t to_size, const char *from, size_t from_size)
{
	size_t len = strnlen(from, from_size);

	while (len > 0 && from[len - 1] == ' ') {
		len--;
	}
	if (len >= to_size) {
		return false;
	}
	for (size_t i = 0; i < len; i++) {
		if ((unsigned char)from[i] <= ' ' || (unsigned char)from[i] >= 0x7f) {
			return false;
		}
	}
	memcpy(to, from, len);
	to[len] = '\0';
	return true;
}

int nvme_discovery_decode(const struct nvmf_disc_log_entry *entry, struct nvme_discovered *out)
{
	const struct nvme_transport *transport = nvme_transport_find((enum nvme_trtype)entry->trtype);

	*out = (struct nvme_discovered){.subtype = entry->subtype, .port_id = le16toh(entry->portid)};
	if (transport == NULL || !transport->fabrics) {
		return -EPROTONOSUPPORT;
	}
	if (entry->adrfam >= 32 || (transport->adrfams & 1u << entry->adrfam) == 0) {
		return -EAFNOSUPPORT;
	}
	out->trid.trtype = transport->trtype;
	out->trid.adrfam = entry->adrfam;
	if (!padded_field_copy(out->trid.traddr, sizeof(out->trid.traddr), entry->traddr, sizeof(entry->traddr)) ||
	    !padded_field_copy(out->trid.trsvcid, sizeof(out->trid.trsvcid), entry->trsvcid, sizeof(entry->trsvcid)) ||
	    !padded_field_copy(out->trid.subnqn, sizeof(out->trid.subnqn), entry->subnqn, sizeof(entry->subnqn)) ||
	    out->trid.traddr[0] == '\0' || !nvme_nqn_is_valid(out->trid.subnqn)) {
		return -EINVAL;
	}
	return 0;
}

static void discovery_finish(struct discovery *d, int error)
{
	d->done(d->arg, error, d->found, error == 0 ? d->count : 0);
	env_dma_free(d->header);
	env_dma_free(d->chunk);
	free(d->found);
	free(d);
}

static void discovery_get_log(struct discovery *d, void *buf, uint32_t len, uint64_t offset,
			      void (*cb)(void *arg, const struct nvme_cqe *cqe))
{
	uint32_t dwords = len / 4 - 1;
	struct nvme_sqe cmd = {
		.opcode = nvme_admin_get_log_page,
		.cdw10 = htole32(NVME_LOG_LID_DISCOVER | UINT32_C(1) << 15 /* RAE */ | (dwords & 0xffff) << 16),
		.cdw11 = htole32(dwords >> 16),
		.cdw12 = htole32((uint32_t)offset),
		.cdw13 = htole32((uint32_t)(offset >> 32)),
	};
	int rc = nvme_ctrlr_admin(d->ctrlr, &cmd, buf, len, false, cb, d);

	if (rc != 0) {
		discovery_finish(d, rc);
	}
}

static void discovery_header_received(void *arg, const struct nvme_cqe *cqe);

static void discovery_read_header(struct discovery *d)
{
	discovery_get_log(d, d->header, sizeof(*d->header), 0, discovery_header_received);
}

static void discovery_records_received(void *arg, const struct nvme_cqe *cqe);

static void discovery_read_records(struct discovery *d)
{
	uint32_t left = d->records - d->read, most = CHUNK / sizeof(struct nvmf_disc_log_entry);
	uint32_t n = left < most ? left : most;

	if (n == 0) {
		d->checking = true;
		discovery_read_header(d);
		return;
	}
	discovery_get_log(d, d->chunk, n * (uint32_t)sizeof(struct nvmf_disc_log_entry),
			  sizeof(*d->header) + d->read * sizeof(struct nvmf_disc_log_entry),
			  discovery_records_received);
}

static void discovery_records_received(void *arg, const struct nvme_cqe *cqe)
{
	struct discovery *d = arg;
	uint32_t left = d->records - d->read, most = CHUNK / sizeof(struct nvmf_disc_log_entry);
	uint32_t n = left < most ? left : most;

	if (nvme_cqe_status(cqe) != 0) {
		discovery_finish(d, -EIO);
		return;
	}
	for (uint32_t i = 0; i < n; i++) {
		const struct nvmf_disc_log_entry *entry = (const struct nvmf_disc_log_entry *)d->chunk + i;
		int rc = nvme_discovery_decode(entry, &d->found[d->count]);

		if (rc == 0) {
			d->count++;
		} else if (rc == -EINVAL) {
			log_warning("%s: a record of the discovery log has no valid address or NQN",
				    d->ctrlr->trid.traddr);
		}
	}
	d->read += n;
	discovery_read_records(d);
}

static void discovery_start_over(struct discovery *d)
{
	free(d->found);
	d->count = d->read = 0;
	d->records = le64toh(d->header->numrec) < RECORDS_MAX ? (uint32_t)le64toh(d->header->numrec) : RECORDS_MAX;
	d->generation = le64toh(d->header->genctr);
	d->checking = false;
	d->found = calloc(d->records ? d->records : 1, sizeof(*d->found));
	if (d->found == NULL) {
		discovery_finish(d, -ENOMEM);
		return;
	}
	discovery_read_records(d);
}

static void discovery_header_received(void *arg, const struct nvme_cqe *cqe)
{
	struct discovery *d = arg;

	if (nvme_cqe_status(cqe) != 0) {
		discovery_finish(d, -EIO);
	} else if (d->checking && d->generation == le64toh(d->header->genctr)) {
		discovery_finish(d, 0);
	} else if (d->tries++ == TRIES) {
		discovery_finish(d, -EAGAIN); /* it changes faster than it is read */
	} else {
		discovery_start_over(d);
	}
}

void nvme_discovery_read(struct nvme_ctrlr *ctrlr, nvme_discovery_fn done, void *arg)
{
	struct discovery *d = calloc(1, sizeof(*d));

	if (d != NULL) {
		*d = (struct discovery){.ctrlr = ctrlr, .done = done, .arg = arg};
		d->header = env_dma_zmalloc(sizeof(*d->header), 4096, -1);
		d->chunk = env_dma_zmalloc(CHUNK, 4096, -1);
	}
	if (d == NULL || d->header == NULL || d->chunk == NULL) {
		if (d != NULL) {
			env_dma_free(d->header);
			env_dma_free(d->chunk);
			free(d);
		}
		done(arg, -ENOMEM, NULL, 0);
		return;
	}
	discovery_read_header(d);
}
