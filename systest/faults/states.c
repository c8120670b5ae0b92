/* SPDX-License-Identifier: BSD-3-Clause */
/* Changes of state and completions of block device I/O. A state machine announces each change to its USDT probe, from
 * the one function that makes it: there the connections break, or the host dies, in exactly that state. */
#include <errno.h>
#include <signal.h>
#include <string.h>

#include "bdev/bdev.h"
#include "bdev/module.h"
#include "nvme/transport.h"
#include "systest/faults/faults.h"
#include "systest/faults/verbs.h"
#include "usdt/usdt.h"

#define INTERNAL_ERROR 0x6

static void act(void)
{
	int32_t victim = atomic_load(&fault_area->victim);

	if (atomic_load(&fault_area->action) == FAULT_BREAK) {
		atomic_fetch_add(&fault_area->effects, faults_break_qps());
	} else if (victim > 0 && kill(victim, SIGKILL) == 0) {
		atomic_fetch_add(&fault_area->effects, 1);
	}
}

/* where: 0, so that it makes no difference from where a state was reached. */
static void state(const char *machine, uint64_t detail)
{
	if (fault_here(machine, NULL, NULL, detail)) {
		act();
	}
}

#define STATE(name, detail, args, ...)                                                                                 \
	void __real_usdt_fire_##name(uint64_t tsc, ##__VA_ARGS__);                                                     \
	void __wrap_usdt_fire_##name(uint64_t tsc, ##__VA_ARGS__);                                                     \
	void __wrap_usdt_fire_##name(uint64_t tsc, ##__VA_ARGS__)                                                      \
	{                                                                                                              \
		state(#name, detail);                                                                                  \
		__real_usdt_fire_##name args;                                                                          \
	}                                                                                                              \
	__attribute__((constructor)) static void enable_##name(void)                                                   \
	{                                                                                                              \
		varve_##name##_semaphore += fault_area != NULL;                                                        \
	}

/* Requests by state, and whether they are admin commands; hosts whose name ends in :steady are left alone. */
static bool is_steady(const char *nqn)
{
	size_t n = strlen(nqn);

	return n >= 7 && strcmp(nqn + n - 7, ":steady") == 0;
}

void __real_usdt_fire_nvmf_req_state(uint64_t tsc, const char *host, uint32_t qid, uint32_t cid, uint32_t opcode,
				     uint32_t states);
void __wrap_usdt_fire_nvmf_req_state(uint64_t tsc, const char *host, uint32_t qid, uint32_t cid, uint32_t opcode,
				     uint32_t states);
void __wrap_usdt_fire_nvmf_req_state(uint64_t tsc, const char *host, uint32_t qid, uint32_t cid, uint32_t opcode,
				     uint32_t states)
{
	if (!is_steady(host)) {
		/* an admin command, a fabrics command, a read, a write: they go different ways */
		uint32_t kind = qid == 0 || opcode == 0x7f ? opcode == 0x7f : 2 + (opcode & 3);

		state("nvmf_req_state", states | kind << 16);
	}
	__real_usdt_fire_nvmf_req_state(tsc, host, qid, cid, opcode, states);
}
__attribute__((constructor)) static void enable_nvmf_req_state(void)
{
	varve_nvmf_req_state_semaphore += fault_area != NULL;
}

STATE(nvmf_ctrlr_state, old << 8 | now, (tsc, c, nqn, host, old, now), const void *c, const char *nqn, const char *host,
      uint32_t old, uint32_t now)
STATE(nvmf_qpair_state, old << 8 | now | (qid != 0) << 16, (tsc, q, qid, host, old, now), const void *q, uint32_t qid,
      const char *host, uint32_t old, uint32_t now)
STATE(nvme_ctrlr_state, old << 8 | now, (tsc, at, nqn, old, now), const char *at, const char *nqn, uint32_t old,
      uint32_t now)
STATE(bdev_nvme_state, old << 8 | now, (tsc, name, at, old, now), const char *name, const char *at, uint32_t old,
      uint32_t now)
STATE(bdev_nvme_qpair_state, old << 8 | now, (tsc, name, thread, old, now), const char *name, uint64_t thread,
      uint32_t old, uint32_t now)
STATE(bdev_nvme_discovery_state, old << 8 | now, (tsc, name, nqn, old, now), const char *name, const char *nqn,
      uint32_t old, uint32_t now)
STATE(nvmf_auth_state, states, (tsc, q, qid, host, states, why), const void *q, uint32_t qid, const char *host,
      uint32_t states, uint32_t why)
STATE(nvmf_subsystem_change_state, wanted << 8 | now, (tsc, nqn, wanted, now), const char *nqn, uint32_t wanted,
      uint32_t now)
STATE(nvmf_pg_change_state, wanted, (tsc, nqn, wanted, thread), const char *nqn, uint32_t wanted, uint64_t thread)
STATE(nvmf_pg_change_state_done, now, (tsc, nqn, now, thread), const char *nqn, uint32_t now, uint64_t thread)
STATE(nvmf_poll_group_add_qpair, 0, (tsc, q, thread), const void *q, uint64_t thread)
STATE(nvmf_poll_group_remove_qpair, 0, (tsc, q, thread), const void *q, uint64_t thread)
STATE(nvmf_poll_group_drain_qpair, 0, (tsc, q, thread), const void *q, uint64_t thread)
STATE(nvmf_transport_qpair_fini, 0, (tsc, q), const void *q)

/* Commands of the driver, by what they are for: their steps are state machines' too. One ends with an error instead, or
 * is never answered. Controllers of subsystems whose names end in :steady are left alone. */
static uint64_t purpose(const struct nvme_request *req, uint16_t qid)
{
	const struct nvme_sqe *cmd = &req->cmd;
	uint32_t more = le32toh(cmd->cdw10) & 0xff; /* feature, log page, structure, offset of a property */

	if (cmd->opcode == nvme_admin_fabrics) {
		const struct nvmf_property_get_sqe *p = (const struct nvmf_property_get_sqe *)cmd;

		more = p->fctype << 8 | (p->fctype < nvme_fabrics_type_auth_send ? le32toh(p->ofst) & 0xff : 0);
		if (p->fctype == nvme_fabrics_type_auth_send) { /* the message's id */
			more |= ((const uint8_t *)req->iovs[0].iov_base)[1];
		}
	} else if (qid != 0) {
		more = 0;
	}
	return (uint64_t)cmd->opcode | (uint64_t)(qid != 0) << 8 | (uint64_t)more << 16;
}

void __real_nvme_qpair_complete(struct nvme_qpair *qpair, const struct nvme_cqe *cqe);
void __wrap_nvme_qpair_complete(struct nvme_qpair *qpair, const struct nvme_cqe *cqe);
void __wrap_nvme_qpair_complete(struct nvme_qpair *qpair, const struct nvme_cqe *cqe)
{
	const struct nvme_request *req = nvme_qpair_request(qpair, le16toh(cqe->cid));
	struct nvme_cqe bad = *cqe;

	if (req != NULL && !is_steady(qpair->ctrlr->trid.subnqn) &&
	    fault_here("nvme completion", NULL, NULL, purpose(req, qpair->id))) {
		if (atomic_load(&fault_area->action) == FAULT_KILL) {
			return;
		}
		bad.status = htole16(INTERNAL_ERROR << 1);
	}
	__real_nvme_qpair_complete(qpair, &bad);
}

/* Completions. Bdevs whose names begin with Steady are left alone. */
static uint16_t judged(struct bdev_io *io, uint16_t status, void *pc, void *frame)
{
	const char *name = bdev_name(bdev_desc_bdev(io->desc));

	return status == 0 && strncmp(name, "Steady", 6) != 0 && fault_here("bdev completion", pc, frame, io->type)
		       ? INTERNAL_ERROR
		       : status;
}
#define JUDGED(io, status) judged(io, status, __builtin_return_address(0), __builtin_frame_address(0))

void __real_bdev_io_complete(struct bdev_io *io, uint16_t status);
void __wrap_bdev_io_complete(struct bdev_io *io, uint16_t status);
void __wrap_bdev_io_complete(struct bdev_io *io, uint16_t status)
{
	__real_bdev_io_complete(io, JUDGED(io, status));
}

void __real_bdev_io_complete_cdw0(struct bdev_io *io, uint16_t status, uint32_t cdw0);
void __wrap_bdev_io_complete_cdw0(struct bdev_io *io, uint16_t status, uint32_t cdw0);
void __wrap_bdev_io_complete_cdw0(struct bdev_io *io, uint16_t status, uint32_t cdw0)
{
	__real_bdev_io_complete_cdw0(io, JUDGED(io, status), cdw0);
}

void __real_bdev_io_complete_errno(struct bdev_io *io, int rc);
void __wrap_bdev_io_complete_errno(struct bdev_io *io, int rc);
void __wrap_bdev_io_complete_errno(struct bdev_io *io, int rc)
{
	__real_bdev_io_complete_errno(io, rc == 0 && JUDGED(io, 0) != 0 ? -EIO : rc);
}
