/* SPDX-License-Identifier: BSD-3-Clause */
/* How a controller is brought up: the table of its states, the one function that changes the state, and the operation
 * of each state. Control thread.
 *
 * Entering a state starts one operation; its completion enters the next state. An operation that fails ends the attempt
 * (nvme_ctrlr_fail(), ctrlr.c); a completion that comes after that has no effect. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "env_dpdk/env.h"
#include "nvme/internal.h"
#include "trace/trace.h"
#include "usdt/usdt.h"
#include "util/log.h"
#include "util/state_machine.h"

#define CSTS_LOOK_US        1000
#define SHUTDOWN_TIMEOUT_MS 10000 /* or RTD3E, if that is longer */
#define SHUTDOWN_MAX_MS     60000
#define ADMIN_POLL_US       2000 /* admin queues without a descriptor */

enum deadline {
	DEADLINE_NONE,
	DEADLINE_ADMIN,    /* opts.admin_timeout_ms */
	DEADLINE_CONNECT,  /* opts.connect_timeout_ms */
	DEADLINE_READY,    /* CAP.TO, in units of 500 ms (Base 3.1.3.1) */
	DEADLINE_SHUTDOWN, /* RTD3 Entry Latency (Base 5.17.2.1), but at least ten seconds */
};

struct state_def {
	const char *name;
	void (*enter)(struct nvme_ctrlr *ctrlr);
	enum deadline deadline;
};

static void enter_connect(struct nvme_ctrlr *ctrlr);
static void enter_authenticate(struct nvme_ctrlr *ctrlr);
static void enter_read_cap(struct nvme_ctrlr *ctrlr);
static void enter_read_vs(struct nvme_ctrlr *ctrlr);
static void enter_check_cc(struct nvme_ctrlr *ctrlr);
static void enter_disable(struct nvme_ctrlr *ctrlr);
static void enter_enable(struct nvme_ctrlr *ctrlr);
static void enter_wait_csts(struct nvme_ctrlr *ctrlr);
static void enter_wait_disabled(struct nvme_ctrlr *ctrlr);
static void enter_identify(struct nvme_ctrlr *ctrlr);
static void enter_set_queues(struct nvme_ctrlr *ctrlr);
static void enter_set_aer(struct nvme_ctrlr *ctrlr);
static void enter_scan_ns(struct nvme_ctrlr *ctrlr);
static void enter_ready(struct nvme_ctrlr *ctrlr);
static void enter_shutdown(struct nvme_ctrlr *ctrlr);

static const struct state_def states[NVME_CTRLR_STATES] = {
	[NVME_CTRLR_DISCONNECTED] = {"disconnected", NULL, DEADLINE_NONE},
	[NVME_CTRLR_CONNECT] = {"connect", enter_connect, DEADLINE_CONNECT},
	[NVME_CTRLR_AUTHENTICATE] = {"authenticate", enter_authenticate, DEADLINE_ADMIN},
	[NVME_CTRLR_READ_CAP] = {"read CAP", enter_read_cap, DEADLINE_ADMIN},
	[NVME_CTRLR_READ_VS] = {"read VS", enter_read_vs, DEADLINE_ADMIN},
	[NVME_CTRLR_CHECK_CC] = {"check CC", enter_check_cc, DEADLINE_ADMIN},
	[NVME_CTRLR_WAIT_READY_OLD] = {"wait for ready before disable", enter_wait_csts, DEADLINE_READY},
	[NVME_CTRLR_DISABLE] = {"disable", enter_disable, DEADLINE_ADMIN},
	[NVME_CTRLR_WAIT_DISABLED] = {"wait for disabled", enter_wait_disabled, DEADLINE_READY},
	[NVME_CTRLR_ENABLE] = {"enable", enter_enable, DEADLINE_ADMIN},
	[NVME_CTRLR_WAIT_READY] = {"wait for ready", enter_wait_csts, DEADLINE_READY},
	[NVME_CTRLR_IDENTIFY] = {"identify", enter_identify, DEADLINE_ADMIN},
	[NVME_CTRLR_SET_QUEUES] = {"set number of queues", enter_set_queues, DEADLINE_ADMIN},
	[NVME_CTRLR_SET_AER] = {"set event configuration", enter_set_aer, DEADLINE_ADMIN},
	[NVME_CTRLR_SCAN_NS] = {"read namespaces", enter_scan_ns, DEADLINE_ADMIN /* of each command */},
	[NVME_CTRLR_READY] = {"ready", enter_ready, DEADLINE_NONE},
	[NVME_CTRLR_SHUTDOWN] = {"shutdown", enter_shutdown, DEADLINE_ADMIN},
	[NVME_CTRLR_WAIT_SHUTDOWN] = {"wait for shutdown", enter_wait_csts, DEADLINE_SHUTDOWN},
	[NVME_CTRLR_BACK_OFF] = {"back off", nvme_ctrlr_start_back_off, DEADLINE_NONE},
	[NVME_CTRLR_FAILED] = {"failed", NULL, DEADLINE_NONE},
	[NVME_CTRLR_REMOVED] = {"removed", NULL, DEADLINE_NONE},
};

#define TO(s) (UINT32_C(1) << NVME_CTRLR_##s)
/* They may follow every state: a connection can end in any. */
#define LEAVE (TO(DISCONNECTED) | TO(BACK_OFF) | TO(FAILED) | TO(REMOVED))

static const uint32_t next_states[NVME_CTRLR_STATES] = {
	[NVME_CTRLR_DISCONNECTED] = TO(CONNECT) | LEAVE,
	[NVME_CTRLR_CONNECT] = TO(READ_CAP) | TO(AUTHENTICATE) | LEAVE,
	[NVME_CTRLR_AUTHENTICATE] = TO(READ_CAP) | TO(CONNECT) | LEAVE, /* CONNECT: over TLS now */
	[NVME_CTRLR_READ_CAP] = TO(READ_VS) | LEAVE,
	[NVME_CTRLR_READ_VS] = TO(CHECK_CC) | LEAVE,
	[NVME_CTRLR_CHECK_CC] = TO(WAIT_READY_OLD) | TO(WAIT_DISABLED) | LEAVE,
	[NVME_CTRLR_WAIT_READY_OLD] = TO(DISABLE) | LEAVE,
	[NVME_CTRLR_DISABLE] = TO(WAIT_DISABLED) | LEAVE,
	[NVME_CTRLR_WAIT_DISABLED] = TO(ENABLE) | LEAVE,
	[NVME_CTRLR_ENABLE] = TO(WAIT_READY) | LEAVE,
	[NVME_CTRLR_WAIT_READY] = TO(IDENTIFY) | LEAVE,
	[NVME_CTRLR_IDENTIFY] = TO(SET_QUEUES) | TO(SET_AER) | LEAVE,
	[NVME_CTRLR_SET_QUEUES] = TO(SET_AER) | LEAVE,
	[NVME_CTRLR_SET_AER] = TO(SCAN_NS) | TO(READY) | LEAVE,
	[NVME_CTRLR_SCAN_NS] = TO(READY) | LEAVE,
	[NVME_CTRLR_READY] = TO(SHUTDOWN) | LEAVE,
	[NVME_CTRLR_SHUTDOWN] = TO(WAIT_SHUTDOWN) | LEAVE,
	[NVME_CTRLR_WAIT_SHUTDOWN] = LEAVE,
	[NVME_CTRLR_BACK_OFF] = TO(DISCONNECTED) | LEAVE,
	[NVME_CTRLR_FAILED] = LEAVE,
	[NVME_CTRLR_REMOVED] = LEAVE,
};

const char *nvme_ctrlr_state_name(enum nvme_ctrlr_state s)
{
	return s < NVME_CTRLR_STATES ? states[s].name : "unknown";
}

STATE_MACHINE(ctrlr_machine, "nvme controller", nvme_ctrlr_state_name, next_states)

static uint64_t shutdown_ms(const struct nvme_ctrlr *ctrlr)
{
	uint32_t ms = le32toh(ctrlr->id.rtd3e) / 1000;

	return ms < SHUTDOWN_TIMEOUT_MS ? SHUTDOWN_TIMEOUT_MS : ms > SHUTDOWN_MAX_MS ? SHUTDOWN_MAX_MS : ms;
}

static uint64_t step_deadline_ms(const struct nvme_ctrlr *ctrlr, enum deadline d)
{
	switch (d) {
	case DEADLINE_ADMIN:
		return ctrlr->opts.admin_timeout_ms;
	case DEADLINE_CONNECT:
		return ctrlr->opts.connect_timeout_ms;
	case DEADLINE_READY:
		return (NVME_CAP_TO(ctrlr->cap) + 1) * UINT64_C(500);
	case DEADLINE_SHUTDOWN:
		return shutdown_ms(ctrlr);
	case DEADLINE_NONE:
		break;
	}
	return 0;
}

/* No answer ends such a state: CSTS is read until it shows the end. */
static bool step_polls_csts(const struct nvme_ctrlr *ctrlr)
{
	return states[ctrlr->state].deadline == DEADLINE_READY || states[ctrlr->state].deadline == DEADLINE_SHUTDOWN;
}

static void step_deadline_start(struct nvme_ctrlr *ctrlr)
{
	uint64_t ms = step_deadline_ms(ctrlr, states[ctrlr->state].deadline);

	ctrlr->step_deadline = ms ? env_ticks() + ms * env_ticks_hz() / 1000 : 0;
	thread_timer_stop(&ctrlr->step_timer);
	if (ms != 0) {
		thread_timer_start(&ctrlr->step_timer, ms * 1000);
	}
}

void nvme_ctrlr_step_goes_on(struct nvme_ctrlr *ctrlr)
{
	if (!ctrlr->in_failure) {
		step_deadline_start(ctrlr);
	}
}

void nvme_ctrlr_set_state(struct nvme_ctrlr *ctrlr, enum nvme_ctrlr_state state)
{
	const struct state_def *def = &states[state];
	enum nvme_ctrlr_state old = ctrlr->state;

	state_machine_check(&ctrlr_machine, old, state, ctrlr->trid.traddr);
	ctrlr->state = state;
	ctrlr->state_ticks = env_ticks();
	step_deadline_start(ctrlr);
	TRACE(NVME_CTRLR_STATE, ctrlr->owner, 0, 0, old, state);
	USDT(nvme_ctrlr_state, ctrlr->trid.traddr, ctrlr->trid.subnqn, old, state);
	if (def->enter != NULL) {
		def->enter(ctrlr);
	}
}

/* The operation of the state ended with an error: the reason names the state. */
static void step_failed(struct nvme_ctrlr *ctrlr, const char *what)
{
	nvme_ctrlr_lost(ctrlr, "%s: %s", states[ctrlr->state].name, what);
}

static void reg_written(struct nvme_ctrlr *ctrlr, int error, uint64_t value)
{
	if (ctrlr->in_failure) {
		return;
	}
	if (error != 0) {
		step_failed(ctrlr, strerror(-error));
		return;
	}
	switch (ctrlr->state) {
	case NVME_CTRLR_DISABLE:
		nvme_ctrlr_set_state(ctrlr, NVME_CTRLR_WAIT_DISABLED);
		break;
	case NVME_CTRLR_ENABLE:
		nvme_ctrlr_set_state(ctrlr, NVME_CTRLR_WAIT_READY);
		break;
	case NVME_CTRLR_SHUTDOWN:
		nvme_ctrlr_set_state(ctrlr, NVME_CTRLR_WAIT_SHUTDOWN);
		break;
	default:
		break;
	}
}

static void csts_read(struct nvme_ctrlr *ctrlr, int error, uint64_t csts)
{
	ctrlr->csts_reading = false;
	if (ctrlr->in_failure) {
		return;
	}
	if (ctrlr->csts_state != ctrlr->state) { /* the answer says nothing about this state */
		if (step_polls_csts(ctrlr)) {
			enter_wait_csts(ctrlr);
		}
		return;
	}
	if (error != 0 || csts == UINT32_MAX) { /* all ones: a removed PCIe device */
		step_failed(ctrlr, error ? strerror(-error) : "CSTS reads as all ones");
		return;
	}
	bool ready = NVME_CSTS_RDY(csts) != 0;
	if (ctrlr->state == NVME_CTRLR_WAIT_SHUTDOWN) {
		if (NVME_CSTS_SHST(csts) == NVME_CSTS_SHST_CMPLT) {
			nvme_ctrlr_fail(ctrlr, "shut down");
			return;
		}
	} else if (ctrlr->state == NVME_CTRLR_WAIT_READY_OLD && (ready || NVME_CSTS_CFS(csts))) {
		nvme_ctrlr_set_state(ctrlr, NVME_CTRLR_DISABLE);
		return;
	} else if (NVME_CSTS_CFS(csts) && ctrlr->state != NVME_CTRLR_WAIT_DISABLED) {
		step_failed(ctrlr, "the controller reports a fatal status (CSTS.CFS)");
		return;
	} else if (ctrlr->state == NVME_CTRLR_WAIT_DISABLED && !ready) {
		nvme_ctrlr_set_state(ctrlr, NVME_CTRLR_ENABLE);
		return;
	} else if (ctrlr->state == NVME_CTRLR_WAIT_READY && ready) {
		nvme_ctrlr_set_state(ctrlr, NVME_CTRLR_IDENTIFY);
		return;
	}
	thread_timer_start(&ctrlr->step_timer, CSTS_LOOK_US);
}

/* A controller that was not ready before shows that it is not ready even before it has noticed that it was disabled: it
 * is given some time. */
static void enter_wait_disabled(struct nvme_ctrlr *ctrlr)
{
	thread_timer_start(&ctrlr->step_timer, CSTS_LOOK_US);
}

/* Over fabrics CSTS is read by a command, which may have no answer: step_timer is also its time limit. At most one read
 * is under way, so that each answer is matched to the state that asked. */
static void enter_wait_csts(struct nvme_ctrlr *ctrlr)
{
	uint64_t now = env_ticks(), left = ctrlr->step_deadline > now ? ctrlr->step_deadline - now : 0;

	thread_timer_start(&ctrlr->step_timer, env_ticks_to_ns(left) / 1000 + 1);
	if (!ctrlr->csts_reading) {
		ctrlr->csts_reading = true;
		ctrlr->csts_state = (uint8_t)ctrlr->state;
		nvme_reg_read(ctrlr, NVME_REG_CSTS, 4, csts_read);
	}
}

/* An answer may have come while this thread was absent. */
static void step_handle_timeout(struct nvme_ctrlr *ctrlr)
{
	uint64_t ms = step_deadline_ms(ctrlr, states[ctrlr->state].deadline);
	char what[64];

	if (thread_timer_was_absent(&ctrlr->step_timer, ms * 1000)) {
		step_deadline_start(ctrlr);
		if (step_polls_csts(ctrlr)) {
			enter_wait_csts(ctrlr);
		}
	} else if (ctrlr->state == NVME_CTRLR_WAIT_READY_OLD) {
		nvme_ctrlr_set_state(ctrlr, NVME_CTRLR_DISABLE); /* its previous user did not finish enabling it: it
								    will not become ready by itself */
	} else {
		snprintf(what, sizeof(what), "no answer within %llu ms", (unsigned long long)ms);
		step_failed(ctrlr, what);
	}
}

void nvme_ctrlr_step_timer_fired(void *arg)
{
	struct nvme_ctrlr *ctrlr = arg;

	if (ctrlr->state == NVME_CTRLR_BACK_OFF) {
		nvme_ctrlr_start_attempt(ctrlr);
	} else if (env_ticks() >= ctrlr->step_deadline) {
		step_handle_timeout(ctrlr);
	} else {
		enter_wait_csts(ctrlr);
	}
}

static int admin_queue_poll(void *arg)
{
	struct nvme_ctrlr *ctrlr = arg;
	int n = nvme_qpair_poll(ctrlr->admin, 0);

	if (n == -ENXIO) {
		nvme_ctrlr_fail(ctrlr, "the connection of the admin queue is lost");
	}
	return n > 0 ? POLLER_BUSY : POLLER_IDLE;
}

static void enter_connect(struct nvme_ctrlr *ctrlr)
{
	ctrlr->over_tls = ctrlr->generated != NULL;
	ctrlr->ops->connect(ctrlr);
}

/* Fabrics 3.3: dword 0 of a Connect with invalid parameters says which: the byte in its data (bit 16) or command. */
#define STATUS_CODE           0x7ff /* SCT and SC */
#define CONNECT_INVALID       (1 << 8 | NVME_SC_CONNECT_INVALID_PARAM)
#define CONNECT_WRONG_SUBNQN  0x10100
#define CONNECT_WRONG_HOSTNQN 0x10200

static void ctrlr_connect_refused(struct nvme_ctrlr *ctrlr, uint16_t status, uint32_t dw0)
{
	const struct nvme_trid *t = &ctrlr->trid;

	if ((status & STATUS_CODE) == CONNECT_INVALID && dw0 == CONNECT_WRONG_SUBNQN) {
		nvme_ctrlr_lost(ctrlr, "Connect was refused: there is no subsystem %s at %s port %s", t->subnqn,
				t->traddr, t->trsvcid);
	} else if ((status & STATUS_CODE) == CONNECT_INVALID && dw0 == CONNECT_WRONG_HOSTNQN) {
		nvme_ctrlr_lost(ctrlr, "Connect was refused: the host's NQN, %s, is not accepted", ctrlr->opts.hostnqn);
	} else {
		nvme_ctrlr_lost(ctrlr, "Connect was refused: %s (dword 0: 0x%08x)", nvme_status_text(status), dw0);
	}
}

static void ctrlr_fabrics_connected(void *arg, const struct nvme_cqe *cqe)
{
	struct nvme_ctrlr *ctrlr = arg;
	uint16_t status = nvme_cqe_status(cqe);

	if (ctrlr->in_failure) {
		return;
	}
	if (status != 0) {
		ctrlr_connect_refused(ctrlr, status, le32toh(cqe->dw0));
		return;
	}
	ctrlr->cntlid = (uint16_t)le32toh(cqe->dw0);
	nvme_ctrlr_set_state(ctrlr, nvme_auth_needed(ctrlr, cqe) ? NVME_CTRLR_AUTHENTICATE : NVME_CTRLR_READ_CAP);
}

static void ctrlr_authenticated(void *arg, int error, const char *why)
{
	struct nvme_ctrlr *ctrlr = arg;

	if (ctrlr->in_failure) {
		return;
	}
	if (error != 0) {
		step_failed(ctrlr, why);
		return;
	}
	if (ctrlr->generated != NULL && !ctrlr->over_tls) {
		nvme_ctrlr_secure(ctrlr);
		return;
	}
	nvme_ctrlr_set_state(ctrlr, NVME_CTRLR_READ_CAP);
}

static void enter_authenticate(struct nvme_ctrlr *ctrlr)
{
	int rc = nvme_auth_start(ctrlr->admin, ctrlr->opts.dhchap_key, ctrlr->opts.dhchap_ctrlr_key,
				 ctrlr_authenticated, ctrlr);

	if (rc != 0) {
		step_failed(ctrlr,
			    rc == -ENOKEY ? "the controller asks for it, and there is no dhchap_key" : strerror(-rc));
	}
}

static bool admin_queue_arm(void *arg)
{
	return nvme_qpair_arm(((struct nvme_ctrlr *)arg)->admin);
}

void nvme_ctrlr_connected(struct nvme_ctrlr *ctrlr, int error, const char *why)
{
	if (ctrlr->in_failure) {
		return;
	}
	if (error != 0) {
		step_failed(ctrlr, why);
		return;
	}
	nvme_qpair_set_state(ctrlr->admin, NVME_QPAIR_READY);
	int fd = nvme_qpair_fd(ctrlr->admin);
	/* not less often than by default: commands would end late, not only events */
	uint32_t poll_us = ctrlr->opts.admin_poll_us;
	poll_us = poll_us == 0 || poll_us > ADMIN_POLL_US ? ADMIN_POLL_US : poll_us;
	ctrlr->admin_poller = poller_register(&(struct poller_opts){.name = "nvme_admin",
								    .fn = admin_queue_poll,
								    .ctx = ctrlr,
								    .fd = fd,
								    .arm = fd >= 0 ? admin_queue_arm : NULL,
								    .period_us = fd >= 0 ? 0 : poll_us});
	if (ctrlr->admin_poller == NULL) {
		step_failed(ctrlr, "out of memory");
	} else if (!ctrlr->ops->transport.fabrics) {
		nvme_ctrlr_set_state(ctrlr, NVME_CTRLR_READ_CAP);
	} else if (nvme_fabrics_connect(ctrlr->admin, ctrlr_fabrics_connected, ctrlr) != 0) {
		step_failed(ctrlr, "Connect could not be sent");
	}
}

static void cap_read(struct nvme_ctrlr *ctrlr, int error, uint64_t cap)
{
	if (ctrlr->in_failure) {
		return;
	}
	if (error != 0 || cap == UINT64_MAX) {
		step_failed(ctrlr, error ? strerror(-error) : "CAP reads as all ones");
		return;
	}
	if (NVME_CAP_MPSMIN(cap) != 0) { /* it can use only memory pages larger than 4 KiB */
		step_failed(ctrlr, "the controller cannot use 4 KiB memory pages (CAP.MPSMIN)");
		return;
	}
	if (NVME_CAP_MQES(cap) == 0) { /* 0's based, and a queue has at least two entries (Base 3.1.3.1) */
		step_failed(ctrlr, "CAP.MQES is 0, and must be 1 at least");
		return;
	}
	ctrlr->cap = cap;
	nvme_ctrlr_set_state(ctrlr, NVME_CTRLR_READ_VS);
}

static void enter_read_cap(struct nvme_ctrlr *ctrlr)
{
	nvme_reg_read(ctrlr, NVME_REG_CAP, 8, cap_read);
}

static void vs_read(struct nvme_ctrlr *ctrlr, int error, uint64_t vs)
{
	if (ctrlr->in_failure) {
		return;
	}
	if (error != 0) {
		step_failed(ctrlr, strerror(-error));
		return;
	}
	ctrlr->vs = (uint32_t)vs;
	nvme_ctrlr_set_state(ctrlr, NVME_CTRLR_CHECK_CC);
}

static void enter_read_vs(struct nvme_ctrlr *ctrlr)
{
	nvme_reg_read(ctrlr, NVME_REG_VS, 4, vs_read);
}

static void cc_read(struct nvme_ctrlr *ctrlr, int error, uint64_t cc)
{
	if (ctrlr->in_failure) {
		return;
	}
	if (error != 0) {
		step_failed(ctrlr, strerror(-error));
		return;
	}
	ctrlr->cc = (uint32_t)cc;
	/* an enabled controller must be ready before it may be disabled (Base 3.1.3.5, CC.EN) */
	nvme_ctrlr_set_state(ctrlr, NVME_CC_EN(ctrlr->cc) ? NVME_CTRLR_WAIT_READY_OLD : NVME_CTRLR_WAIT_DISABLED);
}

static void enter_check_cc(struct nvme_ctrlr *ctrlr)
{
	nvme_reg_read(ctrlr, NVME_REG_CC, 4, cc_read);
}

static void enter_disable(struct nvme_ctrlr *ctrlr)
{
	nvme_reg_write(ctrlr, NVME_REG_CC, 4, ctrlr->cc & ~UINT32_C(1), reg_written);
}

static void enter_enable(struct nvme_ctrlr *ctrlr)
{
	int rc = ctrlr->ops->before_enable ? ctrlr->ops->before_enable(ctrlr) : 0;

	if (rc != 0) {
		step_failed(ctrlr, strerror(-rc));
		return;
	}
	/* NVM command set, 4 KiB pages, round robin, 64-byte SQ and 16-byte CQ entries */
	ctrlr->cc = 1 | 6 << NVME_CC_IOSQES_SHIFT | 4 << NVME_CC_IOCQES_SHIFT;
	nvme_reg_write(ctrlr, NVME_REG_CC, 4, ctrlr->cc, reg_written);
}

/* Whether the command of a state succeeded; if not, the attempt has failed. */
static bool step_command_succeeded(struct nvme_ctrlr *ctrlr, const struct nvme_cqe *cqe)
{
	if (ctrlr->in_failure) {
		return false;
	}
	if (nvme_cqe_status(cqe) != 0) {
		step_failed(ctrlr, nvme_status_text(nvme_cqe_status(cqe)));
		return false;
	}
	return true;
}

static void step_command_send(struct nvme_ctrlr *ctrlr, const struct nvme_sqe *cmd, void *data, uint32_t len,
			      void (*cb)(void *arg, const struct nvme_cqe *cqe))
{
	int rc = nvme_ctrlr_admin(ctrlr, cmd, data, len, false, cb, ctrlr);

	if (rc != 0) {
		step_failed(ctrlr, strerror(-rc));
	}
}

static void ctrlr_identified(void *arg, const struct nvme_cqe *cqe)
{
	struct nvme_ctrlr *ctrlr = arg;

	if (step_command_succeeded(ctrlr, cqe)) {
		memcpy(&ctrlr->id, ctrlr->buf, sizeof(ctrlr->id));
		if (!ctrlr->ops->transport.fabrics) { /* over fabrics, the answer to Connect has it */
			ctrlr->cntlid = le16toh(ctrlr->id.cntlid);
		}
		if (ctrlr->ops->identified != NULL) {
			ctrlr->ops->identified(ctrlr);
		} else {
			nvme_ctrlr_configured(ctrlr, 0);
		}
	}
}

void nvme_ctrlr_configured(struct nvme_ctrlr *ctrlr, int error)
{
	if (ctrlr->in_failure) {
		return;
	}
	if (error != 0) {
		step_failed(ctrlr, strerror(-error));
		return;
	}
	nvme_ctrlr_set_state(ctrlr, ctrlr->opts.discovery ? NVME_CTRLR_SET_AER : NVME_CTRLR_SET_QUEUES);
}

static void enter_identify(struct nvme_ctrlr *ctrlr)
{
	struct nvme_sqe cmd = {.opcode = nvme_admin_identify, .cdw10 = htole32(NVME_IDENTIFY_CNS_CTRL)};

	step_command_send(ctrlr, &cmd, ctrlr->buf, NVME_IDENTIFY_DATA_SIZE, ctrlr_identified);
}

static void queues_set(void *arg, const struct nvme_cqe *cqe)
{
	struct nvme_ctrlr *ctrlr = arg;

	if (step_command_succeeded(ctrlr, cqe)) {
		uint32_t sq = (le32toh(cqe->dw0) & 0xffff) + 1, cq = (le32toh(cqe->dw0) >> 16) + 1;
		uint32_t granted = sq < cq ? sq : cq;

		ctrlr->io_queues = (uint16_t)(granted < ctrlr->opts.io_queues ? granted : ctrlr->opts.io_queues);
		nvme_ctrlr_set_state(ctrlr, NVME_CTRLR_SET_AER);
	}
}

static void enter_set_queues(struct nvme_ctrlr *ctrlr)
{
	uint32_t n = ctrlr->opts.io_queues - 1u;
	struct nvme_sqe cmd = {
		.opcode = nvme_admin_set_features,
		.cdw10 = htole32(NVME_FEAT_FID_NUM_QUEUES),
		.cdw11 = htole32(n | n << 16),
	};

	step_command_send(ctrlr, &cmd, NULL, 0, queues_set);
}

static void events_set(struct nvme_ctrlr *ctrlr)
{
	nvme_ctrlr_set_state(ctrlr, ctrlr->opts.discovery ? NVME_CTRLR_READY : NVME_CTRLR_SCAN_NS);
}

static void aer_set(void *arg, const struct nvme_cqe *cqe)
{
	struct nvme_ctrlr *ctrlr = arg;
	uint16_t status = nvme_cqe_status(cqe);

	if (ctrlr->in_failure || (ctrlr->admin->failed && !step_command_succeeded(ctrlr, cqe))) {
		return;
	}
	if (status != 0) { /* it can do I/O nevertheless, and may send its default events */
		log_warning("%s: the event configuration was refused: %s", ctrlr->trid.traddr,
			    nvme_status_text(status));
	}
	nvme_ctrlr_start_aers(ctrlr);
	events_set(ctrlr);
}

static void enter_set_aer(struct nvme_ctrlr *ctrlr)
{
	/* every SMART warning, and those notices which the controller has (OAES) and this driver handles */
	uint32_t notices = le32toh(ctrlr->id.oaes) & (UINT32_C(1) << 8 | UINT32_C(1) << 11 |
						      NVME_AENCFG_NOTICE_CROSS_CTRL_RESET | UINT32_C(1) << 31);
	struct nvme_sqe cmd = {
		.opcode = nvme_admin_set_features,
		.cdw10 = htole32(NVME_FEAT_FID_ASYNC_EVENT),
		.cdw11 = htole32((ctrlr->opts.discovery ? 0 : 0x1f) | notices),
	};

	if (cmd.cdw11 == 0) { /* a discovery controller without notices need not have these commands */
		events_set(ctrlr);
		return;
	}
	step_command_send(ctrlr, &cmd, NULL, 0, aer_set);
}

static void scan_ana_read(struct nvme_ctrlr *ctrlr, int error)
{
	if (ctrlr->in_failure) {
		return;
	}
	if (error != 0) {
		step_failed(ctrlr, strerror(-error));
		return;
	}
	nvme_ctrlr_set_state(ctrlr, NVME_CTRLR_READY);
}

/* The namespaces are known; reading their access states belongs to the same state. */
static void namespaces_scanned(struct nvme_ctrlr *ctrlr, int error)
{
	if (error != 0 || ctrlr->in_failure || !nvme_ctrlr_has_ana(ctrlr)) {
		scan_ana_read(ctrlr, error);
	} else {
		nvme_ctrlr_step_goes_on(ctrlr);
		nvme_ana_read(ctrlr, scan_ana_read);
	}
}

static void enter_scan_ns(struct nvme_ctrlr *ctrlr)
{
	nvme_ns_scan(ctrlr, namespaces_scanned);
}

static void enter_ready(struct nvme_ctrlr *ctrlr)
{
	ctrlr->last_error[0] = '\0';
	ctrlr->last_qid = 0;
	ctrlr->refused = false;
	ctrlr->has_ended = false;
	nvme_ctrlr_start_keep_alive(ctrlr);
	nvme_ctrlr_start_watch(ctrlr);
	nvme_ctrlr_emit(ctrlr, NVME_EVENT_READY, 0);
	if (!ctrlr->refused) {
		ctrlr->attempts = 0;
		ctrlr->down_since = 0;
		ctrlr->was_ready = true;
	}
}

static void enter_shutdown(struct nvme_ctrlr *ctrlr)
{
	nvme_reg_write(ctrlr, NVME_REG_CC, 4, ctrlr->cc | NVME_CC_SHN_NORMAL << NVME_CC_SHN_SHIFT, reg_written);
}
