/* SPDX-License-Identifier: BSD-3-Clause */
/* Reservations of a namespace (Base 8.19): the registrants, the holder, and what each command changes. These are pure
 * functions: they read and write nothing but their arguments. Any thread. A host is known by its host identifier. */
#ifndef NVMF_RESV_H
#define NVMF_RESV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "nvmf/decode.h"

#define NVMF_HOSTID_SIZE 16
/* Hosts choose their identifiers, so that one host could register any number of them: this is the limit. */
#define NVMF_RESV_REGISTRANTS_MAX 64

struct nvmf_registrant {
	uint8_t hostid[NVMF_HOSTID_SIZE];
	uint64_t key;
};

struct nvmf_resv {
	uint32_t generation; /* of the registrations */
	uint8_t type;        /* enum nvme_resv_rtype; 0: not reserved */
	bool ptpl;           /* Persist Through Power Loss: all this survives a restart */
	uint8_t holder;      /* index of the registrant that holds it; unused for types that all registrants hold */
	uint8_t num_registrants;
	struct nvmf_registrant registrants[NVMF_RESV_REGISTRANTS_MAX];
};

/* The hosts that are to be notified of a change, each at most once, and of what. */
struct nvmf_resv_notices {
	unsigned num;
	struct {
		uint8_t hostid[NVMF_HOSTID_SIZE];
		uint8_t what; /* enum nvme_resv_notify_rnlpt */
	} hosts[NVMF_RESV_REGISTRANTS_MAX];
};

/* Reservation Register. Returns a status. Success: *r is changed, and *notices tells whom to notify. Otherwise nothing
 * has changed, and *where is the bad field; Internal Error: there are NVMF_RESV_REGISTRANTS_MAX already. */
uint16_t nvmf_resv_register(struct nvmf_resv *r, const uint8_t hostid[NVMF_HOSTID_SIZE],
			    const struct nvmf_resv_register *cmd, struct nvmf_resv_notices *notices, uint16_t *where);
/* Reservation Acquire; otherwise as nvmf_resv_register(). */
uint16_t nvmf_resv_acquire(struct nvmf_resv *r, const uint8_t hostid[NVMF_HOSTID_SIZE],
			   const struct nvmf_resv_acquire *cmd, struct nvmf_resv_notices *notices, uint16_t *where);
/* Reservation Release; otherwise as nvmf_resv_register(). */
uint16_t nvmf_resv_release(struct nvmf_resv *r, const uint8_t hostid[NVMF_HOSTID_SIZE],
			   const struct nvmf_resv_release *cmd, struct nvmf_resv_notices *notices, uint16_t *where);

/* Whether a reservation refuses a host's command that only reads, or (writes) one that needs write access. */
bool nvmf_resv_conflicts(const struct nvmf_resv *r, const uint8_t hostid[NVMF_HOSTID_SIZE], bool writes);
/* Whether the registrant with an index holds the reservation. */
bool nvmf_resv_holds(const struct nvmf_resv *r, unsigned registrant);
/* Whether two are the same, apart from the generation. */
bool nvmf_resv_equal(const struct nvmf_resv *a, const struct nvmf_resv *b);

/* ---- The file that keeps a reservation over a restart ---- */

#define NVMF_RESV_FILE_MAX 8192
/* Writes the file's text and returns its length in bytes. uuid: the namespace's. */
size_t nvmf_resv_file_encode(const struct nvmf_resv *r, const uint8_t uuid[16], char text[NVMF_RESV_FILE_MAX]);
/* Reads the file's text, which need not be terminated. 0; -EBADMSG: it is damaged, *line is the first bad line (from
 * 1); -EINVAL: it belongs to another namespace. */
int nvmf_resv_file_decode(const char *text, size_t len, const uint8_t uuid[16], struct nvmf_resv *r, unsigned *line);

#endif
