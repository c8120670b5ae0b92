/* SPDX-License-Identifier: BSD-3-Clause */
/* What mdns.c, on the control thread, and mdns_avahi.c, on a thread of its own, share. */
#ifndef NVMF_MDNS_INTERNAL_H
#define NVMF_MDNS_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "nvmf/nvmf.h"

#define NVMF_MDNS_TYPE     "_nvme-disc._tcp"
#define NVMF_MDNS_NAME_MAX 63 /* bytes (RFC 6763 4.1.1) */

/* A service that hosts find: a listener of the discovery subsystem. */
struct nvmf_mdns_record {
	char name[NVMF_MDNS_NAME_MAX + 1]; /* unlike those of the other records of this machine */
	int interface;                     /* the index of the network interface on which it is told; 0: all */
	bool ipv6;
	uint16_t port;
};

/* Fills in the record of a listener. host: this machine's name; interface: as in the record. 0; -EPROTONOSUPPORT: hosts
 * cannot be told of a listener of that transport. Pure. */
int nvmf_mdns_record_make(const struct nvmf_address *a, const char *host, int interface, struct nvmf_mdns_record *r);
/* The interface that has an IP address: its index; 0: the address stands for all; -ENODEV: there is none, or no other
 * machine reaches it. */
int nvmf_mdns_interface_of(const struct nvmf_address *a);

/* A thread that has avahi-daemon tell of records. */
struct nvmf_mdns_session;
#ifdef NVMF_HAS_AVAHI
/* Starts one. told(arg, rc, why) is called once on the control thread, later: 0, all records are known on the network;
 * or a negative errno. Records that fail are tried again until the session ends. n is not 0. Returns 0, -ENOTSUP (built
 * without libavahi-client), -ENOMEM or what pthread_create() says. Control thread. */
int nvmf_mdns_session_start(const struct nvmf_mdns_record *records, size_t n,
			    void (*told)(void *arg, int rc, const char *why), void *arg,
			    struct nvmf_mdns_session **session);
/* Replaces the records. -ENOMEM: it keeps those that it has. Control thread; waits for nobody. */
int nvmf_mdns_session_update(struct nvmf_mdns_session *s, const struct nvmf_mdns_record *records, size_t n);
/* Ends it: its records are withdrawn soon, and told is not called any more. Control thread; waits for nobody. */
void nvmf_mdns_session_end(struct nvmf_mdns_session *s);
#else /* none can be started */
#define nvmf_mdns_session_start(records_, n_, told_, arg_, session_) ((void)(told_), -ENOTSUP)
#define nvmf_mdns_session_update(s_, records_, n_)                   0
#define nvmf_mdns_session_end(s_)                                    ((void)(s_))
#endif

#endif
