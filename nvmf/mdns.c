/* SPDX-License-Identifier: BSD-3-Clause */
/* Multicast DNS (TP8009): hosts find the discovery service without being told its address. One record for each listener
 * of the discovery subsystem, as long as it is there. What speaks with avahi-daemon is in mdns_avahi.c. */
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "nvmf/internal.h"
#include "nvmf/mdns_internal.h"

static struct {
	struct nvmf_tgt *tgt; /* NULL: nothing is published */
	struct nvmf_mdns_session *session;
	nvmf_mdns_done_fn done; /* of the call that began it, until it is answered */
	void *arg;
} mdns;

/* ---- Records ---- */

#define WHERE_MAX 51 /* bytes of an IPv6 address, a colon, a port */
#define HOST_MAX  (NVMF_MDNS_NAME_MAX - WHERE_MAX - (int)strlen("varve  "))

int nvmf_mdns_record_make(const struct nvmf_address *a, const char *host, int interface, struct nvmf_mdns_record *r)
{
	char where[WHERE_MAX + 1];

	/* A record says "tcp", "roce" or "iwarp" (p). An RDMA listener may have devices of the latter two kinds. */
	if (strcasecmp(a->trtype, "TCP") != 0) {
		return -EPROTONOSUPPORT;
	}
	snprintf(where, sizeof(where), "%.45s:%.5s", a->traddr, a->trsvcid);
	snprintf(r->name, sizeof(r->name), "varve %.*s %s", HOST_MAX + WHERE_MAX - (int)strlen(where), host, where);
	for (char *c = r->name; *c != '\0'; c++) { /* names are UTF-8 */
		*c = *c < ' ' || *c > '~' ? '-' : *c;
	}
	r->interface = interface;
	r->ipv6 = a->adrfam == NVMF_ADDR_FAMILY_IP6;
	r->port = (uint16_t)strtoul(a->trsvcid, NULL, 10);
	return 0;
}

static bool sockaddr_is(const struct sockaddr *sa, int family, const void *ip)
{
	if (sa == NULL || sa->sa_family != family) {
		return false;
	}
	return family == AF_INET ? memcmp(&((const struct sockaddr_in *)(const void *)sa)->sin_addr, ip, 4) == 0
				 : memcmp(&((const struct sockaddr_in6 *)(const void *)sa)->sin6_addr, ip, 16) == 0;
}

int nvmf_mdns_interface_of(const struct nvmf_address *a)
{
	int family = a->adrfam == NVMF_ADDR_FAMILY_IP6 ? AF_INET6 : AF_INET, found = -ENODEV;
	static const uint8_t any[16];
	struct ifaddrs *all;
	uint8_t ip[16];

	if (inet_pton(family, a->traddr, ip) != 1) {
		return -ENODEV;
	}
	if (memcmp(ip, any, family == AF_INET ? 4 : 16) == 0) {
		return 0;
	}
	if (getifaddrs(&all) != 0) {
		return -ENODEV;
	}
	for (const struct ifaddrs *i = all; i != NULL; i = i->ifa_next) {
		if (sockaddr_is(i->ifa_addr, family, ip) && !(i->ifa_flags & IFF_LOOPBACK)) {
			found = (int)if_nametoindex(i->ifa_name);
		}
	}
	freeifaddrs(all);
	return found != 0 ? found : -ENODEV;
}

static int record_of(const struct nvmf_address *a, struct nvmf_mdns_record *r, const char **why)
{
	char host[256] = "";
	int interface = nvmf_mdns_interface_of(a);

	gethostname(host, sizeof(host) - 1);
	*why = "no other machine reaches it";
	if (interface < 0) {
		return interface;
	}
	*why = "only listeners of TCP can be published";
	return nvmf_mdns_record_make(a, host, interface, r);
}

/* The records of the target's discovery subsystem. Returns their number and *records, which the caller frees; or
 * -ENOMEM. With 0 or -ENOMEM, why (NVMF_ERROR_MAX bytes) says why there are none. */
static ssize_t records_of_listeners(const struct nvmf_tgt *tgt, struct nvmf_mdns_record **records, char *why)
{
	const struct nvmf_listener *l;
	const char *reason;
	size_t n = 0, room = 1;

	TAILQ_FOREACH (l, &tgt->discovery->listeners, link) {
		room++;
	}
	*records = calloc(room, sizeof(**records));
	if (*records == NULL) {
		snprintf(why, NVMF_ERROR_MAX, "out of memory");
		return -ENOMEM;
	}
	snprintf(why, NVMF_ERROR_MAX, "the discovery subsystem has no listener");
	TAILQ_FOREACH (l, &tgt->discovery->listeners, link) {
		const struct nvmf_address *a = &l->listen->address;
		if (record_of(a, &(*records)[n], &reason) == 0) {
			n++;
			continue;
		}
		snprintf(why, NVMF_ERROR_MAX, "hosts cannot find %s %.64s port %s of the discovery subsystem: %s",
			 a->trtype, a->traddr, a->trsvcid, reason);
		log_notice("mDNS: %s", why);
	}
	return (ssize_t)n;
}

/* ---- Publishing ---- */

static void mdns_answer(int rc, const char *why)
{
	nvmf_mdns_done_fn done = mdns.done;

	mdns.done = NULL;
	if (done != NULL) {
		done(mdns.arg, rc, why);
	}
}

static void mdns_end(void)
{
	nvmf_mdns_session_end(mdns.session);
	mdns.session = NULL;
	mdns.tgt = NULL;
}

static void mdns_told(void *arg, int rc, const char *why)
{
	if (rc != 0) {
		mdns_end();
	}
	mdns_answer(rc, why);
}

static int mdns_start(struct nvmf_tgt *tgt, char *why)
{
	struct nvmf_mdns_record *records;
	ssize_t n = records_of_listeners(tgt, &records, why);
	int rc = n > 0 ? 0 : n < 0 ? (int)n : -EINVAL;

	if (rc == 0) {
		rc = nvmf_mdns_session_start(records, (size_t)n, mdns_told, NULL, &mdns.session);
		snprintf(why, NVMF_ERROR_MAX, "%s",
			 rc == -ENOTSUP ? "this varve was built without libavahi-client" : strerror(-rc));
	}
	free(records);
	return rc;
}

void nvmf_mdns_publish(struct nvmf_tgt *tgt, nvmf_mdns_done_fn done, void *arg)
{
	char why[NVMF_ERROR_MAX];

	if (mdns.tgt != NULL) {
		snprintf(why, sizeof(why),
			 mdns.tgt == tgt ? "target %.64s is published already"
					 : "target %.64s is published: there can be only one",
			 mdns.tgt->name);
		done(arg, mdns.tgt == tgt ? -EEXIST : -EINVAL, why);
		return;
	}
	int rc = mdns_start(tgt, why);
	if (rc != 0) {
		done(arg, rc, why);
		return;
	}
	mdns.tgt = tgt;
	mdns.done = done;
	mdns.arg = arg;
}

void nvmf_mdns_stop(struct nvmf_tgt *tgt)
{
	if (mdns.tgt == tgt) {
		mdns_end();
		mdns_answer(-ECANCELED, "it was stopped before the records were known");
	}
}

void nvmf_mdns_listeners_changed(struct nvmf_tgt *tgt)
{
	struct nvmf_mdns_record *records;
	char why[NVMF_ERROR_MAX];

	if (mdns.tgt != tgt) {
		return;
	}
	ssize_t n = records_of_listeners(tgt, &records, why);
	if (n < 0 || nvmf_mdns_session_update(mdns.session, records, (size_t)n) != 0) {
		log_error("mDNS: out of memory: hosts still find the listeners that the discovery subsystem had");
	}
	free(records);
}
