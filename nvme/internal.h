/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the files of nvme/, but not by its transports. All functions are the control thread's, unless their comment
 * says otherwise. */
#ifndef NVME_INTERNAL_H
#define NVME_INTERNAL_H

#include "nvme/transport.h"

struct keyring_key;

/* transports.c: the operations of a transport, or NULL: this program does not have it. */
const struct nvme_transport_ops *nvme_transport_ops_find(enum nvme_trtype trtype);

/* --- Controllers --- */

/* Another address of the same controller (alternate.c). */
struct nvme_alternate {
	struct nvme_trid trid;
	TAILQ_ENTRY(nvme_alternate) link;
};

struct nvme_ns_table {
	uint32_t count;
	struct nvme_ns ns[]; /* by ascending nsid */
};

/* Announces an event to the owner of a controller, unless nvme_ctrlr_destroy() has been called. aer: dword 0 of the
 * asynchronous event that is the reason, or 0. */
void nvme_ctrlr_emit(struct nvme_ctrlr *ctrlr, enum nvme_event event, uint32_t aer);
/* Enters a state, and starts the state's operation. ctrlr_states.c */
void nvme_ctrlr_set_state(struct nvme_ctrlr *ctrlr, enum nvme_ctrlr_state state);
/* The operation of the state sends another command, which has the state's whole time limit again. */
void nvme_ctrlr_step_goes_on(struct nvme_ctrlr *ctrlr);
/* Of ctrlr->step_timer: the deadline of a state, the next look at CSTS, or the end of the delay between attempts. */
void nvme_ctrlr_step_timer_fired(void *arg);
/* The attempt or the connection has failed; the first reason is kept. ctrlr.c */
void nvme_ctrlr_fail(struct nvme_ctrlr *ctrlr, const char *why);
/* Cross-Controller Resets that a controller was asked for: cross_reset.c. Prepares the list; reads the log page that
 * tells of their ends, if there are any; ends them as failed, since the connection ends. */
void nvme_cross_resets_init(struct nvme_ctrlr *ctrlr);
void nvme_cross_resets_read(struct nvme_ctrlr *ctrlr);
void nvme_cross_resets_end(struct nvme_ctrlr *ctrlr);
/* Whether the connection that has failed is to be ended by nvme_ctrlr_disable(): its I/O queue pairs may have commands
 * outstanding, and its admin queue has not failed. disable.c */
bool nvme_ctrlr_disable_is_due(const struct nvme_ctrlr *ctrlr);
/* Clears CC.EN and waits for CSTS.RDY to be cleared, for a limited time. Ends in nvme_ctrlr_quiesced(), later;
 * ctrlr->has_ended is the outcome. disable.c */
void nvme_ctrlr_disable(struct nvme_ctrlr *ctrlr);
/* Makes an attempt to connect, or looks again soon if users still have queue pairs of the last connection. */
void nvme_ctrlr_start_attempt(struct nvme_ctrlr *ctrlr);
/* Enters BACK_OFF: starts the delay before the next attempt. */
void nvme_ctrlr_start_back_off(struct nvme_ctrlr *ctrlr);
/* The delay from a failed attempt to the next one, after so many attempts, of a controller that has been down for so
 * long. The last one ends when the loss timeout does. Pure. */
uint64_t nvme_back_off_us(const struct nvme_ctrlr_opts *opts, uint32_t attempts, uint64_t down_us);

/* After a failure: chooses the address of the next attempt, and whether that attempt has no delay. alternate.c */
void nvme_alternates_turn(struct nvme_ctrlr *ctrlr, bool was_ready);
/* Frees the list of addresses. */
void nvme_alternates_free(struct nvme_ctrlr *ctrlr);

/* A PSK has been generated on the admin queue, which is connected anew, over TLS, outside of the caller. */
void nvme_ctrlr_secure(struct nvme_ctrlr *ctrlr);

/* Sends as many Asynchronous Event Requests as the controller takes. admin.c */
void nvme_ctrlr_start_aers(struct nvme_ctrlr *ctrlr);
/* While READY, with each look of watch.c: sends those requests again that could not be sent before, because there was
 * no memory or no room in the admin queue. */
void nvme_ctrlr_retry_events(struct nvme_ctrlr *ctrlr);
/* Starts Keep Alive, where the transport is a network and the options want it. */
void nvme_ctrlr_start_keep_alive(struct nvme_ctrlr *ctrlr);
/* Stops the timers of the admin queue. */
void nvme_ctrlr_stop_admin(struct nvme_ctrlr *ctrlr);

/* Starts to look at the controller's health, and for admin commands without an answer. watch.c */
void nvme_ctrlr_start_watch(struct nvme_ctrlr *ctrlr);

/* Reads the namespaces anew; done(ctrlr, error) with ctrlr->ns replaced on success. ns.c */
void nvme_ns_scan(struct nvme_ctrlr *ctrlr, void (*done)(struct nvme_ctrlr *ctrlr, int error));
/* Ends the scan under way, if there is one: done() is not called. */
void nvme_ns_scan_abort(struct nvme_ctrlr *ctrlr);
/* Reads the ANA log; done(ctrlr, error) with ctrlr->ana_groups replaced on success. ana.c */
void nvme_ana_read(struct nvme_ctrlr *ctrlr, void (*done)(struct nvme_ctrlr *ctrlr, int error));

/* Reads or writes a register, or the property in its place, of 4 or 8 bytes; fn may be called from within. fabrics.c */
void nvme_reg_read(struct nvme_ctrlr *ctrlr, uint32_t offset, unsigned size, nvme_reg_fn fn);
void nvme_reg_write(struct nvme_ctrlr *ctrlr, uint32_t offset, unsigned size, uint64_t value, nvme_reg_fn fn);
/* Sends Connect on a connected queue pair; done(arg, cqe). 0 or a negative errno. fabrics.c */
int nvme_fabrics_connect(struct nvme_qpair *qpair, void (*done)(void *arg, const struct nvme_cqe *cqe), void *arg);

/* --- Queue pairs --- */

/* A message from the using thread of a queue pair to the control thread (watch.c). While it is under way, it may
 * outlive the queue pair. */
struct nvme_qpair_alarm {
	struct thread_msg msg;
	struct nvme_qpair *qpair; /* NULL: destroyed meanwhile. Control thread */
	bool posted; /* atomic; the other fields are the sender's while it is false, the control thread's while true */
	bool broken; /* the queue pair has failed, for the reason `why`; else command `cid` had no answer in time */
	bool not_aborted; /* no Abort could be sent for command `cid`: the sender is to ask again */
	uint16_t cid;
	uint8_t opcode;
	const char *why;
};

/* Changes the state. The using thread and the control thread may end a queue pair at the same time: a step to a state
 * that it has reached or passed already has no effect. The using thread, or the control thread. */
void nvme_qpair_set_state(struct nvme_qpair *qpair, enum nvme_qpair_state state);
/* The using thread, at a submission while !qpair->watched: starts to look for commands without an answer, until none is
 * outstanding. watch.c */
void nvme_qpair_watch(struct nvme_qpair *qpair);
/* The using thread: ends that. */
void nvme_qpair_unwatch(struct nvme_qpair *qpair);
/* The using thread: tells the control thread of a failed queue pair, once. */
void nvme_qpair_report(struct nvme_qpair *qpair);
/* 0 or -ENOMEM. Its end, nvme_qpair_alarm_fini(), is in transport.h. */
int nvme_qpair_alarm_init(struct nvme_qpair *qpair);

/* --- Injected errors: inject.c --- */

enum nvme_forged {
	NVME_GENUINE,
	NVME_FORGED,      /* its status is to be replaced */
	NVME_FORGED_HELD, /* the same, and it was never sent: it is in qpair->held */
};
/* The using thread, at a submission while qpair->injecting: marks req if an injected error applies to it. True: it is
 * held, and must not be sent. */
bool nvme_fault_apply(struct nvme_qpair *qpair, struct nvme_request *req);
/* The using thread, at the completion cqe of a command whose status is replaced: if it is told to have succeeded and
 * has not, what it reads is zeroes, not what was in its buffer before. */
void nvme_fault_clear_data(struct nvme_request *req, const struct nvme_cqe *cqe);
/* The using thread: stops the timer of held commands; nvme_qpair_fail() completes them. */
void nvme_fault_forget(struct nvme_qpair *qpair);

/* --- Authentication: auth.c, rekey.c --- */

/* Whether a controller's answer to Connect, or our options, demand it. */
bool nvme_auth_needed(const struct nvme_ctrlr *ctrlr, const struct nvme_cqe *connect);
typedef void (*nvme_auth_fn)(void *arg, int error, const char *why);
/* Authenticates on a queue pair that the control thread uses. 0: done(arg, 0 or a negative errno, why) follows, from
 * within or later, unless it is cancelled. -ENOKEY: key is NULL, -EBUSY, -ENOMEM. */
int nvme_auth_start(struct nvme_qpair *qpair, struct keyring_key *key, struct keyring_key *ctrlr_key, nvme_auth_fn done,
		    void *arg);
/* Before the queue pair is freed; has no effect if there is no authentication under way. */
void nvme_auth_cancel(struct nvme_qpair *qpair);
/* The connection ends: so does nvme_ctrlr_set_keys(), with an error. */
void nvme_rekey_cancel(struct nvme_ctrlr *ctrlr);

#endif
