/* SPDX-License-Identifier: BSD-3-Clause */
/* What the tests of reservations share: two hosts, each with an admin queue and an I/O queue, and a namespace. */
#ifndef UNITTEST_NVMF_RESV_FIXTURE_H
#define UNITTEST_NVMF_RESV_FIXTURE_H

#include "unittest/nvmf/loop.h"

#define CONFLICT NVME_ST_DNR(GENERIC, RESERVATION_CONFLICT)
#define INVALID  NVME_ST_DNR(GENERIC, INVALID_FIELD)
#define WE       NVME_RESERVATION_RTYPE_WE
#define EA       NVME_RESERVATION_RTYPE_EA
#define EARO     NVME_RESERVATION_RTYPE_EARO

extern uint8_t data[LOOP_MAX_IO]; /* of reports and of I/O */
extern char folder[], file[64];   /* of the reservation that persists */
extern uint32_t nsid;

/* A host. Its key is its letter. */
extern struct host {
	struct loop_conn *admin, *io;
	uint8_t letter;
} a, b;

/* Suite setup and teardown. */
int resv_start(void);
int resv_stop(void);

void attach_host(struct host *h, uint8_t letter);
void detach_host(struct host *h);
/* The namespace, as nsid. */
int add_ns(const char *ptpl_file);
/* The namespace, with the file if it is to be persistent, and both hosts. */
void attach(bool persistent);
void detach(void);
/* The namespace and the hosts come anew: what is known then is of the file. */
void restart(void);

/* A reservation command; its status. */
void make_cmd(struct loop_cmd *cmd, const struct host *h, uint8_t opcode, uint32_t cdw10, uint64_t key, uint64_t second,
	      uint64_t keys[2]);
uint16_t run_resv(const struct host *h, uint8_t opcode, uint32_t cdw10, uint64_t key, uint64_t second);
uint16_t reg(const struct host *h, uint32_t cdw10);
uint16_t acquire(const struct host *h, uint32_t action, uint32_t type, uint64_t prkey);
uint16_t release(const struct host *h, uint32_t action, uint32_t type);
uint16_t report(const struct host *h, uint32_t len, bool extended);
uint16_t io(const struct host *h, uint8_t opcode);
uint16_t feature(const struct host *h, uint8_t opcode, uint32_t fid, uint32_t ns, uint32_t *value);
uint16_t set_feature(const struct host *h, uint8_t fid, uint32_t ns, uint32_t value);

/* A number in data. */
uint64_t le(size_t offset, unsigned bytes);

#endif
