/* SPDX-License-Identifier: BSD-3-Clause */
/* The seam between the NVMe host and its transports; private to nvme/. */
#ifndef NVME_TRANSPORT_H
#define NVME_TRANSPORT_H

#include "dhchap/dhchap.h"
#include "nvme/nvme.h"
#include "thread/thread.h"

/* What the using thread has to tell the control thread of a queue pair. It outlives the queue pair while it is under
 * way. */
struct nvme_qpair_alarm {
	struct thread_msg msg;
	struct nvme_qpair *qpair; /* NULL: destroyed meanwhile. Control thread */
	bool posted; /* atomic; the other fields are the sender's while it is false, the control thread's while true */
	bool broken; /* the queue pair has failed, for the reason `why`; otherwise command `cid` has had no answer in
			time */
	uint16_t cid;
	uint8_t opcode;
	const char *why;
};

/* A queue pair; embedded in the transport's own. */
TAILQ_HEAD(nvme_request_list, nvme_request);

/* Injected errors (inject.c). */
enum nvme_forged {
	NVME_GENUINE,
	NVME_FORGED,      /* its status is to be replaced */
	NVME_FORGED_HELD, /* the same, and it was never sent: it is in qpair->held */
};
struct nvme_faults;

struct nvme_qpair {
	/* used per command */
	const struct nvme_transport_ops *ops;
	/* A command id is a slot (0 to entries - 1) in its low bits, `slot_mask`, and above it the number of the slot's
	 * use: so a completion that comes twice, or much too late, is not taken for that of the slot's next command.
	 * FFFFh is never one (Base 3.3.3.1). */
	struct nvme_request **by_slot; /* [entries]; NULL: free */
	uint16_t *free_cids;           /* the next command id of each free slot; a stack of `num_free` */
	uint16_t slot_mask;
	uint16_t num_free;
	uint16_t entries; /* commands that may be outstanding */
	bool failed;      /* no submission any more; set by nvme_qpair_fail() and nvme_qpair_break() */
	bool watched;     /* nvme_qpair_watch() need not be called: its timer runs, or there is no limit for commands */
	bool reported;    /* the control thread has been told of the failure */
	bool injecting;   /* atomic: the controller has, or had, injected errors; never false again */
	/* control path */
	struct nvme_ctrlr *ctrlr;
	uint16_t id;    /* 0: admin */
	bool connected; /* but not handed to its user yet */
	bool created;   /* handed to its user; before that, it is the control thread's */
	uint32_t bad_completions;
	const char *why;                 /* it is broken; NULL otherwise */
	struct nvme_qpair_alarm *alarm;  /* NULL: the admin queue, whose user is the control thread */
	struct thread_timer watch_timer; /* of the using thread: commands without an answer */
	struct nvme_request_list held;   /* injected: not sent, completed by held_timer */
	struct thread_timer held_timer;  /* of the using thread */
	bool stopping;                   /* the control thread is ending it: its failure is no news */
	uint8_t state;                   /* enum nvme_qpair_state; atomic; for observers: nvme_qpair_set_state() */
	struct nvme_auth *auth;          /* under way, or NULL. Control thread */
	struct poller *connect_poller;   /* of the control thread, between the transport's connection and the hand-over;
					    or NULL */
	struct thread_timer connect_timer;
	uint32_t connect_ms; /* what it was started with */
	void (*ready)(void *arg, struct nvme_qpair *qpair, int error);
	void *ready_arg;
	TAILQ_ENTRY(nvme_qpair) link; /* ctrlr->qpairs */
};

/* What a command id on the wire stands for; NULL: nothing that is outstanding. */
static inline struct nvme_request *nvme_qpair_request(const struct nvme_qpair *qpair, uint16_t cid)
{
	uint16_t slot = cid & qpair->slot_mask;
	struct nvme_request *req = slot < qpair->entries ? qpair->by_slot[slot] : NULL;

	return req != NULL && le16toh(req->cmd.cid) == cid ? req : NULL;
}

typedef void (*nvme_reg_fn)(struct nvme_ctrlr *ctrlr, int error, uint64_t value);

struct nvme_transport_ops {
	enum nvme_trtype trtype;
	size_t request_size; /* bytes the transport wants behind each struct nvme_request */
	bool fabrics;        /* properties and Connect in place of registers and Create I/O SQ/CQ */
	bool writes_alone; /* the device cannot be kept from our memory by `shut`: what is outstanding may be given back
			    * only after it has been stopped, by qpair_stop or quiesce */

	/* Control thread. alloc returns the transport's structure, of which struct nvme_ctrlr is the first member;
	 * NULL: error and errno. */
	struct nvme_ctrlr *(*ctrlr_alloc)(const struct nvme_trid *trid, char error[NVME_ERROR_MAX]);
	void (*ctrlr_free)(struct nvme_ctrlr *ctrlr);
	/* Makes ctrlr->admin usable; ends in nvme_ctrlr_connected(). */
	void (*connect)(struct nvme_ctrlr *ctrlr);
	/* Has the device leave all of our memory alone, whatever it does; ends in nvme_ctrlr_quiesced(), maybe at once.
	 * Called before disconnect when ctrlr->admin is there. May be NULL: disconnect is enough. */
	void (*quiesce)(struct nvme_ctrlr *ctrlr);
	/* Drops what connect made, in whatever state it is. Outstanding admin commands are the caller's to complete. */
	void (*disconnect)(struct nvme_ctrlr *ctrlr);
	/* Called with the controller disabled, before CC.EN is set; may be NULL. PCIe tells where the admin queue is. 0
	 * or a negative errno. */
	int (*before_enable)(struct nvme_ctrlr *ctrlr);
	/* Identify Controller has been read; ends in nvme_ctrlr_configured(). May be NULL. */
	void (*identified)(struct nvme_ctrlr *ctrlr);
	/* Now and then while READY: is it well? Calls nvme_ctrlr_lost() or nvme_ctrlr_removed() if not. May be NULL. */
	void (*check)(struct nvme_ctrlr *ctrlr);
	/* 4 or 8 bytes at an offset of the controller registers (NVMe Base 2.0, 3.1.3). Fabrics leave these NULL. */
	void (*reg_read)(struct nvme_ctrlr *ctrlr, uint32_t offset, unsigned size, nvme_reg_fn fn);
	void (*reg_write)(struct nvme_ctrlr *ctrlr, uint32_t offset, unsigned size, uint64_t value, nvme_reg_fn fn);
	uint32_t (*max_transfer)(struct nvme_ctrlr *ctrlr);
	uint16_t (*max_segments)(const struct nvme_ctrlr *ctrlr); /* NULL: 1 */
	uint32_t buf_align;                                       /* bytes, of addresses and lengths; 0: 1 */

	/* Control thread. connect ends in nvme_qpair_transport_connected(). */
	struct nvme_qpair *(*qpair_alloc)(struct nvme_ctrlr *ctrlr, uint16_t id, uint16_t entries,
					  const struct nvme_qpair_opts *opts);
	void (*qpair_connect)(struct nvme_qpair *qpair);
	/* Ends the device's use of the queue and of all buffers in it; ends in done(arg), maybe at once. */
	void (*qpair_stop)(struct nvme_qpair *qpair, void (*done)(void *arg), void *arg);
	void (*qpair_free)(struct nvme_qpair *qpair); /* disconnects it too */

	/* Whoever completes what is outstanding, before that: the device takes no access to our memory through this
	 * queue pair any more, at once. In any state of it, also again. NULL: see writes_alone. */
	void (*shut)(struct nvme_qpair *qpair);

	/* The using thread. submit: the cid is set; builds the data pointer and queues the command. 0 or a negative
	 * errno (the request is not taken). poll hands each completion to nvme_qpair_complete(). */
	int (*submit)(struct nvme_qpair *qpair, struct nvme_request *req);
	void (*flush)(struct nvme_qpair *qpair);
	int (*poll)(struct nvme_qpair *qpair, uint32_t max);
	int (*fd)(const struct nvme_qpair *qpair);
	bool (*arm)(struct nvme_qpair *qpair);
};

void nvme_transport_register(const struct nvme_transport_ops *ops); /* from a constructor */
const struct nvme_transport_ops *nvme_transport_find(enum nvme_trtype trtype);

#define NVME_AER_MAX 4
TAILQ_HEAD(nvme_qpair_list, nvme_qpair);

/* Another address of the same controller. */
struct nvme_alternate {
	struct nvme_trid trid; /* first: nvme_ctrlr_next_alternate() */
	TAILQ_ENTRY(nvme_alternate) link;
};

struct nvme_ns_table {
	uint32_t count;
	struct nvme_ns ns[]; /* by ascending nsid */
};

/* A controller; embedded in the transport's own. Control thread. */
struct nvme_ctrlr {
	const struct nvme_transport_ops *ops;
	struct nvme_trid trid;
	struct nvme_ctrlr_opts opts;
	enum nvme_ctrlr_state state;
	uint64_t state_ticks;
	char last_error[NVME_ERROR_MAX];

	uint64_t cap;
	uint32_t vs, cc;
	uint16_t cntlid;
	uint16_t io_queues;
	struct nvme_id_ctrl id;
	struct nvme_ns_table *ns;

	uint32_t stripe_bytes; /* a boundary that I/O should not cross, where namespaces do not name one; 0: none */
	uint16_t owner;        /* in the trace */

	struct nvme_qpair *admin; /* NULL: no connection */
	struct nvme_qpair_list qpairs;
	uint64_t *qids;    /* bitmap of I/O queue ids in use */
	uint16_t last_qid; /* of them, that was given; 0: none on this connection */
	struct poller *admin_poller;
	struct thread_timer step_timer;  /* the deadline of a state, or the next look at CSTS */
	struct thread_timer defer_timer; /* tears down outside of the callbacks of what it frees */
	uint64_t step_deadline;          /* ticks; 0: none */
	struct thread_timer watch_timer; /* health, and admin commands without an answer */
	struct nvme_faults *faults;      /* injected errors; NULL: never any */
	uint8_t aborts;                  /* Abort commands outstanding */
	struct thread_timer keep_alive_timer;
	bool keep_alive_outstanding;
	uint8_t aers;        /* outstanding */
	uint8_t aers_wanted; /* outstanding, and answered but not yet read: so many the controller has not refused */
	uint8_t num_unread;
	uint32_t unread[NVME_AER_MAX]; /* dword 0 of answers whose log page is still to be asked for */
	const void *event_log;         /* of the NVME_EVENT_LOG that is being told; else NULL */
	bool rescan_due;               /* the namespaces have changed, and are still to be read again */
	void *buf;                     /* 4 KiB, DMA-able: identify data and log pages */
	struct nvme_ns_scan *scan;     /* running, or NULL */
	bool scan_again;
	TAILQ_HEAD(, nvme_alternate) alternates; /* trid is none of them */
	uint32_t untried;                        /* of them, since the connection was lost */
	struct nvme_ana_group *ana_groups;       /* what the ANA log says; NULL: not read yet, or not reported */
	uint32_t num_ana_groups;
	bool ana_reading, ana_read_again, ana_due;
	bool refused;    /* nvme_ctrlr_refuse() */
	bool was_ready;  /* READY was announced, DOWN was not */
	bool in_failure; /* an attempt or a connection has failed; completions lead nowhere until the next one */
	bool removed;
	bool attempt_due;         /* a lost connection, or a reset: one attempt is made whatever the loss timeout */
	bool quiescing, quiesced; /* on the way from a failure to letting go */
	uint64_t down_since;      /* ticks; 0: is up */
	uint32_t attempts;
	struct nvme_rekey *rekey; /* nvme_ctrlr_set_keys() is under way, or NULL */
	bool destroying;
	void (*destroyed)(void *arg);
	void *destroyed_arg;
};

/* From transports. */
void nvme_ctrlr_connected(struct nvme_ctrlr *ctrlr, int error, const char *why);
void nvme_ctrlr_removed(struct nvme_ctrlr *ctrlr);
void nvme_ctrlr_quiesced(struct nvme_ctrlr *ctrlr);
void nvme_ctrlr_configured(struct nvme_ctrlr *ctrlr, int error);
void nvme_qpair_transport_connected(struct nvme_qpair *qpair, int error);
/* Sets up the common part of a queue pair that the transport allocated. 0, -ENOMEM, or -EINVAL: no entries. */
int nvme_qpair_init(struct nvme_qpair *qpair, struct nvme_ctrlr *ctrlr, uint16_t id, uint16_t entries);
void nvme_qpair_fini(struct nvme_qpair *qpair);
/* A completion from the wire; a cid that is not outstanding counts as a bad completion and fails the queue pair. */
void nvme_qpair_complete(struct nvme_qpair *qpair, const struct nvme_cqe *cqe);
/* The using thread: no submission any more, the control thread is told, and the controller is reset. What is
 * outstanding stays so until it has been. why: a constant. */
void nvme_qpair_break(struct nvme_qpair *qpair, const char *why);
/* The connection is lost: completes everything outstanding with NVME_SC_ABORT_QUEUE; poll returns -ENXIO from now on.
 * The using thread. */
void nvme_qpair_fail(struct nvme_qpair *qpair);

/* Within the room. */
/* The using thread, or the control thread. A step that the table of states does not have is none: the using thread may
 * find out that a queue pair has failed while the control thread is ending it already. */
void nvme_qpair_set_state(struct nvme_qpair *qpair, enum nvme_qpair_state state);
/* The using thread, at a submission while !qpair->watched: has an eye on commands until none is outstanding. */
void nvme_qpair_watch(struct nvme_qpair *qpair);
void nvme_qpair_unwatch(struct nvme_qpair *qpair);
/* The using thread: tells the control thread of a failed queue pair, once. */
void nvme_qpair_report(struct nvme_qpair *qpair);
int nvme_qpair_alarm_init(struct nvme_qpair *qpair);
void nvme_qpair_alarm_fini(struct nvme_qpair *qpair);
/* The using thread, at a submission while qpair->injecting: marks req if its completion is to be forged. True: it is
 * held, and must not be sent. */
bool nvme_fault_apply(struct nvme_qpair *qpair, struct nvme_request *req);
/* The using thread: no held command is completed by itself any more. */
void nvme_fault_forget(struct nvme_qpair *qpair);
void nvme_ctrlr_start_watch(struct nvme_ctrlr *ctrlr);
void nvme_ctrlr_lost(struct nvme_ctrlr *ctrlr, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void nvme_ctrlr_start_aers(struct nvme_ctrlr *ctrlr);
/* Now and then while READY: what could not be asked for before, for want of memory or room in the admin queue. */
void nvme_ctrlr_retry_events(struct nvme_ctrlr *ctrlr);
/* From a failed attempt to the next one, after so many of them, by a controller that has been away for so long.
 * Pure. */
uint64_t nvme_back_off_us(const struct nvme_ctrlr_opts *opts, uint32_t attempts, uint64_t away_us);
/* A state's operation goes on with another command, which has the whole of the state's time again. */
void nvme_ctrlr_step_goes_on(struct nvme_ctrlr *ctrlr);
void nvme_ctrlr_start_keep_alive(struct nvme_ctrlr *ctrlr);
void nvme_ctrlr_stop_admin(struct nvme_ctrlr *ctrlr);
/* Reads the namespaces anew; done(ctrlr, error) with ctrlr->ns replaced on success. */
void nvme_ns_scan(struct nvme_ctrlr *ctrlr, void (*done)(struct nvme_ctrlr *ctrlr, int error));
void nvme_ns_scan_abort(struct nvme_ctrlr *ctrlr);
/* After a failure: which address is next, and whether it is tried at once. */
void nvme_alternates_turn(struct nvme_ctrlr *ctrlr, bool was_ready);
void nvme_alternates_free(struct nvme_ctrlr *ctrlr);
/* Reads the ANA log; done(ctrlr, error) with ctrlr->ana_groups replaced on success. */
void nvme_ana_read(struct nvme_ctrlr *ctrlr, void (*done)(struct nvme_ctrlr *ctrlr, int error));
/* Registers or properties, whichever the transport has. */
void nvme_reg_read(struct nvme_ctrlr *ctrlr, uint32_t offset, unsigned size, nvme_reg_fn fn);
void nvme_reg_write(struct nvme_ctrlr *ctrlr, uint32_t offset, unsigned size, uint64_t value, nvme_reg_fn fn);
/* Fabrics Connect on a connected queue pair; done(arg, cqe). */
int nvme_fabrics_connect(struct nvme_qpair *qpair, void (*done)(void *arg, const struct nvme_cqe *cqe), void *arg);

/* Bytes of data or of descriptors that may follow a command in its capsule: an I/O queue's are longer than 64 bytes if
 * the controller says so (IOCCSZ, in units of 16 bytes). The data must begin right behind the command (ICDOFF is 0),
 * and the controller take descriptors with offsets (SGLS bit 20, Base 5.17.2.1). The admin queue may always send what
 * Connect needs, 1 KiB, in its capsule (Base 6.3, RDMA 3.1) - but it works by key just as well. Pure. */
uint32_t nvme_capsule_room(const struct nvme_id_ctrl *id);

/* Authentication: auth.c. All on the control thread. */
/* Whether a controller's answer to Connect, or our options, ask for it. */
bool nvme_auth_needed(const struct nvme_ctrlr *ctrlr, const struct nvme_cqe *connect);
/* On a queue pair that the control thread uses. 0: done(arg, 0 or a negative errno, why) follows, now or later, unless
 * it is cancelled. -ENOKEY: key is NULL, -EBUSY, -ENOMEM. */
typedef void (*nvme_auth_fn)(void *arg, int error, const char *why);
int nvme_auth_start(struct nvme_qpair *qpair, struct keyring_key *key, struct keyring_key *ctrlr_key, nvme_auth_fn done,
		    void *arg);
/* Before the queue pair goes; also if there is none. */
void nvme_auth_cancel(struct nvme_qpair *qpair);
/* rekey.c: the controller goes down. */
void nvme_rekey_cancel(struct nvme_ctrlr *ctrlr);

#endif
