/* SPDX-License-Identifier: BSD-3-Clause */
/* The operations that a transport of the NVMe host provides, and the functions that it may call. A transport is a
 * folder under nvme/ (pcie/, rdma/, tcp/) that includes this header and nvme.h, and no other of the room; nothing else
 * of varve names it, nvme/meson.build excepted.
 *
 * A transport fills in one struct nvme_transport_ops and registers it from a constructor. It allocates controllers and
 * queue pairs, as structures of its own whose first member is struct nvme_ctrlr or struct nvme_qpair, connects queue
 * pairs, and carries commands and completions. All else is the room's (nvme/internal.h): the states of a controller,
 * the commands that bring it up, over fabrics Connect, authentication, properties and Keep Alive, asynchronous events,
 * namespaces, command ids, timeouts, reconnection, multiple addresses.
 *
 * The life of a controller, as a transport sees it:
 *  1. ctrlr_alloc().
 *  2. connect(): the transport makes ctrlr->admin with its own qpair_alloc(ctrlr, 0, opts.admin_queue_entries) and
 *     connects it. It ends by nvme_ctrlr_connected(), from within connect() or later.
 *  3. The room polls ctrlr->admin, on the control thread. Over fabrics it sends Connect there, and properties in place
 * of registers. It brings the controller up: before_enable(), identified().
 *  4. For each I/O queue pair: qpair_alloc(), qpair_connect(), which ends by nvme_qpair_transport_connected(), from
 *     within or later. Over fabrics the room sends Connect on it. Then it hands the queue pair to its user (`created`).
 *  5. A connection that is lost shows in one of these ways:
 *     - before nvme_ctrlr_connected() or nvme_qpair_transport_connected() was called: call that one with an error;
 *     - later: poll() returns -ENXIO. If the queue pair is `created` or the admin queue, poll() has called
 *       nvme_qpair_fail(), or nvme_qpair_break() if dma_until_stopped, before it returns. Where the loss is noticed by
 *       another thread than the user's (an event on the control thread), the transport sets a flag of its own, which
 *       poll() reads, and wakes up a user that sleeps on fd().
 *     The room tells the owner, who ends all I/O queue pairs (qpair_stop(), shut(), qpair_free()); quiesce() and
 *     disconnect() end the connection of the admin queue. After a delay step 2 follows again, with the same controller
 *     and perhaps another address in ctrlr->trid.
 *  6. ctrlr_free(), after disconnect() and when there are no queue pairs.
 *
 * Threads: a controller, and the admin queue, belong to the control thread. An I/O queue pair is the control thread's
 * until it is `created`; then one thread uses it, which alone calls submit, flush, poll and arm. qpair_stop() comes
 * from the control thread while that thread may still be polling and submitting. After the stop has ended, the using
 * thread (or the control thread, if the other has left) completes the outstanding commands; then the control thread
 * calls qpair_free(). No operation may block, and those that are called per command take no lock and allocate nothing.
 */
#ifndef NVME_TRANSPORT_H
#define NVME_TRANSPORT_H

#include "nvme/nvme.h"
#include "thread/thread.h"
#include "util/compiler.h"

struct nvme_alternate;
struct nvme_auth;
struct nvme_cross_reset;
struct nvme_faults;
struct nvme_ns_scan;
struct nvme_ns_table;
struct nvme_qpair_alarm;
struct nvme_rekey;

TAILQ_HEAD(nvme_request_list, nvme_request);
TAILQ_HEAD(nvme_qpair_list, nvme_qpair);

/* A queue pair: the first member of the transport's own. A transport reads ctrlr, id, entries, slot_mask, created and
 * failed, and writes none of the members: nvme_qpair_init() fills them in. */
struct nvme_qpair {
	/* used per command */
	const struct nvme_transport_ops *ops;
	/* A command id is a slot (0 to entries - 1) in its low bits, `slot_mask`, and above it the number of the slot's
	 * use: a completion that comes twice, or much too late, is not taken for that of the slot's next command. A
	 * transport may keep its own data of a command in an array of `entries`, at cid & slot_mask. FFFFh is never a
	 * command id (Base 3.3.3.1). */
	struct nvme_request **by_slot; /* [entries]; NULL: free */
	uint16_t *free_cids;           /* the next command id of each free slot; a stack of `num_free` */
	uint16_t slot_mask;
	uint16_t num_free;
	uint16_t entries; /* commands that may be outstanding; a submission queue has one entry more */
	bool failed;      /* takes no command any more; set by nvme_qpair_fail() and nvme_qpair_break() */
	bool watched;     /* nvme_qpair_watch() need not be called: its timer runs, or commands have no time limit */
	bool reported;    /* the control thread has been told of the failure */
	bool injecting;   /* atomic: the controller has, or had, injected errors; never false again */
	/* control path */
	struct nvme_ctrlr *ctrlr;
	uint16_t id;    /* 0: admin */
	bool connected; /* Connect has succeeded; it is not handed to its user yet */
	bool created;   /* handed to its user; before that, it is the control thread's */
	uint32_t bad_completions;
	const char *why;                 /* the reason of its failure; NULL: none is known */
	struct nvme_qpair_alarm *alarm;  /* NULL: the admin queue, whose user is the control thread */
	struct thread_timer watch_timer; /* of the using thread: commands without an answer */
	struct nvme_request_list held;   /* injected errors: commands that were not sent; held_timer completes them */
	struct thread_timer held_timer;  /* of the using thread */
	bool stopping;                   /* the control thread is ending it: its failure needs no report */
	uint8_t state;                   /* enum nvme_qpair_state; atomic; for observers: nvme_qpair_set_state() */
	struct nvme_auth *auth;          /* the authentication under way, or NULL. Control thread */
	struct poller *connect_poller;   /* of the control thread, from the transport's connection to the hand-over; or
					    NULL */
	struct thread_timer connect_timer;
	uint32_t connect_ms; /* the time that connect_timer was started with */
	void (*ready)(void *arg, struct nvme_qpair *qpair, int error);
	void *ready_arg;
	TAILQ_ENTRY(nvme_qpair) link; /* ctrlr->qpairs */
};

/* The command that a command id on the wire stands for, or NULL: none that is outstanding has that id. The using
 * thread. */
static inline struct nvme_request *nvme_qpair_request(const struct nvme_qpair *qpair, uint16_t cid)
{
	uint16_t slot = cid & qpair->slot_mask;
	struct nvme_request *req = slot < qpair->entries ? qpair->by_slot[slot] : NULL;

	return req != NULL && le16toh(req->cmd.cid) == cid ? req : NULL;
}

/* The end of a read or write of a controller register: 0 and the value (of a read), or a negative errno. */
typedef void (*nvme_reg_fn)(struct nvme_ctrlr *ctrlr, int error, uint64_t value);

/* The operations of a transport, and its description. Constant, and valid as long as the program runs. */
struct nvme_transport_ops {
	/* Commands. The using thread (of the admin queue: the control thread). */

	/* Queues a command: all of req->cmd is filled in, its cid included, but for PSDT and the data pointer, which
	 * are the transport's, as is req->transport. The data is req->data_len bytes at req->iovs, in the direction
	 * req->to_device; req->md is separate metadata, which only PCIe carries. All of that stays valid until the
	 * completion. 0, or a negative errno (-EFAULT: the device cannot reach the memory; -E2BIG, -EINVAL: data of
	 * such pieces cannot be described): the request is not taken then. There is always room for a command, for at
	 * most `entries` are outstanding. The device need not see it before the next flush or poll. */
	int (*submit)(struct nvme_qpair *qpair, struct nvme_request *req);
	/* Sends the commands that submit() has queued. */
	void (*flush)(struct nvme_qpair *qpair);
	/* Hands completions to nvme_qpair_complete(), about `max` of them (0: all there are), and flushes. Each calls
	 * its submitter back, which may submit another command, or may have the queue pair fail: no further completion
	 * may be handed on once `failed` is set. The number of completions, 0 for none, or -ENXIO: the connection is
	 * lost (see above). */
	int (*poll)(struct nvme_qpair *qpair, uint32_t max);
	/* A descriptor that becomes readable when there is something to poll for, or -1: it has to be polled. Constant
	 * from the transport's connection on. Any thread. */
	int (*fd)(const struct nvme_qpair *qpair);
	/* The thread is about to sleep on fd(): asks for a wake-up. True: there is something to poll for already, and
	 * there may be no wake-up for it. */
	bool (*arm)(struct nvme_qpair *qpair);
	/* From now on the device, or the other side, has no access to the host's memory through this queue pair:
	 * outstanding commands are completed next, and their buffers are reused. In any state of the queue pair,
	 * perhaps more than once; by the using thread, or by the control thread when there is none. NULL: the transport
	 * itself moves all data, in poll(), which is not called any more; or see dma_until_stopped. */
	void (*shut)(struct nvme_qpair *qpair);

	struct nvme_transport transport; /* name, number, addresses */
	size_t request_size;             /* bytes of req->transport that this transport uses */
	uint32_t buf_align;              /* bytes: addresses and lengths of iovs must be multiples of this; 0: of 1 */
	/* The device accesses the host's memory by itself, and only qpair_stop() or quiesce() ends that. A completion
	 * that makes no sense then leads to a reset, and outstanding commands are completed after the stop, not at the
	 * failure. */
	bool dma_until_stopped;

	/* Controllers. Control thread. */

	/* Allocates the transport's structure, zeroed, of which struct nvme_ctrlr is the first member; the room fills
	 * that in. NULL: error and errno say why (EINVAL: the address; else the machine). */
	struct nvme_ctrlr *(*ctrlr_alloc)(const struct nvme_trid *trid, char error[NVME_ERROR_MAX]);
	/* Frees it. There is no queue pair any more, and no admin queue. */
	void (*ctrlr_free)(struct nvme_ctrlr *ctrlr);
	/* Sets ctrlr->admin and connects it, to the address in ctrlr->trid; ends in nvme_ctrlr_connected(). If it fails
	 * after ctrlr->admin was set, disconnect() frees it. */
	void (*connect)(struct nvme_ctrlr *ctrlr);
	/* Ends all access of the device to the host's memory, whatever the device does; ends in nvme_ctrlr_quiesced(),
	 * from within or later. Called before disconnect() if ctrlr->admin is set. NULL: disconnect() is enough. */
	void (*quiesce)(struct nvme_ctrlr *ctrlr);
	/* Ends the connection, in whatever state it is, and frees ctrlr->admin, which may be NULL. The room has
	 * completed the outstanding admin commands, and sets ctrlr->admin to NULL afterwards. */
	void (*disconnect)(struct nvme_ctrlr *ctrlr);
	/* The controller is disabled, and CC.EN is set next. 0 or a negative errno. NULL: there is nothing to do. PCIe
	 * tells the controller where its admin queue is. */
	int (*before_enable)(struct nvme_ctrlr *ctrlr);
	/* ctrlr->id has been read. Ends in nvme_ctrlr_configured(), from within or later. NULL: there is nothing to do.
	 */
	void (*identified)(struct nvme_ctrlr *ctrlr);
	/* Four times per opts.admin_timeout_ms while the controller is READY, but at most a hundred times a second:
	 * calls nvme_ctrlr_lost() or nvme_ctrlr_removed() if the controller is not well. NULL: a failure shows by
	 * itself. */
	void (*check)(struct nvme_ctrlr *ctrlr);
	/* Reads or writes 4 or 8 bytes at an offset of the controller's registers (Base 3.1.3), and calls fn, from
	 * within or later. NULL: the room sends Property Get and Property Set. */
	void (*reg_read)(struct nvme_ctrlr *ctrlr, uint32_t offset, unsigned size, nvme_reg_fn fn);
	void (*reg_write)(struct nvme_ctrlr *ctrlr, uint32_t offset, unsigned size, uint64_t value, nvme_reg_fn fn);
	/* Bytes that one command can transfer. */
	uint32_t (*max_transfer)(struct nvme_ctrlr *ctrlr);
	/* Iovs of any address and length (but see buf_align) that one I/O command can have. NULL: 1. */
	uint16_t (*max_segments)(const struct nvme_ctrlr *ctrlr);

	/* Queue pairs. Control thread. */

	/* Allocates a queue pair of `entries` outstanding commands, zeroed, and calls nvme_qpair_init(). opts: NULL for
	 * the admin queue. NULL: out of memory. */
	struct nvme_qpair *(*qpair_alloc)(struct nvme_ctrlr *ctrlr, uint16_t id, uint16_t entries,
					  const struct nvme_qpair_opts *opts);
	/* Connects an I/O queue pair; ends in nvme_qpair_transport_connected(). Not called for the admin queue. */
	void (*qpair_connect)(struct nvme_qpair *qpair);
	/* Ends the device's use of the queue pair, and of the buffers of its commands, and calls done(arg), from within
	 * or later. The using thread may be submitting and polling meanwhile. */
	void (*qpair_stop)(struct nvme_qpair *qpair, void (*done)(void *arg), void *arg);
	/* Disconnects the queue pair if it is connected, calls nvme_qpair_fini() and frees it. No command is
	 * outstanding. Without a qpair_stop() before, if it was never handed to its user. */
	void (*qpair_free)(struct nvme_qpair *qpair);
};

/* Makes a transport known. Before main(): from a constructor. */
void nvme_transport_register(const struct nvme_transport_ops *ops);

#define NVME_AER_MAX 4

/* A controller: the first member of the transport's own. Control thread. A transport reads ops, trid, opts, cap,
 * cntlid, id, admin, qpairs and in_failure; it writes admin, in connect(), stripe_bytes, in identified(), and, in
 * qpair_free() and later, qids and qids_awaited, of queue pairs that it cannot free yet. */
struct nvme_ctrlr {
	const struct nvme_transport_ops *ops;
	struct nvme_trid trid; /* the address of the next attempt, and of the connection there is */
	struct nvme_ctrlr_opts opts;
	enum nvme_ctrlr_state state;
	uint64_t state_ticks;
	char last_error[NVME_ERROR_MAX];

	uint64_t cap; /* the register; valid from the state READ_VS on */
	uint32_t vs, cc;
	uint16_t cntlid;
	uint16_t io_queues;
	struct nvme_id_ctrl id; /* valid in identified(), and later */
	struct nvme_ns_table *ns;

	uint32_t stripe_bytes; /* a boundary that I/O should not cross, where namespaces do not name one; 0: none */
	uint16_t owner;        /* in the trace */

	struct nvme_qpair *admin;      /* NULL: no connection */
	struct nvme_qpair_list qpairs; /* of I/O */
	uint64_t *qids;                /* bitmap of I/O queue ids in use: of queue pairs, or by the device */
	uint16_t qids_awaited;         /* so many of these are the device's, which is expected to give them back */
	uint16_t last_qid;             /* the I/O queue id given out last; 0: none on this connection */
	struct poller *admin_poller;
	struct thread_timer step_timer;  /* the deadline of a state, or the next look at CSTS */
	struct thread_timer defer_timer; /* ends the connection, outside of callbacks of objects that it frees */
	uint64_t step_deadline;          /* ticks; 0: none */
	bool csts_reading;               /* CSTS is being read */
	uint8_t csts_state;              /* the state that reads it */
	struct thread_timer watch_timer; /* health, and admin commands without an answer */
	struct nvme_faults *faults;      /* injected errors; NULL: never any */
	uint8_t aborts;                  /* Abort commands outstanding */
	struct thread_timer keep_alive_timer;
	bool keep_alive_outstanding;
	uint8_t aers;        /* Asynchronous Event Requests outstanding */
	uint8_t aers_wanted; /* as many as the controller takes: outstanding ones, and those whose event is not read yet
			      */
	uint8_t num_unread;
	uint32_t unread[NVME_AER_MAX]; /* dword 0 of events whose log page is still to be requested */
	const void *event_log;         /* of the NVME_EVENT_LOG that is being announced; else NULL */
	bool rescan_due;               /* the namespaces have changed, and are still to be read again */
	void *buf;                     /* 4 KiB, DMA-able: identify data and log pages */
	uint32_t dmrsl;                /* Identify Controller of the NVM command set; 0: no limit */
	uint8_t wzsl;                  /* likewise */
	bool extended_formats;         /* it was told that the host knows them (Host Behavior Support, LBAFEE) */
	struct nvme_ns_scan *scan;     /* the scan of namespaces under way, or NULL */
	bool scan_again;
	TAILQ_HEAD(, nvme_alternate) alternates; /* the other addresses: trid is none of them */
	uint32_t untried;                        /* of these, how many are tried before the next delay */
	struct nvme_ana_group *ana_groups;       /* of the ANA log; NULL: not read yet, or not reported */
	uint32_t num_ana_groups;
	bool ana_reading, ana_read_again, ana_due;
	bool refused;     /* nvme_ctrlr_refuse() */
	bool was_ready;   /* READY was announced, DOWN was not */
	bool in_failure;  /* an attempt or a connection has failed; completions have no effect until the next one */
	bool removed;     /* the device is gone */
	bool attempt_due; /* a lost connection, or a reset: one attempt is made whatever the loss timeout */
	bool quiescing, quiesced;                    /* quiesce() was called; it has ended */
	uint8_t disable_step;                        /* disable.c */
	TAILQ_HEAD(, nvme_cross_reset) cross_resets; /* that it was asked for, and has not ended */
	struct thread_timer cross_reset_timer;       /* the next look at their log page */
	bool cross_reset_reading;
	struct thread_timer disable_timer;
	uint64_t disable_deadline; /* ticks */
	bool has_ended;            /* nvme_ctrlr_has_ended() */
	bool stop_asked;           /* nvme_ctrlr_stop(), nvme_ctrlr_give_up() */
	uint64_t down_since;       /* ticks; 0: it is up */
	uint32_t attempts;
	struct nvme_rekey *rekey; /* the nvme_ctrlr_set_keys() under way, or NULL */
	/* Secure channel concatenation (opts.tcp_concat): the PSK that was generated on this connection, in the vault;
	 * from then on its queue pairs are connected over TLS with it. NULL: there is none yet. Transports read it. */
	struct tls_psk *generated;
	bool over_tls; /* the admin queue is connected with it */
	bool secures;  /* the admin queue is to be connected anew, over TLS */
	bool destroying;
	void (*destroyed)(void *arg);
	void *destroyed_arg;
};

/* The end of connect(): 0, or a negative errno and a text that says why. Has no effect if the attempt has failed
 * meanwhile. Control thread. */
void nvme_ctrlr_connected(struct nvme_ctrlr *ctrlr, int error, const char *why);
/* The end of quiesce(). Control thread. */
void nvme_ctrlr_quiesced(struct nvme_ctrlr *ctrlr);
/* The end of identified(): 0 or a negative errno. Control thread. */
void nvme_ctrlr_configured(struct nvme_ctrlr *ctrlr, int error);
/* The connection is lost, or of no use: it ends soon, outside of the caller, and the next attempt follows. Has no
 * effect if it has failed already. Control thread. */
void nvme_ctrlr_lost(struct nvme_ctrlr *ctrlr, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The device is gone, or somebody wants it back: the same, and there is no other attempt. Control thread. */
void nvme_ctrlr_removed(struct nvme_ctrlr *ctrlr);

/* Fills in the common part of a zeroed queue pair. 0, -ENOMEM, or -EINVAL: no entries. Control thread. */
int nvme_qpair_init(struct nvme_qpair *qpair, struct nvme_ctrlr *ctrlr, uint16_t id, uint16_t entries);
/* Frees the memory that nvme_qpair_init() has allocated. Control thread. */
void nvme_qpair_fini(struct nvme_qpair *qpair);
/* For a queue pair whose structure outlives its user: messages of the using thread that are under way have no effect
 * any more. nvme_qpair_fini() does this too. Control thread. */
void nvme_qpair_alarm_fini(struct nvme_qpair *qpair);
/* The end of qpair_connect(): 0 or a negative errno, which is logged by the transport. Control thread. */
void nvme_qpair_transport_connected(struct nvme_qpair *qpair, int error);
/* A completion from the wire. One whose cid is that of no outstanding command is counted, and the queue pair fails. The
 * using thread. */
void nvme_qpair_complete(struct nvme_qpair *qpair, const struct nvme_cqe *cqe);
/* The connection of the queue pair is lost, and shut() or the transport keeps the device from the host's memory: no
 * command is taken any more, and each outstanding one is completed with NVME_SC_ABORT_QUEUE. The using thread. */
void nvme_qpair_fail(struct nvme_qpair *qpair);
/* The same for a device that may still access the host's memory: outstanding commands stay so until the reset of the
 * controller, which follows. why: a constant. The using thread. */
void nvme_qpair_break(struct nvme_qpair *qpair, const char *why);

/* Bytes of data or of descriptors that may follow a command of an I/O queue in its capsule: IOCCSZ (in units of 16
 * bytes) less the 64 of the command, if the data may begin right behind the command (ICDOFF is 0) and the controller
 * takes descriptors with offsets (SGLS bit 20, Base 5.17.2.1); else 0. Pure. */
uint32_t nvme_capsule_room(const struct nvme_id_ctrl *id);

#endif
