/* SPDX-License-Identifier: BSD-3-Clause */
/* Operations that overlap: clients that change the configuration and hosts that do I/O, at once, in an order that a
 * seed decides. overlap.c runs interleavings and shortens those that fail; run.c carries one out; control.c has the
 * clients' operations and their model; host.c the hosts; peer.c other processes that export the same; slowdev.c bdevs
 * that answer late or not at all; remote.c controllers of remote targets, which wire.c connects to targets of this
 * process; keys.c the keys of hosts. */
#ifndef UNITTEST_OVERLAP_OVERLAP_H
#define UNITTEST_OVERLAP_OVERLAP_H

#include <jansson.h>
#include "unittest/nvmf/loop.h"
#include "unittest/overlap/sim.h"

#define OV_TGTS    2
#define OV_SUBS    3
#define OV_NSIDS   4
#define OV_ADDRS   2
#define OV_HOSTS   3
#define OV_ASSOCS  6 /* associations that may exist at once */
#define OV_DISKS   6 /* bdevs that stand on none */
#define OV_STACKED 5 /* bdevs that stand on another one; numbered behind the disks */
#define OV_BDEVS   (OV_DISKS + OV_STACKED)
#define OV_BACK    2 /* the subsystem that remote controllers are attached to, of either target */
#define OV_REMOTES 2 /* names of remote controllers */
/* Their bdevs, two of each name; numbered behind the others. They come and go as the remote target says. */
#define OV_REMOTE_BDEVS (2 * OV_REMOTES)
#define OV_KEYS         2 /* of hosts */
#define OV_GROUPS       2 /* QoS groups of bdevs */
#define OV_OPS_MAX      4096
#define OV_BLOCK        512
#define OV_BLOCKS       64 /* of a bdev, at least */

/* Operations: name, how often, number of arguments. Arguments that are out of range are taken modulo. */
#define OV_OPS(X)                                                                                                      \
	X(tgt_create, 4, 1)                                                                                            \
	X(tgt_delete, 3, 1)                                                                                            \
	X(transport_create, 4, 1)                                                                                      \
	X(sub_create, 6, 3) /* target, subsystem, flags */                                                             \
	X(sub_delete, 4, 2)                                                                                            \
	X(sub_pause, 2, 3) /* target, subsystem, nsid */                                                               \
	X(sub_resume, 3, 2)                                                                                            \
	X(sub_stop, 2, 2)                                                                                              \
	X(sub_start, 3, 2)                                                                                             \
	X(ns_add, 10, 5)   /* target, subsystem, nsid, bdev, flags */                                                  \
	X(ns_remote, 4, 5) /* the same of a remote controller's bdev */                                                \
	X(ns_remove, 7, 3)                                                                                             \
	X(ns_ana_group, 2, 4)                                                                                          \
	X(ns_host_add, 2, 4)                                                                                           \
	X(ns_host_remove, 2, 4)                                                                                        \
	X(listener_add, 6, 3)                                                                                          \
	X(listener_remove, 4, 3)                                                                                       \
	X(listener_ana, 3, 4)                                                                                          \
	X(host_add, 3, 4) /* target, subsystem, host, key */                                                           \
	X(host_remove, 3, 3)                                                                                           \
	X(host_keys, 3, 4)                                                                                             \
	X(any_host, 2, 3)                                                                                              \
	X(sub_qos, 3, 4)  /* target, subsystem, host or all, limit */                                                  \
	X(peer_add, 3, 3) /* target, subsystem, peer */                                                                \
	X(peer_remove, 2, 3)                                                                                           \
	X(referral_add, 1, 2)                                                                                          \
	X(referral_remove, 1, 2)                                                                                       \
	X(look, 5, 3)        /* target, subsystem, method */                                                           \
	X(bdev_create, 8, 2) /* bdev, kind */                                                                          \
	X(bdev_delete, 4, 1)                                                                                           \
	X(bdev_resize, 2, 2)                                                                                           \
	X(bdev_qos, 3, 2)                                                                                              \
	X(bdev_group, 6, 3) /* bdev, QoS group, what */                                                                \
	X(bdev_timeout, 1, 2)                                                                                          \
	X(bdev_stick, 3, 2) /* bdev, how */                                                                            \
	X(bdev_unstick, 4, 1)                                                                                          \
	X(bdev_reset, 2, 1)                                                                                            \
	X(stack_create, 3, 2) /* stacked bdev, base */                                                                 \
	X(stack_delete, 2, 1)                                                                                          \
	X(stack_fault, 2, 2)   /* stacked bdev, which */                                                               \
	X(remote_attach, 5, 5) /* name, target, address, host and keys, options */                                     \
	X(remote_detach, 2, 3) /* name, whether by one path, target */                                                 \
	X(remote_reset, 3, 1)                                                                                          \
	X(remote_policy, 2, 2)                                                                                         \
	X(remote_keys, 2, 2)                                                                                           \
	X(remote_inject, 1, 2)                                                                                         \
	X(remote_look, 1, 1)                                                                                           \
	X(remote_io, 5, 4)   /* bdev, thread, type, number */                                                          \
	X(remote_lose, 5, 3) /* connection, how, whether the controller's others too */                                \
	X(remote_heal, 2, 0)                                                                                           \
	X(discovery_start, 1, 2)                                                                                       \
	X(discovery_stop, 1, 0)                                                                                        \
	X(connect, 14, 5) /* association, target, subsystem, address, flags */                                         \
	X(leave, 3, 1)                                                                                                 \
	X(leave_all, 0, 0)                                                                                             \
	X(die, 3, 1)                                                                                                   \
	X(silence, 2, 1)                                                                                               \
	X(io, 40, 4) /* association, command, nsid, number */                                                          \
	X(abort, 16, 2)                                                                                                \
	X(aer, 4, 1)                                                                                                   \
	X(admin, 8, 3) /* association, command, nsid */                                                                \
	X(ccr, 14, 3)  /* association, whose controller, by which name */                                              \
	X(ccr_log, 4, 1)                                                                                               \
	X(peer_answer, 10, 2)                                                                                          \
	X(reset, 3, 1)                                                                                                 \
	X(shutdown, 2, 1)                                                                                              \
	X(queue, 3, 1)                                                                                                 \
	X(resv, 24, 4) /* association, command, nsid, whose key */                                                     \
	X(data_hold, 1, 0)                                                                                             \
	X(data_release, 3, 0)                                                                                          \
	X(time, 6, 1)                                                                                                  \
	X(absence, 1, 1)

enum ov_kind {
#define X(name_, weight_, args_) OV_##name_,
	OV_OPS(X)
#undef X
		OV_KINDS
};

/* The stacked bdevs. */
enum ov_stacked {
	OV_STACKED_DELAY,
	OV_STACKED_ERROR,
	OV_STACKED_ERROR_ON_DELAY,
	OV_STACKED_PASSTHRU,
	OV_STACKED_PASSTHRU_2,
};

#define OV_ARGS 5
struct ov_op {
	uint8_t kind;
	uint8_t a[OV_ARGS];
	uint16_t steps; /* of the scheduler, before the operation */
	uint64_t seed;  /* of the scheduler, from here on */
};

extern const char *const ov_kind_names[OV_KINDS];

/* Ends the process: an invariant does not hold. */
void ov_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));
/* Whether to print what is done, and prints it. */
extern bool ov_verbose;
void ov_say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
uint64_t ov_random(uint64_t *state);

/* ---- run.c ---- */

/* The operations of a seed. Returns their number. */
unsigned ov_generate(uint64_t seed, unsigned wanted, struct ov_op *ops);
/* Starts and ends what all interleavings of a process share. */
void ov_start(void);
void ov_stop(void);
/* Carries out an interleaving, has everything end, checks the result, deletes everything, and checks that it is gone.
 */
void ov_run(const struct ov_op *ops, unsigned n);

/* The number of the operation that is being carried out, from 1 on. */
unsigned ov_running(void);
/* Plants a fault, for the test of the test: an interleaving never ends. */
extern bool ov_plant_hang;

/* ---- control.c: what clients do, and the model of it ---- */

void ov_control_reset(void);
/* False: not one of its kinds. Control thread. */
bool ov_control_do(const struct ov_op *op);
/* Calls that have not been answered. */
unsigned ov_control_outstanding(void);
void ov_control_print(void);
/* Nothing is under way: compares the target with the model. */
void ov_control_compare(void);
/* All listeners that remote controllers go by are optimized: without access, I/O waits for ever. */
void ov_control_give_access(void);
/* Deletes everything that the model says is there. */
void ov_control_delete_targets(void);
void ov_control_delete_bdevs(void);
void ov_control_delete_groups(void);
/* Rate limits of groups of bdevs hold nobody up any more. */
void ov_control_lift_limits(void);
/* Removes the files of reservations that a process has left. */
void ov_ptpl_remove(int pid);
/* Whether a stacked bdev is there, and stands on base. */
bool ov_bdev_is_on(unsigned bdev, unsigned base);
/* The bdev that a namespace is made of. */
unsigned ov_ns_bdev_of(const struct ov_op *op);
const char *ov_bdev_name(unsigned bdev);
/* Whether a namespace that remote controllers find is made of the bdev. */
bool ov_bdev_is_remote_store(const char *name);
/* Calls a method: its answer must be `expected`, unless *counter changes meanwhile (NULL: it does not). */
void ov_call(const struct ov_op *op, unsigned expected, const unsigned *counter, const char *method, const char *fmt,
	     ...) __attribute__((format(printf, 5, 6)));
/* The same for what is no method: the call's text, and its end. */
struct call *ov_call_begin(const struct ov_op *op, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void ov_call_end(struct call *c, bool success);
/* Lets go what error bdevs hold, and takes the injections back. */
void ov_stacks_release(void);
struct nvmf_tgt *ov_tgt(unsigned t);
const char *ov_sub_nqn(unsigned s); /* OV_SUBS: the discovery subsystem */
const char *ov_host_nqn(unsigned h);

/* ---- check.c: what must hold between any two messages of the control thread ---- */

void ov_check(void);

/* ---- host.c ---- */

void ov_hosts_reset(void);
bool ov_host_do(const struct ov_op *op);
/* Looks at what has arrived, and goes on. Control thread. */
void ov_hosts_advance(void);
/* Commands that must still end, and associations on their way. */
unsigned ov_hosts_outstanding(void);
void ov_hosts_print(void);
/* All of them hang up. */
void ov_hosts_leave(void);
/* Whether all connections are gone. */
bool ov_hosts_gone(void);
/* The number of a write that no host of these has sent, and its end. */
uint32_t ov_write_begin(void *data, size_t bytes);
void ov_write_end(uint32_t id);
/* A write arrives at its bdev: it must be of a command whose host still waits for it. */
void ov_write_carried_out(const uint64_t *block);

/* ---- peer.c ---- */

void ov_peers_start(void);
const char *ov_peer_path(unsigned p); /* of the target of that number */
/* A question that is under way reaches its peer, or gets no answer in time. */
void ov_peer_answer(unsigned number, unsigned how);
/* All questions reach their peers. */
void ov_peers_end(void);
bool ov_peers_are_asked(void);

/* ---- keys.c ---- */

/* Adds the keys to the keyring, and removes them. */
void ov_keys_start(void);
void ov_keys_stop(void);
/* The name of a host's key: 1 to OV_KEYS. */
const char *ov_key_name(unsigned key);
/* The key of all controllers. */
#define OV_CTRLR_KEY "ctrlr"

/* ---- remote.c ---- */

/* False: not one of its kinds. Control thread. */
bool ov_remote_do(const struct ov_op *op);
/* What tests have injected or cut off comes to its end. */
void ov_remotes_release(void);
/* Whether each controller that is connected has the namespaces that its target has. */
bool ov_remotes_agree(void);
/* Detaches all controllers. */
void ov_remotes_delete(void);
bool ov_remotes_gone(void);
void ov_remotes_print(void);
/* Plants a fault, for the test of the test: writes that were lost with a controller are not held back. */
extern bool ov_plant_no_fences;

/* ---- slowdev.c ---- */

enum ov_stick {
	OV_STICK_NOT,
	OV_STICK_ABORTABLE, /* nothing ends but by Abort and reset */
	OV_STICK_DEAF,      /* nothing ends but by reset */
};
/* A new run: what they have in common is zeroes. */
void ov_slowdevs_reset(void);
/* A bdev with latencies up to max_us. 0 or a negative errno. */
int ov_slowdev_create(const char *name, uint32_t max_us);
void ov_slowdev_delete(const char *name, bdev_delete_cb cb, void *arg);
void ov_slowdev_resize(const char *name, uint64_t blocks);
void ov_slowdev_stick(const char *name, enum ov_stick how);
/* The I/O that was stuck ends. */
void ov_slowdev_unstick(const char *name);
void ov_slowdevs_unstick(void);
/* Plants a fault, for the test of the test: a command that is aborted is carried out nevertheless, later. */
extern bool ov_plant_stale_write;

#endif
