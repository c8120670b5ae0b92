/* SPDX-License-Identifier: BSD-3-Clause */
/* A target, its transports, the addresses they listen on, and its referrals: tgt.c, transport.c, listener.c. */
#ifndef NVMF_TGT_INTERNAL_H
#define NVMF_TGT_INTERNAL_H

#include "nvmf/transport.h"

struct nvmf_ana;

/* An address that a transport listens on, for one subsystem or several. */
struct nvmf_listen {
	struct nvmf_address address;
	unsigned refs; /* subsystems that listen on it */
	bool secure;   /* it takes connections over TLS only */
	uint16_t portid;
	TAILQ_ENTRY(nvmf_listen) link;
};

/* One subsystem on one address. */
struct nvmf_listener {
	struct nvmf_transport *transport;
	struct nvmf_listen *listen;
	struct nvmf_ana *ana; /* NULL: the subsystem does not report ANA states */
	bool secure;          /* as it was asked for; listen->secure says what it is */
	TAILQ_ENTRY(nvmf_listener) link;
};

struct nvmf_referral_node {
	struct nvmf_referral referral; /* nvmf_referral_next() returns its address */
	TAILQ_ENTRY(nvmf_referral_node) link;
};

struct nvmf_tgt {
	char *name;
	enum nvmf_tgt_state state;
	uint32_t max_subsystems;
	uint32_t discovery_filter;
	uint16_t crdt[3];
	uint32_t quiesce_limit_ms;
	cpu_set_t cores;
	bool all_cores;
	struct nvmf_subsystem **subsystems; /* by index; NULL where there is none */
	struct nvmf_subsystem *discovery;
	TAILQ_HEAD(, nvmf_poll_group) groups;
	TAILQ_HEAD(, nvmf_placement) placements; /* of queue pairs that there are; control thread (qpair.c) */
	TAILQ_HEAD(, nvmf_transport) transports;
	TAILQ_HEAD(, nvmf_referral_node) referrals;
	uint64_t generation; /* of the discovery log */
	uint16_t next_portid;
	uint32_t num_qpairs;                   /* accepted and not yet freed */
	unsigned num_host_latencies;           /* hosts of all subsystems with figures of their own */
	uint64_t connect_timeout_us;           /* from accepting a queue pair to its Connect command */
	uint64_t auth_timeout_us;              /* for one step of an authentication; 0: the host's keep-alive timeout */
	bool one_ctrlr_per_listener;           /* struct nvmf_tgt_opts */
	unsigned dhchap_hashes, dhchap_groups; /* sets: the algorithms that hosts may authenticate with */
	nvmf_done_fn stop_done;
	void *stop_arg;
	uint32_t stopping_subsystems;
	uint32_t destroying_subsystems; /* nvmf_subsystem_destroy() is under way; stopping waits for them */
	struct thread_msg stop_msg;
	TAILQ_ENTRY(nvmf_tgt) link;
};

/* A listener of the discovery subsystem has come or gone: the records of multicast DNS follow. mdns.c */
void nvmf_mdns_listeners_changed(struct nvmf_tgt *tgt);
/* The discovery log has changed: counts its generation and raises an event in discovery controllers. */
void nvmf_tgt_discovery_changed(struct nvmf_tgt *tgt);
/* A queue pair is gone from the control thread's lists; the target may have waited for it to stop. */
void nvmf_tgt_qpair_gone(struct nvmf_tgt *tgt);
/* A subsystem that was being destroyed is gone, or stays; the target may have waited for that to stop. */
void nvmf_tgt_subsystem_settled(struct nvmf_tgt *tgt);
/* A target has been freed; nvmf_fini() may have waited for that. In nvmf.c. */
void nvmf_tgt_destroyed(void);

/* The functions of a transport type, by name in any case; NULL: there is none. */
const struct nvmf_transport_ops *nvmf_transport_ops_find(const char *trtype);
/* The description of a state of the transport's requests; NULL: n is no state. Any thread. */
const struct nvmf_transport_state *nvmf_transport_ops_state(const struct nvmf_transport_ops *ops, unsigned n);
/* The number of the state that the transport has a request in. Group's thread. */
static inline unsigned nvmf_request_state_number(const struct nvmf_request *req)
{
	return *((const uint8_t *)req + req->qpair->transport->ops->state_offset);
}
/* The number of a transport type in discovery log entries (enum nvmf_trtype), also of types that this program does not
 * have; -1: there is none of that name. */
int nvmf_trtype_number(const char *trtype);
/* Counts connections whose hosts are not known: anonymous.c. NULL: no memory. */
struct nvmf_anonymous *nvmf_anonymous_create(void);
/* Frees the counts; no connection is counted any more. */
void nvmf_anonymous_destroy(struct nvmf_anonymous *anonymous);
/* Counts a new connection. 0, -ENOSPC or -EUSERS (a limit of the transport's options), or -ENOMEM. */
int nvmf_anonymous_add(struct nvmf_qpair *qpair);
/* The host of a connection is known now, or the connection is gone; may be called more than once. */
void nvmf_anonymous_remove(struct nvmf_qpair *qpair);
/* Frees a transport that has no groups, listeners or queue pairs. */
void nvmf_transport_destroy(struct nvmf_transport *transport);
/* One more subsystem listens on an address: the first makes the transport listen. 0, -ENOMEM, or what the transport
 * returns. */
int nvmf_transport_listen(struct nvmf_transport *t, const struct nvmf_address *address, bool secure,
			  struct nvmf_listen **listen);
/* Whether an address takes connections over TLS only at present. */
bool nvmf_transport_demands_tls(const struct nvmf_transport *t, const struct nvmf_address *address);
/* One subsystem fewer does; the last makes the transport stop listening. */
void nvmf_transport_unlisten(struct nvmf_transport *t, struct nvmf_listen *listen);
/* Removes a subsystem's listener. Its controllers stay. */
void nvmf_listener_free(struct nvmf_subsystem *s, struct nvmf_listener *l);
/* Whether hosts may connect to a subsystem through an address. */
bool nvmf_subsystem_reachable(const struct nvmf_subsystem *s, const struct nvmf_address *address);
/* Frees all referrals of a target. */
void nvmf_referrals_free(struct nvmf_tgt *tgt);

/* The name of a set of what outlives a target (bdev/kept_stat.h): what of a subsystem, or "". */
struct nvmf_kept_set {
	char name[NVMF_NQN_MAX + 128];
};
struct nvmf_kept_set nvmf_kept_set(const char *what, const struct nvmf_tgt *tgt, const char *of);

#endif
