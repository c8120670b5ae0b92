/* SPDX-License-Identifier: BSD-3-Clause */
/* Reservations of namespaces: resv_ns.c; the files that keep them: resv_store.c; Preempt and Abort: preempt.c. What a
 * command does to a reservation is in nvmf/resv.h. Control thread. */
#ifndef NVMF_RESV_INTERNAL_H
#define NVMF_RESV_INTERNAL_H

#include "nvmf/resv.h"
#include "nvmf/transport.h"

struct nvmf_window;

/* Set Features, Reservation Persistence of one namespace: answers the command when the change is made, or has failed.
 */
void nvmf_resv_persist(struct nvmf_request *req, struct nvmf_ns *ns);
/* The same for every namespace that the host sees and that has a ptpl_file. */
void nvmf_resv_persist_all(struct nvmf_request *req);

/* The reservation for groups' views; NULL: the namespace is not reserved. It never changes; when another has taken its
 * place in all views (nvmf_views_update_ns()), it is freed. */
const struct nvmf_resv *nvmf_ns_resv_published(const struct nvmf_ns *ns);
/* A new namespace reads its ptpl_file, or takes what is kept for it (nvmf/resv_kept.h). 0, or a negative errno: the log
 * says more. */
int nvmf_resv_attach(struct nvmf_ns *ns);
/* A namespace is being freed; no view has it. */
void nvmf_resv_detach(struct nvmf_ns *ns);

/* A namespace with that state goes: it is kept, if that is wanted. */
void nvmf_resv_kept_note(const struct nvmf_ns *ns, const struct nvmf_resv *state);
/* What is kept for a namespace, which is not kept any more then. False: nothing is. */
bool nvmf_resv_kept_take(const struct nvmf_ns *ns, struct nvmf_resv *state);

/* Writes the log page Reservation Notification: the oldest notice. Returns its length in bytes. */
uint64_t nvmf_resv_log(const struct nvmf_ctrlr *ctrlr, struct nvmf_window *w);
/* Drops the oldest notice, which has been read. */
void nvmf_resv_log_pop(struct nvmf_ctrlr *ctrlr);

/* ---- Preempt and Abort ---- */

/* Aborts the commands on a namespace that belong to hosts whose registrations were preempted. */
struct nvmf_preempt {
	/* Set by the caller. */
	struct nvmf_request *req; /* the command that asks for it; its bdev_io is used until done() */
	struct nvmf_subsystem *subsystem;
	uint32_t nsid;
	const struct nvmf_resv_notices *notices; /* name the preempted hosts */
	void (*done)(struct nvmf_preempt *p);    /* control thread */
	/* Private. */
	struct thread_msg msg;
	struct nvmf_poll_group *group; /* the group that is being searched */
	unsigned aborted;              /* commands */
};

/* Begins; p belongs to preempt.c until done(). */
void nvmf_preempt_start(struct nvmf_preempt *p);

/* ---- Files ---- */

#define NVMF_RESV_PATH_MAX 1024

/* Whether two namespaces cannot keep their reservations in these files: one is the other, or is the temporary file that
 * the other is written to first, or the file that carries its lock. Absolute paths. */
bool nvmf_resv_files_clash(const char *path, const char *other);
/* Whether a file can be made at a path: 0, -EINVAL, or what the system says; the log says more. */
int nvmf_resv_check_path(const char *path);
/* Keeps other processes from a file whose path was checked, by a lock on a file with that name and .lock. Once per
 * namespace. 0, -EBUSY, or what the system says; the log says more. Control thread. */
int nvmf_resv_lock(const char *path);
/* The namespace does not use it any more; the lock ends when nothing is being written. Control thread. */
void nvmf_resv_unlock(const char *path);
/* Whether the file, or one that clashes with it, is being written at the moment. */
bool nvmf_resv_is_being_saved(const char *path);
/* Reads a file whose path was checked. If there is none, no host is registered. 0, -EBADMSG, -EINVAL, or what the
 * system says; the log says more. */
int nvmf_resv_load(const char *path, const uint8_t uuid[16], struct nvmf_resv *r);
/* Writes a file on a worker thread. 0: done follows, on the control thread, when it is on the disk or could not be
 * written. A negative errno: done is not called. */
int nvmf_resv_save(const char *path, const uint8_t uuid[16], const struct nvmf_resv *r,
		   void (*done)(void *arg, int status), void *arg);

#endif
