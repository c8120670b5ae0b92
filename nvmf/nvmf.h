/* SPDX-License-Identifier: BSD-3-Clause */
/* The NVMe-oF target, for configuration and monitoring: targets, transports, subsystems, namespaces, hosts, listeners,
 * referrals. Transports are written against nvmf/transport.h; the target knows none of them by name.
 *
 * Call these functions on the control thread. A function that has to wait for I/O under way takes a `done` function and
 * calls it exactly once, on the control thread, later or before it returns. Strings that are passed in are copied.
 * Functions return 0 or a negative errno unless their comment says otherwise. */
#ifndef NVMF_NVMF_H
#define NVMF_NVMF_H

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include "nvme/spec.h"
#include "nvmf/decode.h"
#include "util/latency.h"

struct nvmf_tgt;
struct nvmf_transport;
struct nvmf_subsystem;
struct nvmf_ns;
struct nvmf_ctrlr;
struct nvmf_qpair;
struct nvmf_poll_group;

#define NVMF_DISCOVERY_NQN   NVME_DISC_SUBSYS_NAME
#define NVMF_TRADDR_MAX      NVMF_TRADDR_SIZE
#define NVMF_TRSVCID_MAX     NVMF_TRSVCID_SIZE
#define NVMF_SN_MAX          20
#define NVMF_MN_MAX          40
#define NVMF_ADMIN_LABEL_MAX 255
#define NVMF_TRNAME_MAX      16

/* Called when a change is complete. status: 0 or a negative errno. */
typedef void (*nvmf_done_fn)(void *arg, int status);

/* An address that hosts connect to. */
struct nvmf_address {
	char trtype[NVMF_TRNAME_MAX + 1]; /* "RDMA": the transport's name, any case */
	uint8_t adrfam;                   /* enum nvmf_addr_family */
	char traddr[NVMF_TRADDR_MAX + 1];
	char trsvcid[NVMF_TRSVCID_MAX + 1];
};
/* Whether two addresses are the same; letter case counts in trsvcid only. Any thread. */
bool nvmf_address_equal(const struct nvmf_address *a, const struct nvmf_address *b);
#define NVMF_ERROR_MAX 256
/* Whether hosts can connect to an address, as far as its text tells: 0, or -EINVAL, *field is the name of the bad part
 * ("trsvcid"), and allowed what it may be. Addresses that are not IP addresses are not looked at. Any thread. */
int nvmf_address_check(const struct nvmf_address *a, const char **field, char allowed[NVMF_ERROR_MAX]);
/* A part of an address by its name ("trtype", "adrfam", "traddr" or "trsvcid"); its own memory. Any thread. */
const char *nvmf_address_field(const struct nvmf_address *a, const char *field);
/* The name of an address family (enum nvmf_addr_family): "IPv4"; "?" if it has none. Any thread. */
const char *nvmf_adrfam_name(uint8_t adrfam);
/* The address family of a name, in any case. 0, or -EINVAL: there is none of that name. */
int nvmf_adrfam_parse(const char *name, uint8_t *adrfam);

/* ---- The room ---- */

/* The options of the default target. */
struct nvmf_config {
	uint32_t max_subsystems;   /* 0: 1024 */
	uint32_t discovery_filter; /* enum nvmf_discovery_filter */
	uint16_t crdt[3];          /* command retry delays, units of 100 ms */
	uint32_t quiesce_limit_ms; /* as in nvmf_tgt_opts */
	bool all_cores;            /* every lcore gets a poll group; otherwise those in cores */
	cpu_set_t cores;
	unsigned dhchap_hashes, dhchap_groups; /* as in nvmf_tgt_opts */
	bool one_ctrlr_per_listener;           /* as in nvmf_tgt_opts */
};
/* The options that nvmf_init() will use; may be changed until then. */
struct nvmf_config *nvmf_config(void);
#define NVMF_DEFAULT_TGT "nvmf_tgt"
/* Makes and starts the default target. bdev_init() has been called. 0 or a negative errno. */
int nvmf_init(void);
/* Stops and destroys all targets, then calls done(arg) on the control thread. */
void nvmf_fini(void (*done)(void *arg), void *arg);

/* While it is held, transports listen, but take no new connections: hosts that connect wait. So no host sees a target
 * that is made by and by before all of it is there. Concerns transports that there are and that are made later; those
 * whose hosts cannot wait take them at once. To be called with true only before there are connections: RDMA handles no
 * event of any meanwhile. Control thread. */
void nvmf_hold_connections(bool hold);

/* Receives notices: type says what has happened ("nvmf_host_connect"), text names the objects, and why is the reason or
 * NULL. */
typedef void (*nvmf_notice_fn)(const char *type, const char *text, const char *why);
/* Sets the one function that receives notices about hosts, namespaces, subsystems and listeners; NULL: none. */
void nvmf_set_notice_fn(nvmf_notice_fn fn);
/* The types of notices one by one, from index 0 on; NULL: there are no more. */
const char *nvmf_notice_type(unsigned index);

/* ---- Target ---- */

enum nvmf_tgt_state {
	NVMF_TGT_NONE = 0,
	NVMF_TGT_CREATE_TARGET = 1,
	NVMF_TGT_CREATE_POLL_GROUPS = 2,
	NVMF_TGT_START_SUBSYSTEMS = 3,
	NVMF_TGT_RUNNING = 4,
	NVMF_TGT_STOP_SUBSYSTEMS = 5,
	NVMF_TGT_DESTROY_SUBSYSTEMS = 6,
	NVMF_TGT_DESTROY_POLL_GROUPS = 7,
	NVMF_TGT_STOPPED = 8,
	NVMF_TGT_ERROR = 9,
	NVMF_TGT_STATES,
};
/* "RUNNING"; "?" for a number that is no state. Any thread. The same holds for the other *_state_name() functions. */
const char *nvmf_tgt_state_name(enum nvmf_tgt_state state);

/* Which listeners the discovery log shows to a host, of those that it may connect to. */
enum nvmf_discovery_filter {
	NVMF_DISCOVERY_MATCH_ANY = 0,
	NVMF_DISCOVERY_MATCH_TRTYPE = 1 << 0, /* those of the transport through which it reads the log */
	NVMF_DISCOVERY_MATCH_TRADDR = 1 << 1,
	NVMF_DISCOVERY_MATCH_TRSVCID = 1 << 2,
};

#define NVMF_QUIESCE_LIMIT_DEFAULT_MS 5000
#define NVMF_QUIESCE_LIMIT_MAX_MS     35000 /* CQT has 16 bits, and a part of it is for the keep-alive timer */
struct nvmf_tgt_opts {
	const char *name;          /* "nvmf_tgt" */
	uint32_t max_subsystems;   /* 0: 1024 */
	uint32_t discovery_filter; /* enum nvmf_discovery_filter */
	uint16_t crdt[3];          /* command retry delays, units of 100 ms */
	/* How long commands that have begun may take to end when their connection is ended; 0:
	 * NVMF_QUIESCE_LIMIT_DEFAULT_MS. Hosts are told (Identify Controller, CQT), and wait for so long before they
	 * submit elsewhere what was lost with a connection. What takes longer is reported. */
	uint32_t quiesce_limit_ms;
	const cpu_set_t *cores; /* lcores that get a poll group; NULL: all */
	/* Sets of DH-HMAC-CHAP hash functions and groups (dhchap/) that hosts may authenticate with; 0: all. */
	unsigned dhchap_hashes, dhchap_groups;
	/* A host, by its host identifier, has at most one controller of a subsystem through each address; one more is
	 * refused with Controller Busy, because the one that it has may be about to end. Not of discovery. */
	bool one_ctrlr_per_listener;
};

/* Makes a target with its discovery subsystem, in state CREATE_TARGET. 0, -EEXIST or -ENOMEM. */
int nvmf_tgt_create(const struct nvmf_tgt_opts *opts, struct nvmf_tgt **tgt);
/* Makes the poll groups, one thread per lcore, and starts the discovery subsystem: RUNNING. Subsystems that have been
 * started before serve hosts from now on. 0, -EINVAL (not in state CREATE_TARGET), -ENODEV (no lcore) or -ENOMEM. */
int nvmf_tgt_start(struct nvmf_tgt *tgt);
/* Disconnects all hosts and frees subsystems, poll groups and transports: STOPPED. From any state. -EALREADY: it is
 * being stopped. From now on, all changes of the target and of what belongs to it are refused with -EBUSY. */
void nvmf_tgt_stop(struct nvmf_tgt *tgt, nvmf_done_fn done, void *arg);
/* Frees a target that is STOPPED, or one in state CREATE_TARGET, which was never started, with its subsystems and
 * transports. No nvmf_subsystem_destroy() is under way. */
void nvmf_tgt_destroy(struct nvmf_tgt *tgt);

/* Whether a target and what belongs to it may be changed: 0, or -EBUSY: it is being stopped, or could not be started;
 * why names it and its state. All functions of this header that change something check this. */
int nvmf_tgt_check_open(const struct nvmf_tgt *tgt, char why[NVMF_ERROR_MAX]);
/* The target of a name, or the first for NULL; NULL: there is none. */
struct nvmf_tgt *nvmf_tgt_find(const char *name);
/* The target after one, or the first for NULL; NULL: there are no more. */
struct nvmf_tgt *nvmf_tgt_next(const struct nvmf_tgt *after);
/* The target's name; its own memory. */
const char *nvmf_tgt_name(const struct nvmf_tgt *tgt);
/* The target's state. */
enum nvmf_tgt_state nvmf_tgt_get_state(const struct nvmf_tgt *tgt);
/* How many subsystems it may have, the discovery subsystem included. */
uint32_t nvmf_tgt_max_subsystems(const struct nvmf_tgt *tgt);
/* Sets which listeners the discovery log shows: a set of enum nvmf_discovery_filter. */
void nvmf_tgt_set_discovery_filter(struct nvmf_tgt *tgt, uint32_t filter);
/* Whether a host may have only one controller of a subsystem through each address. */
bool nvmf_tgt_one_ctrlr_per_listener(const struct nvmf_tgt *tgt);
/* The set of enum nvmf_discovery_filter. */
uint32_t nvmf_tgt_discovery_filter(const struct nvmf_tgt *tgt);
/* Sets the command retry delays, units of 100 ms (Identify Controller CRDT1 to CRDT3). */
void nvmf_tgt_set_crdt(struct nvmf_tgt *tgt, const uint16_t crdt[3]);
/* The three command retry delays, units of 100 ms. */
const uint16_t *nvmf_tgt_crdt(const struct nvmf_tgt *tgt);
/* The generation counter of the discovery log. */
uint64_t nvmf_tgt_generation(const struct nvmf_tgt *tgt);

/* ---- Multicast DNS (TP8009) ---- */

/* done(arg, rc, why): 0; or a negative errno, and why is a text for people. */
typedef void (*nvmf_mdns_done_fn)(void *arg, int rc, const char *why);
/* Has avahi-daemon tell the machines of the networks about the listeners of the target's discovery subsystem, now and
 * as they come and go, until nvmf_mdns_stop() or the end of the target. Only listeners of TCP that other machines reach
 * can be told of. done is called when they are known on the network, perhaps at once. -EEXIST: this is done already;
 * -EINVAL: for another target, or there is no such listener; -ENOTCONN: there is no avahi-daemon, or no D-Bus; -ENOTSUP
 * and -ELIBACC: there is no libavahi-client; -ECANCELED: nvmf_mdns_stop(). */
void nvmf_mdns_publish(struct nvmf_tgt *tgt, nvmf_mdns_done_fn done, void *arg);
/* Ends that; nothing if it is not done. */
void nvmf_mdns_stop(struct nvmf_tgt *tgt);

/* ---- Transports ---- */

/* Parameters of nvmf_create_transport: those that every transport has, and behind them those of one transport.
 * nvmf/transport_options.h has both as tables. */
#define NVMF_OWN_OPTS_SIZE 128
struct nvmf_transport_opts {
	uint16_t max_queue_depth;         /* entries of an I/O queue: MQES + 1 */
	uint16_t max_io_qpairs_per_ctrlr; /* I/O queues */
	uint32_t in_capsule_data_size;    /* bytes of data that may come with a command */
	uint32_t max_io_size;             /* bytes of one command, a power of two times 4096: MDTS */
	uint32_t io_unit_size;            /* bytes of one data buffer */
	uint32_t max_aq_depth;            /* entries of an admin queue */
	uint32_t num_shared_buffers;      /* data buffers of all poll groups together */
	uint32_t buf_cache_size;          /* the value of the next two where they are not given */
	uint32_t iobuf_small_cache_size, iobuf_large_cache_size; /* buffers that each poll group keeps at hand */
	bool zcopy;                                              /* move data straight to and from zero-copy buffers */
	bool dif_insert_or_strip; /* hosts see namespaces without their metadata: it is made when they write, and
				     checked when they read */
	int32_t acceptor_backlog; /* connections that may wait to be accepted */
	uint32_t acceptor_poll_rate_us;
	uint32_t abort_timeout_sec;
	uint16_t kas;                                   /* keep-alive granularity, units of 100 ms */
	uint32_t min_kato_ms;                           /* shorter timeouts are rounded up to it */
	uint32_t max_anonymous, max_anonymous_per_host; /* connections of hosts that are not known; 0: no limit */
	uint32_t ack_timeout; /* ms that a host may acknowledge nothing of what it was sent; 0: the transport's */
	uint16_t masked_oncs,
		masked_fuses; /* bits of Identify Controller's ONCS and FUSES whose commands are refused */
	/* The transport's own options: the struct that its table (nvmf_transport_ops.options) describes. */
	unsigned char own[NVMF_OWN_OPTS_SIZE] __attribute__((aligned(8)));
};

/* The names of the transports linked in; NULL after the last. */
const char *nvmf_transport_type(unsigned index);
/* Fills in the defaults of a transport type: -EINVAL if there is none of that name. */
int nvmf_transport_opts_init(const char *trtype, struct nvmf_transport_opts *opts);
/* Whether options are possible for a transport type: 0, or -EINVAL and why: the name, the value, what is allowed. */
int nvmf_transport_opts_check(const char *trtype, const struct nvmf_transport_opts *opts, char why[NVMF_ERROR_MAX]);
/* Makes a transport for all poll groups of a target. 0; -EINVAL (no such type, or an option out of range), -EEXIST, or
 * what the transport says; why, which the log has too, tells what is missing or not allowed. Control thread. */
int nvmf_transport_create(struct nvmf_tgt *tgt, const char *trtype, const struct nvmf_transport_opts *opts,
			  char why[NVMF_ERROR_MAX]);
/* A target's transport of a type; NULL: it has none. */
struct nvmf_transport *nvmf_transport_find(struct nvmf_tgt *tgt, const char *trtype);
/* A target's transports one by one. NULL: the first; NULL: there are no more. */
struct nvmf_transport *nvmf_transport_next(struct nvmf_tgt *tgt, const struct nvmf_transport *after);
/* Its type: "RDMA". Any thread. */
const char *nvmf_transport_name(const struct nvmf_transport *transport);
/* Whether it can demand TLS of hosts. Any thread. */
bool nvmf_transport_has_tls(const struct nvmf_transport *transport);
/* The options that it was made with; they do not change. Any thread. */
const struct nvmf_transport_opts *nvmf_transport_get_opts(const struct nvmf_transport *transport);

/* ---- Subsystems ---- */

enum nvmf_subsystem_state {
	NVMF_SUBSYSTEM_INACTIVE = 0,
	NVMF_SUBSYSTEM_ACTIVE = 1,
	NVMF_SUBSYSTEM_PAUSED = 2,
	NVMF_SUBSYSTEM_STATES,
};
/* "ACTIVE". */
const char *nvmf_subsystem_state_name(enum nvmf_subsystem_state state);

enum nvmf_subtype {
	NVMF_SUBTYPE_DISCOVERY = 1,
	NVMF_SUBTYPE_NVME = 2,
};

struct nvmf_subsystem_opts {
	const char *serial_number; /* ASCII, up to 20; NULL: zeroes */
	const char *model_number;  /* ASCII, up to 40; NULL: the product's name */
	const char *admin_label;   /* what administrators call it, ASCII, up to 255; NULL or empty: nothing */
	uint32_t max_namespaces;   /* also the highest nsid; 0: 32 */
	bool allow_any_host;
	bool ana_reporting;  /* tell hosts the state of each ANA group through each listener */
	bool static_ctrlrs;  /* the static controller model: hosts ask for a controller id (FCATT bit 0) */
	uint16_t min_cntlid; /* 0: 1 */
	uint16_t max_cntlid; /* 0: the highest there is */
	uint32_t dmrsl;      /* blocks that one range of a deallocation may have; 0: no limit */
	uint8_t wzsl;        /* one Write Zeroes may have 4096 << this bytes; 0: no limit */
};

/* Checks a name and options. 0, or -EINVAL: why names the option, its value and what is allowed. */
int nvmf_subsystem_opts_check(const char *nqn, const struct nvmf_subsystem_opts *opts, char why[NVMF_ERROR_MAX]);
/* Makes a subsystem in state INACTIVE. 0, -EINVAL (the log names the option, its value and what is allowed), -EEXIST,
 * -ENOSPC (the target has max_subsystems) or -ENOMEM. */
int nvmf_subsystem_create(struct nvmf_tgt *tgt, const char *nqn, const struct nvmf_subsystem_opts *opts,
			  struct nvmf_subsystem **subsystem);
/* Makes a subsystem ACTIVE: hosts may connect.
 *
 * Changes of state, and the changes below that take a `done` function, are queued in the subsystem and carried out one
 * after the other, in the order of the calls. They never fail because another is under way. -EINVAL through done: not
 * possible from the state that the subsystem then has. */
void nvmf_subsystem_start(struct nvmf_subsystem *s, nvmf_done_fn done, void *arg);
/* Pauses I/O to one namespace (nsid), to all (NVME_NSID_ALL) or to none (0): commands that arrive wait, and done is
 * called when those under way have ended. Resuming runs the commands that wait. Admin commands are not paused. */
void nvmf_subsystem_pause(struct nvmf_subsystem *s, uint32_t nsid, nvmf_done_fn done, void *arg);
/* Makes a subsystem that is PAUSED ACTIVE, and runs the commands that wait. */
void nvmf_subsystem_resume(struct nvmf_subsystem *s, nvmf_done_fn done, void *arg);
/* Disconnects the subsystem's hosts and makes it INACTIVE. */
void nvmf_subsystem_stop(struct nvmf_subsystem *s, nvmf_done_fn done, void *arg);
/* Stops the subsystem if it is not INACTIVE, and frees it with its namespaces, hosts and listeners. -EALREADY: it is
 * being destroyed; -EBUSY: its target is being stopped, and frees it; -EPERM: the discovery subsystem; -ENOMEM: nothing
 * has changed. A subsystem that is INACTIVE and has no changes queued is freed without needing memory. */
void nvmf_subsystem_destroy(struct nvmf_subsystem *s, nvmf_done_fn done, void *arg);

/* Whether a subsystem and what belongs to it may be changed: 0, or -EBUSY: it is being destroyed, or its target is
 * being stopped; why names it and its state. All functions of this header that change something check this. */
int nvmf_subsystem_check_open(const struct nvmf_subsystem *s, char why[NVMF_ERROR_MAX]);
/* A change of a subsystem that has not ended. */
#define NVMF_CHANGE_MAX 96
struct nvmf_change_info {
	char what[NVMF_CHANGE_MAX];     /* "removal of namespace 2" */
	uint32_t nsid;                  /* the namespace; 0: it is not a change of one */
	bool begun;                     /* false: it is queued behind another one */
	uint64_t queued_ticks;          /* when it was asked for */
	char waits_for[NVMF_ERROR_MAX]; /* "the end of 2 commands of namespace 2 (bdev Disk0)" */
};
/* The n-th change of a subsystem that has not ended, from 0. False: there are fewer. */
bool nvmf_subsystem_get_change(const struct nvmf_subsystem *s, unsigned n, struct nvmf_change_info *info);
/* Writes what the oldest of these changes waits for, of all or (nsid not 0) of one namespace. False: there are none. */
bool nvmf_subsystem_waits_for(const struct nvmf_subsystem *s, uint32_t nsid, char *text, size_t size);
/* The same for a target, with all its subsystems and connections. False: it waits for nothing. */
bool nvmf_tgt_waits_for(struct nvmf_tgt *tgt, char *text, size_t size);
/* The subsystem of a name; NULL: there is none. */
struct nvmf_subsystem *nvmf_subsystem_find(struct nvmf_tgt *tgt, const char *nqn);
/* The subsystem after one, or the first for NULL, which is the discovery subsystem; NULL: there are no more. */
struct nvmf_subsystem *nvmf_subsystem_next(struct nvmf_tgt *tgt, const struct nvmf_subsystem *after);
/* The target that it belongs to. */
struct nvmf_tgt *nvmf_subsystem_tgt(const struct nvmf_subsystem *s);
/* The subsystem's name; its own memory. */
const char *nvmf_subsystem_nqn(const struct nvmf_subsystem *s);
/* Whether it is a discovery subsystem. */
enum nvmf_subtype nvmf_subsystem_subtype(const struct nvmf_subsystem *s);
/* The subsystem's state. */
enum nvmf_subsystem_state nvmf_subsystem_get_state(const struct nvmf_subsystem *s);
/* When it entered that state, in TSC ticks. */
uint64_t nvmf_subsystem_state_ticks(const struct nvmf_subsystem *s);
/* Its serial number; its own memory. */
const char *nvmf_subsystem_serial_number(const struct nvmf_subsystem *s);
/* Its model number; its own memory. */
const char *nvmf_subsystem_model_number(const struct nvmf_subsystem *s);
/* What administrators call it, or ""; its own memory. */
const char *nvmf_subsystem_admin_label(const struct nvmf_subsystem *s);
/* How many namespaces it may have; also the highest nsid. */
uint32_t nvmf_subsystem_max_namespaces(const struct nvmf_subsystem *s);
/* The lowest controller id that it gives out. */
uint16_t nvmf_subsystem_min_cntlid(const struct nvmf_subsystem *s);
/* The highest controller id that it gives out. */
uint16_t nvmf_subsystem_max_cntlid(const struct nvmf_subsystem *s);
/* Whether it tells hosts the state of each ANA group. */
bool nvmf_subsystem_ana_reporting(const struct nvmf_subsystem *s);
/* Its dmrsl, as in the options. */
uint32_t nvmf_subsystem_dmrsl(const struct nvmf_subsystem *s);
/* Likewise, wzsl. */
uint8_t nvmf_subsystem_wzsl(const struct nvmf_subsystem *s);

/* ---- Hosts of a subsystem ---- */

/* Whether every host may connect, in the list or not. */
bool nvmf_subsystem_allow_any_host(const struct nvmf_subsystem *s);
/* Sets whether every host may connect. Hosts that are connected and no longer allowed are disconnected. 0, or -ENOMEM:
 * nothing has changed. */
int nvmf_subsystem_set_allow_any_host(struct nvmf_subsystem *s, bool allow);
/* Allows a host to connect. key, ctrlr_key: names of keys in the keyring. The host has to prove that it knows `key`;
 * the subsystem proves itself to the host with ctrlr_key. Both NULL: no authentication. 0, -EINVAL (not an NQN, or
 * ctrlr_key without key), -EEXIST, -ENOKEY (no such key) or -ENOMEM: nothing has changed, and why says what is wrong.
 */
int nvmf_subsystem_add_host(struct nvmf_subsystem *s, const char *hostnqn, const char *key, const char *ctrlr_key,
			    char why[NVMF_ERROR_MAX]);
/* The same, with the name of a key for TLS, or NULL, by which the host connects through secure listeners. -ENOKEY also
 * if it is a key for something else. */
int nvmf_subsystem_add_host_psk(struct nvmf_subsystem *s, const char *hostnqn, const char *key, const char *ctrlr_key,
				const char *psk, char why[NVMF_ERROR_MAX]);
/* Whether an allowed host derives from its key for TLS, this one and later ones, as libnvme did before its release 1.16
 * (struct tls_psk). Its next connection counts. 0, -EBUSY (the subsystem is being deleted) or -ENOENT (no such host).
 */
int nvmf_subsystem_set_psk_compat(struct nvmf_subsystem *s, const char *hostnqn, bool compat);
/* What it is for a host of the list. */
bool nvmf_subsystem_psk_compat(const struct nvmf_subsystem *s, const char *hostnqn);
/* Replaces the keys of an allowed host. The next authentication uses them. 0, -ENOENT (no such host), -ENOKEY or
 * -EINVAL, as above. */
int nvmf_subsystem_set_keys(struct nvmf_subsystem *s, const char *hostnqn, const char *key, const char *ctrlr_key,
			    char why[NVMF_ERROR_MAX]);
/* The same, and replaces its key for TLS, or, with NULL, leaves that as it is. Its next connection needs the new one;
 * those that it has go on. With psk, but neither key nor ctrlr_key, it leaves those as they are. */
int nvmf_subsystem_set_keys_psk(struct nvmf_subsystem *s, const char *hostnqn, const char *key, const char *ctrlr_key,
				const char *psk, char why[NVMF_ERROR_MAX]);
/* Keeps the name of a key for TLS that the keyring lacks, until the host has another: only to be shown and saved. 0,
 * -ENOENT (no such host) or -ENOMEM. */
int nvmf_subsystem_keep_psk_name(struct nvmf_subsystem *s, const char *hostnqn, const char *name);
/* The name of a host's key for TLS, also one that is only kept; NULL: it has none. hostnqn: an allowed host. */
const char *nvmf_subsystem_host_psk(const struct nvmf_subsystem *s, const char *hostnqn);
/* Whether a host can connect by that key. hostnqn: an allowed host. */
bool nvmf_subsystem_host_psk_counts(const struct nvmf_subsystem *s, const char *hostnqn);
/* The name of a host's key, or of the key that the controller proves itself with (of_ctrlr); NULL: it has none.
 * hostnqn: an allowed host. */
const char *nvmf_subsystem_host_key(const struct nvmf_subsystem *s, const char *hostnqn, bool of_ctrlr);
/* Removes a host from the list and ends its connections; done is called when they have ended. -ENOENT. */
void nvmf_subsystem_remove_host(struct nvmf_subsystem *s, const char *hostnqn, nvmf_done_fn done, void *arg);
/* Whether a host may connect. */
bool nvmf_subsystem_host_allowed(const struct nvmf_subsystem *s, const char *hostnqn);
/* The NQN after one in the list of allowed hosts, or the first for NULL; NULL: there are no more. */
const char *nvmf_subsystem_next_host(const struct nvmf_subsystem *s, const char *after);

/* ---- Listeners of a subsystem ---- */

struct nvmf_listener;
/* Whether a target can listen on an address: it has the transport, which listens on addresses of that family, and
 * nvmf_address_check() finds nothing. Otherwise as that. */
int nvmf_tgt_check_listen_address(struct nvmf_tgt *tgt, const struct nvmf_address *a, const char **field,
				  char allowed[NVMF_ERROR_MAX]);
/* Lets hosts connect to the subsystem through an address. The transport begins to listen there for the first subsystem.
 * 0, -EINVAL (nvmf_tgt_check_listen_address() tells why), -EEXIST, -ENOMEM, or what the transport returns. */
int nvmf_subsystem_add_listener(struct nvmf_subsystem *s, const struct nvmf_address *address);
/* The same, with all ANA groups in the given state. -ENOTSUP: a state other than OPTIMIZED, and the subsystem was made
 * without ana_reporting. */
int nvmf_subsystem_add_listener_ana(struct nvmf_subsystem *s, const struct nvmf_address *address,
				    enum nvme_ana_state state);
/* The same, and with secure, hosts have to connect over TLS, by a key of nvmf_subsystem_add_host_psk(). Where the
 * transport has none (nvmf_transport_has_tls()), that is kept without effect. -EPROTOTYPE: another subsystem listens on
 * that address, and demands something else. */
int nvmf_subsystem_add_listener_secure(struct nvmf_subsystem *s, const struct nvmf_address *address,
				       enum nvme_ana_state state, bool secure);
/* Calls done with status 0 when the transport is ready to serve hosts at the addresses where it listens: it may
 * register memory with a device on a worker thread first. Hosts that connect earlier wait. */
void nvmf_subsystem_settle_listeners(struct nvmf_subsystem *s, const char *trtype, nvmf_done_fn done, void *arg);
/* Removes a listener and disconnects the hosts that connected through it; done is called when they are gone. -ENOENT.
 */
void nvmf_subsystem_remove_listener(struct nvmf_subsystem *s, const struct nvmf_address *address, nvmf_done_fn done,
				    void *arg);
/* The subsystem's listener at an address; NULL: it has none there. */
struct nvmf_listener *nvmf_subsystem_find_listener(const struct nvmf_subsystem *s, const struct nvmf_address *address);
/* The listener after one, or the first for NULL; NULL: there are no more. */
struct nvmf_listener *nvmf_listener_next(const struct nvmf_subsystem *s, const struct nvmf_listener *after);
/* The listener's address; its own memory. */
const struct nvmf_address *nvmf_listener_address(const struct nvmf_listener *l);
/* Whether it was added with secure: if its transport has TLS, it takes connections over that only. */
bool nvmf_listener_is_secure(const struct nvmf_listener *l);
/* Sets the state of an ANA group (0: of all) that hosts see through a listener (Base 8.1.3). When it returns, commands
 * that arrive are treated by the new state, and hosts have been sent the event; commands under way end as they would
 * have. 0, -ENOENT (no such listener), -ENOTSUP (the subsystem was made without ana_reporting) or -EINVAL (the group is
 * beyond max_namespaces). */
int nvmf_listener_set_ana_state(struct nvmf_subsystem *s, const struct nvmf_address *address, uint32_t anagrpid,
				enum nvme_ana_state state);
/* The state of an ANA group through a listener. anagrpid: 1 to max_namespaces. */
enum nvme_ana_state nvmf_listener_ana_state(const struct nvmf_listener *l, uint32_t anagrpid);
/* "non_optimized". */
const char *nvmf_ana_state_name(enum nvme_ana_state state);

/* ---- Namespaces ---- */

/* Vendor specific commands that hosts may send to the NVMe controller under a namespace (NVM 3.2, Base 5): a bit for
 * each opcode. */
#define NVMF_VENDOR_IO    0x80
#define NVMF_VENDOR_ADMIN 0xc0
struct nvmf_passthru {
	uint64_t io[2]; /* 80h to FFh */
	uint64_t admin; /* C0h to FFh */
};
/* Whether an opcode can be in such a set: it is vendor specific, and its data have one direction or it has none. */
bool nvmf_passthru_can_list(uint8_t opcode, bool admin);
/* Adds an opcode, for which nvmf_passthru_can_list() is true. */
void nvmf_passthru_add(struct nvmf_passthru *p, uint8_t opcode, bool admin);
/* Whether an opcode is in the set. Any opcode; any thread. */
bool nvmf_passthru_has(const struct nvmf_passthru *p, uint8_t opcode, bool admin);

struct nvmf_ns_opts {
	uint32_t nsid;        /* 0: the lowest free one */
	uint8_t nguid[16];    /* zeroes: the UUID's bytes */
	uint8_t eui64[8];     /* zeroes: none */
	uint8_t uuid[16];     /* zeroes: the bdev's */
	uint32_t anagrpid;    /* 1 to max_namespaces; 0: nsid */
	bool no_auto_visible; /* hosts see it only after nvmf_ns_add_host() */
	bool hide_metadata;   /* as dif_insert_or_strip of transports, for this namespace alone */
	/* The absolute path of a file where hosts may have registrations and the reservation kept (Persist Through
	 * Power Loss); what the file contains now holds. NULL: reservations end with the process. */
	const char *ptpl_file;
	struct nvmf_passthru passthru; /* none by default */
};
/* Adds a bdev as a namespace, and tells hosts with an event. 0 and *nsid, or -EINVAL, -EEXIST (the nsid is in use),
 * -ENOSPC (the subsystem has max_namespaces), -ENODEV (no such bdev), -EPERM (another user has claimed it), -ENOTSUP
 * (passthru, and the bdev is not on an NVMe controller), -EBUSY (ptpl_file belongs to another namespace or process, or
 * is being written for a removed one), -EBADMSG (ptpl_file is damaged; the log says where), -ENOMEM, or the error of
 * opening ptpl_file. */
int nvmf_subsystem_add_ns(struct nvmf_subsystem *s, const char *bdev_name, const struct nvmf_ns_opts *opts,
			  uint32_t *nsid);
/* Removes a namespace. Commands under way end first; later ones fail with Invalid Namespace. -ENOENT. */
void nvmf_subsystem_remove_ns(struct nvmf_subsystem *s, uint32_t nsid, nvmf_done_fn done, void *arg);
/* Makes a namespace that was added with no_auto_visible visible to a host. 0, -ENOENT, -EEXIST, -EINVAL (not an NQN),
 * -ENOMEM or -EPERM (it is visible to all). */
int nvmf_ns_add_host(struct nvmf_subsystem *s, uint32_t nsid, const char *hostnqn);
/* Makes it invisible to a host again. 0, or -ENOENT (no such namespace, or the host is not in its list). */
int nvmf_ns_remove_host(struct nvmf_subsystem *s, uint32_t nsid, const char *hostnqn);
/* Moves a namespace to another ANA group, and tells hosts with an ANA change event. 0, -ENOENT or -EINVAL (the group is
 * beyond max_namespaces). */
int nvmf_subsystem_set_ns_ana_group(struct nvmf_subsystem *s, uint32_t nsid, uint32_t anagrpid);

/* The namespace with an id, visible or not; NULL: there is none. */
struct nvmf_ns *nvmf_ns_find(const struct nvmf_subsystem *s, uint32_t nsid);
/* The namespace after one, by nsid, or the first for NULL; NULL: there are no more. */
struct nvmf_ns *nvmf_ns_next(const struct nvmf_subsystem *s, const struct nvmf_ns *after);
/* The namespace's id. */
uint32_t nvmf_ns_nsid(const struct nvmf_ns *ns);
/* Whether it is being removed: by nvmf_subsystem_remove_ns(), or because its bdev is going. */
bool nvmf_ns_is_being_removed(const struct nvmf_ns *ns);
/* The name of its bdev; the bdev's memory. */
const char *nvmf_ns_bdev_name(const struct nvmf_ns *ns);
/* Its options with all defaults filled in; its own memory. */
const struct nvmf_ns_opts *nvmf_ns_get_opts(const struct nvmf_ns *ns);
/* The host after one in the list of those that see it (no_auto_visible), or the first for NULL; NULL: there are no
 * more. */
const char *nvmf_ns_next_host(const struct nvmf_ns *ns, const char *after);
struct nvmf_resv;
/* Its registrants and its reservation (nvmf/resv.h) at this moment. */
const struct nvmf_resv *nvmf_ns_resv_state(const struct nvmf_ns *ns);

/* ---- Referrals to other discovery services ---- */

struct nvmf_referral {
	struct nvmf_address address;
	char subnqn[NVMF_NQN_MAX + 1]; /* empty: the discovery NQN */
	bool secure_channel;
};
/* Adds an entry to the discovery log that names another discovery service. 0, -EEXIST, -EINVAL (not an NQN, or no
 * transport type of NVMe-oF) or -ENOMEM. */
int nvmf_tgt_add_referral(struct nvmf_tgt *tgt, const struct nvmf_referral *referral);
/* Removes it. subnqn: NULL or empty: the discovery NQN. 0 or -ENOENT. */
int nvmf_tgt_remove_referral(struct nvmf_tgt *tgt, const struct nvmf_address *address, const char *subnqn);
/* The referral after one, or the first for NULL; NULL: there are no more. */
const struct nvmf_referral *nvmf_referral_next(struct nvmf_tgt *tgt, const struct nvmf_referral *after);

/* ---- Controllers and queue pairs ---- */

enum nvmf_ctrlr_state {
	NVMF_CTRLR_DISABLED = 0,  /* CC.EN 0, CSTS.RDY 0 */
	NVMF_CTRLR_READY,         /* CSTS.RDY 1 */
	NVMF_CTRLR_RESETTING,     /* CC.EN was cleared; its I/O queues are being disconnected */
	NVMF_CTRLR_SHUTTING_DOWN, /* CC.SHN was set; its I/O queues are being disconnected */
	NVMF_CTRLR_SHUT_DOWN,     /* CSTS.SHST complete */
	NVMF_CTRLR_FAILED,        /* CSTS.CFS */
	NVMF_CTRLR_DESTROYING,    /* the association is ending; all its queue pairs are being disconnected */
	NVMF_CTRLR_STATES,
};
/* "READY". */
const char *nvmf_ctrlr_state_name(enum nvmf_ctrlr_state state);

enum nvmf_qpair_state {
	NVMF_QPAIR_NEW = 0,       /* from the transport, not yet on a poll group */
	NVMF_QPAIR_CONNECTING,    /* on a poll group; Connect has not been answered */
	NVMF_QPAIR_ENABLED,       /* belongs to a controller */
	NVMF_QPAIR_DISCONNECTING, /* commands are ending */
	NVMF_QPAIR_CLOSED,        /* no command is left; it is being freed */
	/* Behind the others, so that the numbers in recorded traces keep their meaning. */
	NVMF_QPAIR_AUTHENTICATING, /* between CONNECTING and ENABLED: the host has to prove who it is */
	NVMF_QPAIR_QUIESCING, /* between ENABLED and DISCONNECTING: the target ends it, and answers all commands first
			       */
	NVMF_QPAIR_STATES,
};
/* "ENABLED". */
const char *nvmf_qpair_state_name(enum nvmf_qpair_state state);

/* In-band authentication of a queue pair (Base 8.13.5): which message is next. Clients of the RPC know the names. */
enum nvmf_auth_state {
	NVMF_AUTH_NEGOTIATE = 0, /* from the host, the first */
	NVMF_AUTH_CHALLENGE,     /* to the host */
	NVMF_AUTH_REPLY,         /* from the host */
	NVMF_AUTH_SUCCESS1,      /* to the host */
	NVMF_AUTH_SUCCESS2,      /* from the host, when it has authenticated the controller */
	NVMF_AUTH_FAILURE1,      /* to the host */
	NVMF_AUTH_COMPLETED,     /* none; the host may begin again */
	NVMF_AUTH_ERROR,         /* none: the queue pair is about to be disconnected */
	NVMF_AUTH_STATES,
};
/* "negotiate". */
const char *nvmf_auth_state_name(enum nvmf_auth_state state);
struct nvmf_auth_info {
	bool present;                         /* the host has been asked to authenticate */
	const char *state, *digest, *dhgroup; /* "unknown": not agreed on yet */
};

struct nvmf_ctrlr_info {
	uint16_t cntlid;
	uint8_t ciu;   /* Controller Instance Uniquifier; 0 in discovery subsystems */
	uint64_t cirn; /* Controller Instance Random Number; 0 in discovery subsystems */
	char hostnqn[NVMF_NQN_MAX + 1];
	uint8_t hostid[16];
	enum nvmf_ctrlr_state state;
	uint64_t state_ticks;
	uint32_t num_io_qpairs;
	uint32_t kato_ms;
	uint64_t errors;
	struct nvmf_auth_info auth; /* of its admin queue */
};
/* The controller after one, or the first for NULL; NULL: there are no more. */
struct nvmf_ctrlr *nvmf_ctrlr_next(const struct nvmf_subsystem *s, const struct nvmf_ctrlr *after);
/* Fills in what there is to know of a controller. */
void nvmf_ctrlr_get_info(const struct nvmf_ctrlr *ctrlr, struct nvmf_ctrlr_info *info);

/* A Cross-Controller Reset that a controller was asked for (TP8028). */
struct nvmf_cross_reset_info {
	struct nvmf_ctrlr_name name; /* the controller that is to be reset */
	enum nvme_cross_ctrl_reset_ccrs status;
	uint64_t begun_ticks;
	bool peers_asked; /* it is another process's, and the peers have not answered yet */
};
/* Fills in the index-th entry, the oldest is 0, of the controller's log page Cross-Controller Reset. False: there are
 * not so many. */
bool nvmf_ctrlr_cross_reset_info(const struct nvmf_ctrlr *ctrlr, unsigned index, struct nvmf_cross_reset_info *info);
/* Ends a controller because a peer asks for it: its host has lost it and has told the peer so. Calls done(arg, 0), now
 * or later, when the controller is gone and none of its commands is carried out any more; at once if it is gone
 * already. 0; or done is not called: -ENOENT (it never was a controller of this process, or of a subsystem that was
 * made again since), -EACCES (it belongs to another host), -EINVAL (a controller has a part of the name only), -EBUSY
 * (too many wait for its end already), -ENOMEM. */
int nvmf_subsystem_reset_ctrlr(struct nvmf_subsystem *s, const struct nvmf_ctrlr_name *name, const char *hostnqn,
			       const uint8_t hostid[16], nvmf_done_fn done, void *arg);

/* ---- Peers: other processes that export the same subsystem over shared storage ---- */

struct nvmf_peer;
#define NVMF_PEER_PATH_MAX   107 /* bytes of the path of a Unix socket */
#define NVMF_PEER_TIMEOUT_MS 10000

/* What a peer says to the request to reset a controller. */
enum nvmf_peer_answer {
	NVMF_PEER_ENDED,   /* the controller is gone */
	NVMF_PEER_UNKNOWN, /* it never was a controller of that process */
	NVMF_PEER_FAILED,  /* anything else: refused, no answer in time, no connection, an answer that makes no sense */
	NVMF_PEER_ANSWERS,
};
struct nvmf_peer_counts {
	uint64_t answers[NVMF_PEER_ANSWERS];
};
/* Adds a peer. path: absolute, of its RPC socket; timeout_ms: how long it may take to answer, 0: NVMF_PEER_TIMEOUT_MS.
 * 0, -EEXIST, -EINVAL (the path), -EOPNOTSUPP (a discovery subsystem) or -ENOMEM. */
int nvmf_subsystem_add_peer(struct nvmf_subsystem *s, const char *path, uint32_t timeout_ms);
/* Removes a peer; requests that it has not answered count as failed. 0 or -ENOENT. */
int nvmf_subsystem_remove_peer(struct nvmf_subsystem *s, const char *path);
/* The peer after one, or the first for NULL; NULL: there are no more. */
const struct nvmf_peer *nvmf_peer_next(const struct nvmf_subsystem *s, const struct nvmf_peer *after);
/* The path of its RPC socket. */
const char *nvmf_peer_path(const struct nvmf_peer *peer);
/* How long it may take to answer. */
uint32_t nvmf_peer_timeout_ms(const struct nvmf_peer *peer);
/* Its answers so far. */
const struct nvmf_peer_counts *nvmf_peer_get_counts(const struct nvmf_peer *peer);

/* A request to a peer. What it points to is valid during the call that gets it. */
struct nvmf_peer_question {
	const char *path;
	uint32_t timeout_ms;
	const char *nqn, *hostnqn;
	const uint8_t *hostid; /* 16 bytes */
	struct nvmf_ctrlr_name name;
};
/* How peers are reached. */
struct nvmf_peer_ops {
	/* Asks a peer, and calls done(arg, answer, why) later, never before it returns. why: what went wrong. NULL: no
	 * memory. Must not block. */
	void *(*ask)(const struct nvmf_peer_question *question,
		     void (*done)(void *arg, enum nvmf_peer_answer answer, const char *why), void *arg);
	/* Ends what ask() returned: done is not called any more. Not after done was called. */
	void (*cancel)(void *handle);
};
/* Sets how peers are reached. NULL: not at all. */
void nvmf_set_peer_ops(const struct nvmf_peer_ops *ops);

struct nvmf_qpair_info {
	uint16_t cntlid;
	uint16_t qid;
	enum nvmf_qpair_state state;
	uint64_t state_ticks;
	char hostnqn[NVMF_NQN_MAX + 1];
	char thread[32];
	struct nvmf_address listen_address;
	struct nvmf_address peer_address;
	struct nvmf_auth_info auth;
	const char *tls_records; /* over TLS: who encrypts and decrypts (tls_records_name()); NULL: not over TLS */
};
/* The queue pair of a controller after one, or the first for NULL; NULL: there are no more. */
struct nvmf_qpair *nvmf_qpair_next(const struct nvmf_ctrlr *ctrlr, const struct nvmf_qpair *after);
/* Fills in what there is to know of a queue pair; waits for its poll group. */
void nvmf_qpair_get_info(const struct nvmf_qpair *qpair, struct nvmf_qpair_info *info);

/* ---- Outstanding commands ---- */

struct nvmf_inflight {
	char hostnqn[NVMF_NQN_MAX + 1];
	char subnqn[NVMF_NQN_MAX + 1];
	const void *object; /* its object id in the trace */
	uint16_t cntlid;
	uint16_t qid;
	uint16_t cid;
	uint8_t opcode;
	const char *command; /* its name: "write_zeroes", "fabrics"; NULL: there is no such command */
	bool admin;
	bool fabrics;
	uint32_t nsid;
	uint64_t slba; /* I/O commands that have one */
	uint32_t num_blocks;
	const char *state;     /* the transport's state of it, or the target's while the target has it */
	const char *waits_for; /* "data buffer", "paused namespace", "bdev" ...; NULL: nothing */
	uint64_t age_ticks;
	uint64_t state_age_ticks;
	uint64_t start_ticks; /* when it arrived */
	char bdev[64];        /* the bdev that has it, cut to fit; empty: none */
	bool waits_for_host;  /* an Asynchronous Event Request: it may wait for ever */
	uint8_t object_type;  /* TRACE_OBJECT_*: the type of object */
};
/* Lists all commands that have arrived and whose response has not been sent. Returns their number, or -ENOMEM. *list:
 * an array that the caller frees; NULL if there are none. Waits for each poll group. */
ssize_t nvmf_tgt_get_inflight(struct nvmf_tgt *tgt, struct nvmf_inflight **list);

/* Lists at most max commands that arrived at least min_age_ticks ago, without those that wait for an event. Returns
 * their number. Cheap enough to be called often: it does not wake poll groups that have no queue pairs. */
size_t nvmf_tgt_get_late(struct nvmf_tgt *tgt, uint64_t min_age_ticks, size_t max, struct nvmf_inflight *list);
/* What a command is doing while its transport has it, whatever the transport calls the state. */
enum nvmf_request_class {
	NVMF_CLASS_NONE = 0,         /* the number is no state */
	NVMF_CLASS_IDLE,             /* nothing: it is not outstanding */
	NVMF_CLASS_PASSING,          /* on its way from one of the others to the next, which takes no time */
	NVMF_CLASS_WAITS_FOR_BUFFER, /* for a data buffer */
	NVMF_CLASS_WAITS_FOR_ROOM,   /* for something else that the transport has a number of: credits, room to send */
	NVMF_CLASS_TRANSFERS,        /* its data come from the host */
	NVMF_CLASS_EXECUTES,         /* it is carried out */
	NVMF_CLASS_COMPLETES,        /* data and response are on the way to the host */
	NVMF_CLASSES,
};
/* Any thread. */
const char *nvmf_request_class_name(enum nvmf_request_class class); /* "waits_for_room" */

/* A state of a transport's requests. Tools show it by this table, also gdb, which reads it from a core. */
struct nvmf_transport_state {
	const char *name;       /* in nvmf_get_inflight, metrics and the log: "need buffer" */
	const char *trace_name; /* in traces, scripts and debuggers: "NEED_BUFFER" for RDMA_REQ_NEED_BUFFER */
	const char *waits_for;  /* "RDMA READ credit"; NULL: nothing. Of WAITS_FOR_BUFFER it is "data buffer" */
	const char *remedy;     /* what makes it wait less: an RPC method and its parameter; NULL: nothing known */
	enum nvmf_request_class class;
};
/* States are numbered as their tracepoints are in the transport's group; an idle request has none, but a number. */
#define NVMF_TRANSPORT_STATES 32
#define NVMF_STATE_IDLE       31
/* How a transport type's requests show in traces: the name of their group and what their tracepoints begin with,
 * "nvmf_rdma" and "RDMA_REQ_"; NULL: they do not, or there is no such type. Any thread. */
void nvmf_transport_trace_names(const char *trtype, const char **group, const char **prefix);
/* NULL: the transport type has no state n. Any thread. */
const struct nvmf_transport_state *nvmf_transport_state(const char *trtype, unsigned n);

/* The names of all states of outstanding commands, those of every transport included, one by one from n = 0 on; NULL:
 * there are no more. Any thread. */
const char *nvmf_request_state(unsigned n);

/* ---- Faults ---- */

enum nvmf_fault_kind {
	NVMF_FAULT_QPAIR,      /* a connection broke, or was ended because of an error of the host or the device */
	NVMF_FAULT_KEEP_ALIVE, /* nothing was heard of a host for its keep-alive timeout */
};
struct nvmf_fault {
	enum nvmf_fault_kind kind;
	const void
		*qpair; /* its address in the trace and the probes, not to be dereferenced; NULL: no one queue pair */
	uint16_t cntlid, qid;
	const char *hostnqn, *subnqn, *why;
	uint64_t silent_ticks, limit_ticks; /* KEEP_ALIVE */
};
/* Sets the one function that is called for each fault, on the control thread; NULL: none. */
void nvmf_set_fault_fn(void (*fn)(const struct nvmf_fault *fault));

/* ---- Statistics ---- */

/* A counter that a transport keeps for each device of a poll group: an RDMA device, say. Each transport has a table of
 * its own (nvmf_transport_ops.counters), from which nvmf_get_stats, the metrics and varve-top have names and words. */
struct nvmf_device_counter {
	const char *name;      /* in nvmf_get_stats: "pending_rdma_read"; NULL ends a table */
	const char *metric;    /* "read_waits_total" for varve_nvmf_device_read_waits_total; NULL: it is no metric */
	const char *help;      /* of the metric: a sentence */
	const char *waits_for; /* it counts commands that waited: for what; NULL: it counts something else */
	bool is_level;         /* it tells what is there now, and may become less */
	uint16_t offset;       /* of the uint64_t in the transport's struct */
};
/* Counter n of a transport type; NULL: there are no more. Any thread. */
const struct nvmf_device_counter *nvmf_transport_counter(const char *trtype, unsigned n);

/* The number of a transport type's counter that is the metric of that name; NVMF_DEVICE_COUNTERS_MAX: it has none. Any
 * thread. */
unsigned nvmf_transport_counter_of_metric(const char *trtype, const char *metric);

#define NVMF_DEVICE_COUNTERS_MAX  24
#define NVMF_STATS_DEVICES_MAX    16
#define NVMF_STATS_TRANSPORTS_MAX 4
struct nvmf_device_stats {
	char name[64];
	uint64_t counters[NVMF_DEVICE_COUNTERS_MAX]; /* as nvmf_transport_counter() numbers them */
};
struct nvmf_transport_stats {
	const char *trtype;
	uint64_t pending_data_buffer; /* commands that waited for a data buffer, ever */
	uint64_t group_bytes;         /* the transport's memory for the group: shared receives, work requests */
	uint64_t connections;         /* now, and */
	uint64_t connection_bytes;    /* the transport's memory for them; what the device keeps for a queue pair comes
					 on top */
	unsigned num_devices;
	struct nvmf_device_stats devices[NVMF_STATS_DEVICES_MAX];
};
struct nvmf_poll_group_stats {
	uint64_t admin_qpairs, io_qpairs;                 /* ever */
	uint64_t current_admin_qpairs, current_io_qpairs; /* now */
	uint64_t current_unassociated_qpairs;             /* now: connections without a controller */
	uint64_t pending_bdev_io;                         /* held back by a paused subsystem, now */
	uint64_t completed_nvme_io;
	uint64_t failed_nvme_io;
	unsigned num_transports;
	struct nvmf_transport_stats transports[NVMF_STATS_TRANSPORTS_MAX];
};
/* Latencies of commands on I/O queues, by samples (util/latency.h). ns, bytes: estimates from the samples. */
struct nvmf_latency {
	struct latency_histogram histogram;
	uint64_t ns, bytes;
};
/* How many hosts have figures of their own; those of all others are added up, for each subsystem. */
#define NVMF_HOST_LATENCIES_MAX  256
#define NVMF_HOST_LATENCY_OTHERS "other" /* what those are called; a host that calls itself so is one of them */
struct nvmf_host_latency_info {
	const char *subnqn, *hostnqn; /* hostnqn NVMF_HOST_LATENCY_OTHERS: the other hosts of the subsystem */
	uint64_t commands;            /* on I/O queues, answered so far; never less than those in latency */
	struct nvmf_latency latency;
};
/* Calls fn(arg, info) for each host of each subsystem since the subsystem was made, connected or not. Waits for nobody:
 * what a poll group does meanwhile may be missing. */
void nvmf_tgt_for_each_host_latency(struct nvmf_tgt *tgt, void (*fn)(void *arg, const struct nvmf_host_latency_info *),
				    void *arg);

/* A target's poll groups one by one. NULL: the first; NULL: there are no more. */
struct nvmf_poll_group *nvmf_poll_group_next(struct nvmf_tgt *tgt, const struct nvmf_poll_group *after);
/* The name of its thread. */
const char *nvmf_poll_group_name(const struct nvmf_poll_group *group);
/* Fills in stats, on the group's thread, for which it waits. */
void nvmf_poll_group_get_stats(struct nvmf_poll_group *group, struct nvmf_poll_group_stats *stats);

#endif
