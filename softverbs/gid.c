/* SPDX-License-Identifier: BSD-3-Clause */
/* The port's GID table: the addresses of the local interfaces, in the form of RoCE v2 (IPv4 mapped into IPv6). */
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <arpa/inet.h>
#include <stdlib.h>

#include "softverbs/softverbs.h"

static bool gid_of_address(const struct sockaddr *address, union ibv_gid *gid)
{
	memset(gid, 0, sizeof(*gid));
	if (address->sa_family == AF_INET) {
		gid->raw[10] = gid->raw[11] = 0xff;
		memcpy(&gid->raw[12], &((const struct sockaddr_in *)address)->sin_addr, 4);
		return true;
	}
	if (address->sa_family == AF_INET6) {
		memcpy(gid->raw, &((const struct sockaddr_in6 *)address)->sin6_addr, 16);
		return true;
	}
	return false;
}

static uint32_t table_add(struct ibv_gid_entry *table, uint32_t n, uint32_t max, const struct ifaddrs *i)
{
	union ibv_gid gid;

	if (n == max || !gid_of_address(i->ifa_addr, &gid)) {
		return n;
	}
	for (uint32_t k = 0; k < n; k++) {
		if (memcmp(table[k].gid.raw, gid.raw, sizeof(gid.raw)) == 0) {
			return n;
		}
	}
	table[n] = (struct ibv_gid_entry){.gid = gid,
					  .gid_index = n,
					  .port_num = 1,
					  .gid_type = IBV_GID_TYPE_ROCE_V2,
					  .ndev_ifindex = if_nametoindex(i->ifa_name)};
	return n + 1;
}

uint32_t sv_gid_table(struct ibv_gid_entry *table, uint32_t max)
{
	struct ifaddrs *all;
	uint32_t n = 0;

	if (getifaddrs(&all) < 0) {
		return 0;
	}
	/* The loopback addresses first, so that their indices never change. */
	for (int loopback = 1; loopback >= 0; loopback--) {
		for (struct ifaddrs *i = all; i != NULL; i = i->ifa_next) {
			if (i->ifa_addr != NULL && ((i->ifa_flags & IFF_LOOPBACK) != 0) == loopback) {
				n = table_add(table, n, max, i);
			}
		}
	}
	freeifaddrs(all);
	return n;
}

bool sv_gid_is_local(const union ibv_gid *gid)
{
	struct ibv_gid_entry table[SV_MAX_GIDS];
	uint32_t n;

	if (gid->raw[10] == 0xff && gid->raw[11] == 0xff && gid->raw[12] == 127) {
		return true; /* all of 127.0.0.0/8 */
	}
	n = sv_gid_table(table, SV_MAX_GIDS);
	for (uint32_t k = 0; k < n; k++) {
		if (memcmp(table[k].gid.raw, gid->raw, sizeof(gid->raw)) == 0) {
			return true;
		}
	}
	return false;
}

static int gid_query(uint32_t port, uint32_t index, struct ibv_gid_entry *entry)
{
	struct ibv_gid_entry table[SV_MAX_GIDS];

	if (port != 1 || index >= SV_MAX_GIDS) {
		return EINVAL;
	}
	if (index >= sv_gid_table(table, SV_MAX_GIDS)) {
		return ENODATA; /* an entry of the table that is empty */
	}
	*entry = table[index];
	return 0;
}

SV_EXPORT int ibv_query_gid(struct ibv_context *context, uint8_t port_num, int index, union ibv_gid *gid)
{
	struct ibv_gid_entry entry;
	int rc = gid_query(port_num, (uint32_t)index, &entry);

	memset(gid, 0, sizeof(*gid));
	if (rc == 0) {
		*gid = entry.gid;
	}
	if (rc == EINVAL) {
		errno = rc;
		return -1;
	}
	return 0; /* an empty entry reads as zeros */
}

SV_EXPORT int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port_num, uint32_t gid_index,
				struct ibv_gid_entry *entry, uint32_t flags, size_t entry_size)
{
	struct ibv_gid_entry e;
	int rc = flags != 0 ? EOPNOTSUPP : gid_query(port_num, gid_index, &e);

	if (rc == 0) {
		memcpy(entry, &e, entry_size < sizeof(e) ? entry_size : sizeof(e));
	}
	return rc;
}

SV_EXPORT ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries, size_t max_entries,
				       uint32_t flags, size_t entry_size)
{
	struct ibv_gid_entry table[SV_MAX_GIDS];
	uint32_t n = sv_gid_table(table, max_entries < SV_MAX_GIDS ? (uint32_t)max_entries : SV_MAX_GIDS);

	if (flags != 0) {
		return -EOPNOTSUPP;
	}
	for (uint32_t i = 0; i < n; i++) {
		memcpy((uint8_t *)entries + i * entry_size, &table[i],
		       entry_size < sizeof(table[i]) ? entry_size : sizeof(table[i]));
	}
	return n;
}

/* Not in the public headers; ibv_devinfo calls it. The values are those of an enumeration of its own. */
int ibv_query_gid_type(struct ibv_context *context, uint8_t port_num, unsigned int index, unsigned int *type);
SV_EXPORT int ibv_query_gid_type(struct ibv_context *context, uint8_t port_num, unsigned int index, unsigned int *type)
{
	enum { SYSFS_GID_TYPE_ROCE_V2 = 1 };

	*type = SYSFS_GID_TYPE_ROCE_V2;
	return 0;
}
