/* SPDX-License-Identifier: BSD-3-Clause */
/* Poll groups, and their views of subsystems: poll_group.c, view.c.
 *
 * A view is a poll group's own copy of a subsystem's namespaces. Commands read it without a lock, because only the
 * group's thread changes it, in calls that the control thread makes. */
#ifndef NVMF_VIEW_INTERNAL_H
#define NVMF_VIEW_INTERNAL_H

#include "nvmf/transport.h"
#include "util/compiler.h"

struct nvmf_qos;
struct nvmf_resv;
struct nvmf_subsystem;

enum nvmf_view_state {
	NVMF_VIEW_INACTIVE = 0,
	NVMF_VIEW_ACTIVE = 1,
	NVMF_VIEW_PAUSED = 2,
	NVMF_VIEW_PAUSING = 3, /* new commands wait; those under way are ending */
	NVMF_VIEW_STATES,
};

/* Reasons for which a namespace may refuse a command. */
enum nvmf_ns_limit {
	NVMF_NS_HIDDEN = 1 << 0, /* it is visible to some hosts only */
	NVMF_NS_ANA = 1 << 1,    /* through some listener it cannot be accessed */
	NVMF_NS_RESV = 1 << 2,   /* it is reserved */
	NVMF_NS_QOS = 1 << 3,    /* commands may have to wait for a rate limit, of their host or of the subsystem */
};

/* A namespace as one poll group sees it. Group. */
struct nvmf_ns_view {
	/* First cache line: what every command reads. */
	struct nvmf_geometry geo;
	struct bdev_channel *ch;
	struct bdev_desc *desc;
	struct nvmf_subsystem_view *view;
	uint32_t outstanding; /* commands that the bdev has, or that use a zero-copy buffer of it */
	uint32_t nsid;
	uint32_t anagrpid;
	bool paused;      /* new commands wait: a user has paused it, or it is changing */
	uint8_t limits;   /* set of enum nvmf_ns_limit; mostly 0: no command has to be checked */
	bool write_cache; /* the bdev has a volatile write cache: FUA needs a flush */
	bool clear_reads; /* the bdev leaves the buffers of reads as they are */
	/* NVMF_NS_RESV: the reservation. Never changed; a new one replaces it. */
	const struct nvmf_resv *resv;
	/* Second cache line: counters. */
	uint64_t read_ops __attribute__((aligned(64)));
	uint64_t write_ops;
	uint64_t read_blocks, written_blocks; /* units of 512 bytes */
	struct nvmf_passthru passthru;
	bool changing; /* nvmf_views_hold_ns() */
	bool removing; /* the same, for its removal: ns_take_back.c */
	bool draining; /* nvmf_subsystem_ns_drained() has to be called when no command is outstanding */
	struct thread_msg drained_msg;
	struct thread_timer look_timer; /* removing */
	uint64_t look_us, removal_began_ticks;
};

struct nvmf_io_counters {
	uint64_t read_ops, write_ops;
	uint64_t read_blocks, written_blocks; /* units of 512 bytes */
};

/* A subsystem as one poll group sees it. Group; allocated and freed by the control thread, installed and removed with a
 * thread_call(). */
struct nvmf_subsystem_view {
	struct nvmf_subsystem *subsystem;
	struct nvmf_poll_group *group;
	uint32_t max_nsid;
	bool user_paused;                 /* nvmf_views_pause() */
	uint32_t paused_nsid;             /* which namespace it has paused: 0: none, an nsid, or NVME_NSID_ALL */
	uint32_t num_changing;            /* namespaces that nvmf_views_hold_ns() holds */
	uint8_t state;                    /* enum nvmf_view_state: of all namespaces together */
	struct nvmf_request_queue paused; /* commands that wait until a namespace is resumed */
	uint32_t num_paused;
	struct nvmf_qos *qos;                /* the limit of all hosts together; NULL: there is none */
	TAILQ_HEAD(, nvmf_qpair) qos_qpairs; /* those with commands that wait for a limit */
	uint32_t num_qos_qpairs;
	uint32_t qos_waiting[RATE_KINDS];       /* commands that they have */
	uint32_t qos_lines[RATE_KINDS];         /* of queue pairs, with such commands */
	uint32_t qos_waits_for_all[RATE_KINDS]; /* how many of these lines wait for the limit of all */
	/* Since the timer's last wait or the last command that went: how many queue pairs in a row had none that may
	 * go, and the shortest time until one may. */
	uint32_t qos_fruitless;
	uint64_t qos_wait_ticks;
	uint64_t qos_look_ns;     /* when the timer looks next */
	uint64_t qos_batch_ticks; /* when it last let as many go as may at once; 0: its last look let fewer go */
	struct thread_timer qos_timer;
	struct nvmf_io_counters removed; /* counters of namespaces that were removed */
	struct nvmf_ns_view *new_ns;     /* being added: made in every group before any group's commands can find it */
	struct nvmf_ns_view *ns[];       /* by nsid - 1; NULL where there is none */
};

struct nvmf_poll_group {
	struct nvmf_tgt *tgt;
	struct thread *thread;
	struct nvmf_subsystem_view **views;         /* by subsystem index; group */
	TAILQ_HEAD(, nvmf_transport_group) tgroups; /* group */
	TAILQ_HEAD(, nvmf_qpair) qpairs;            /* group */
	uint64_t qpairs_count;                      /* group */
	struct thread_absence absence;              /* group: watched while there are queue pairs */
	bool stopping;                              /* group: accepts no more queue pairs */
	uint64_t completed, failed;                 /* group: I/O commands; completed: of queue pairs that are gone */
	uint64_t admin_qpairs, io_qpairs;           /* group: connected so far */
	uint64_t current_admin_qpairs, current_io_qpairs; /* group: connected now */
	uint32_t ctl_admin_qpairs, ctl_io_qpairs;         /* control thread: assigned to the group */
	TAILQ_ENTRY(nvmf_poll_group) link;
};

/* Makes a poll group: a thread that begins on lcore and may be moved to others of cores. 0 or -ENOMEM. */
int nvmf_poll_group_create(struct nvmf_tgt *tgt, unsigned lcore, const cpu_set_t *cores,
			   struct nvmf_poll_group **group);
/* Frees a poll group that has no queue pairs. */
void nvmf_poll_group_destroy(struct nvmf_poll_group *group);
/* Makes a transport's part of a group. 0 or a negative errno. */
int nvmf_poll_group_add_transport(struct nvmf_poll_group *group, struct nvmf_transport *transport,
				  char why[NVMF_ERROR_MAX]);
/* Frees a transport's part of a group, which has no queue pairs; does nothing if there is none. */
void nvmf_poll_group_remove_transport(struct nvmf_poll_group *group, struct nvmf_transport *transport);
/* Group: the thread did not run for absent_us. Ends the queue pairs of controllers with a shorter keep-alive timeout:
 * their hosts have given them up, and may have submitted elsewhere what has not been answered. Nothing that was
 * received, or that waits, is carried out. */
void nvmf_poll_group_was_absent(void *group, uint64_t absent_us);
/* What outlives a group (nvmf/kept.c, bdev/kept_stat.h): one without queue pairs leaves its statistics, and a new one
 * begins with those of its name. Control thread. */
void nvmf_poll_group_note_kept(struct nvmf_poll_group *group);
void nvmf_poll_group_take_kept(struct nvmf_poll_group *group);
/* The same for a transport's part of a group: what it begins with, to be freed; NULL: nothing. Control thread. */
struct nvmf_kept_transport *nvmf_transport_take_kept(const struct nvmf_poll_group *group,
						     const struct nvmf_transport *transport);
/* Adds what the part began with to its statistics. Group. */
void nvmf_transport_add_kept(const struct nvmf_transport_group *tgroup, struct nvmf_transport_stats *stats);
/* Disconnects the queue pairs of a group that have no controller. It accepts no more from now on. */
void nvmf_poll_group_stop(struct nvmf_poll_group *group);

/* ---- A subsystem's views in all groups: control thread ---- */

/* Makes the views, without namespaces. 0, or -ENOMEM: no group has one. */
int nvmf_views_create(struct nvmf_subsystem *s);
/* Frees the views. No queue pair of the subsystem is left, and no namespace in the views. */
void nvmf_views_destroy(struct nvmf_subsystem *s);
/* New views become ACTIVE. */
void nvmf_views_activate(struct nvmf_subsystem *s);
/* The views become INACTIVE. No queue pair of the subsystem is left. */
void nvmf_views_deactivate(struct nvmf_subsystem *s);
/* A user's pause: makes new commands to a namespace (0: none, NVME_NSID_ALL: all) wait. Returns how many namespaces of
 * how many views still have commands under way; nvmf_subsystem_ns_drained() is called once for each of those when they
 * have ended. */
unsigned nvmf_views_pause(struct nvmf_subsystem *s, uint32_t nsid);
/* Ends it, and runs the commands that waited. */
void nvmf_views_resume(struct nvmf_subsystem *s);
/* The same for a change of one namespace; independent of a user's pause, and of changes of other namespaces. */
unsigned nvmf_views_hold_ns(struct nvmf_subsystem *s, uint32_t nsid);
/* The same for its removal: what has not begun is taken back, and answered with a path error. */
unsigned nvmf_views_hold_ns_for_removal(struct nvmf_subsystem *s, uint32_t nsid);
/* Ends it. Returns how many views still had commands under way, for which nvmf_subsystem_ns_drained() will not be
 * called any more. */
unsigned nvmf_views_release_ns(struct nvmf_subsystem *s, uint32_t nsid);
/* How many commands of a namespace, or of all (NVME_NSID_ALL), are under way in all views. */
uint32_t nvmf_views_outstanding(struct nvmf_subsystem *s, uint32_t nsid);
/* Adds a namespace to all views. 0 or a negative errno: no view has it. */
int nvmf_views_add_ns(struct nvmf_subsystem *s, struct nvmf_ns *ns);
/* Removes a namespace from all views. It is paused, or the subsystem has no queue pairs. */
void nvmf_views_remove_ns(struct nvmf_subsystem *s, uint32_t nsid);
/* Copies the size, limits and reservation of a namespace to all views. When it returns, no group uses the reservation
 * that the views had before. */
void nvmf_views_update_ns(struct nvmf_subsystem *s, struct nvmf_ns *ns);
/* The same for all namespaces. */
void nvmf_views_update_all(struct nvmf_subsystem *s);
/* Adds up the counters of all views. */
void nvmf_views_sum(struct nvmf_subsystem *s, struct nvmf_io_counters *sum);

/* ---- Commands: group ---- */

/* The command counts as under way on the namespace from now on. */
static inline void nvmf_ns_view_enter(struct nvmf_ns_view *nsv, struct nvmf_request *req)
{
	nsv->outstanding++;
	req->ns_view = nsv;
	req->counted = true;
}

/* The last command of a paused namespace has ended: tells the control thread, if it waits for that. */
void nvmf_ns_view_drained(struct nvmf_ns_view *nsv);

/* The command no longer counts. */
static inline void nvmf_ns_view_leave(struct nvmf_request *req)
{
	struct nvmf_ns_view *nsv = req->ns_view;

	req->counted = false;
	if (--nsv->outstanding == 0 && unlikely(nsv->paused)) {
		nvmf_ns_view_drained(nsv);
	}
}

/* True: the namespace is paused, and the command has been queued until it is resumed. before_data: the command waits
 * before its data are fetched (nvmf_io_restart()); otherwise before it is carried out. */
bool nvmf_view_wait_if_paused(struct nvmf_subsystem_view *view, uint32_t nsid, struct nvmf_request *req,
			      bool before_data);
/* Takes the waiting commands of a queue pair out of the view's queue and finishes them with a status. */
void nvmf_view_purge(struct nvmf_subsystem_view *view, struct nvmf_qpair *qpair, uint16_t status);
/* The same for the waiting commands of a namespace, of any queue pair. */
void nvmf_view_purge_ns(struct nvmf_subsystem_view *view, uint32_t nsid, uint16_t status);
/* The removal of a namespace has begun, and ends (ns_take_back.c). */
void nvmf_ns_view_begin_removal(struct nvmf_ns_view *nsv);
void nvmf_ns_view_end_removal(struct nvmf_ns_view *nsv);
/* Takes one waiting command out of the queue. */
void nvmf_view_unwait(struct nvmf_request *req);

#endif
