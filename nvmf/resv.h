/* SPDX-License-Identifier: BSD-3-Clause */
/* Reservations of a namespace (Base 8.19): who is registered, who holds it, and what each command does to that. Pure
 * functions; they read and write nothing but their arguments. Hosts are told apart by their host identifiers. */
#ifndef NVMF_RESV_H
#define NVMF_RESV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "nvmf/decode.h"

#define NVMF_HOSTID_SIZE 16
/* A host chooses its identifier, so it can register as many hosts as it likes: here is the end. */
#define NVMF_RESV_REGISTRANTS_MAX 64

struct nvmf_registrant {
	uint8_t hostid[NVMF_HOSTID_SIZE];
	uint64_t key;
};

struct nvmf_resv {
	uint32_t generation; /* of the registrations */
	uint8_t type;        /* enum nvme_resv_rtype; 0: not reserved */
	bool ptpl;           /* what follows survives a restart */
	uint8_t holder;      /* which registrant; of no meaning if all are */
	uint8_t num_registrants;
	struct nvmf_registrant registrants[NVMF_RESV_REGISTRANTS_MAX];
};

/* Whom a change concerns, and what its hosts are to be told: each host at most once. */
struct nvmf_resv_notices {
	unsigned num;
	struct {
		uint8_t hostid[NVMF_HOSTID_SIZE];
		uint8_t what; /* enum nvme_resv_notify_rnlpt */
	} hosts[NVMF_RESV_REGISTRANTS_MAX];
};

/* Each returns the status. If it is not success, nothing has changed, and *where is the bad field; if it is, notices
 * says who is to be told. Internal Error from register: there are NVMF_RESV_REGISTRANTS_MAX already. */
uint16_t nvmf_resv_register(struct nvmf_resv *r, const uint8_t hostid[NVMF_HOSTID_SIZE],
			    const struct nvmf_resv_register *cmd, struct nvmf_resv_notices *notices, uint16_t *where);
uint16_t nvmf_resv_acquire(struct nvmf_resv *r, const uint8_t hostid[NVMF_HOSTID_SIZE],
			   const struct nvmf_resv_acquire *cmd, struct nvmf_resv_notices *notices, uint16_t *where);
uint16_t nvmf_resv_release(struct nvmf_resv *r, const uint8_t hostid[NVMF_HOSTID_SIZE],
			   const struct nvmf_resv_release *cmd, struct nvmf_resv_notices *notices, uint16_t *where);

/* Whether a reservation keeps a host from reading, or from changing anything. */
bool nvmf_resv_conflicts(const struct nvmf_resv *r, const uint8_t hostid[NVMF_HOSTID_SIZE], bool writes);
/* Whether a registrant holds the reservation. */
bool nvmf_resv_holds(const struct nvmf_resv *r, unsigned registrant);
/* Whether they are the same but for the generation. */
bool nvmf_resv_equal(const struct nvmf_resv *a, const struct nvmf_resv *b);

/* ---- The file that outlives a restart ---- */

#define NVMF_RESV_FILE_MAX 8192
/* Writes the text: its length. uuid: the namespace's. */
size_t nvmf_resv_file_encode(const struct nvmf_resv *r, const uint8_t uuid[16], char text[NVMF_RESV_FILE_MAX]);
/* 0; -EBADMSG: no such text, *line is the first line that is wrong (from 1); -EINVAL: it is another namespace's. No
 * text is needed to end with a zero. */
int nvmf_resv_file_decode(const char *text, size_t len, const uint8_t uuid[16], struct nvmf_resv *r, unsigned *line);

#endif
