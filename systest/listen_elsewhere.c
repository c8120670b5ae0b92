/* SPDX-License-Identifier: BSD-3-Clause */
/* For a target that lists what is another one's: a library to preload, before the software RDMA device. Who is to
 * listen at port $VARVE_LISTED_PORT listens at $VARVE_LISTEN_PORT instead, and does not know. */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <rdma/rdma_cma.h>
#include <stdint.h>
#include <stdlib.h>

static uint16_t port_of(const char *variable)
{
	const char *text = getenv(variable);

	return text != NULL ? htons((uint16_t)atoi(text)) : 0;
}

int rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *address)
{
	int (*real)(struct rdma_cm_id *, struct sockaddr *) =
		(int (*)(struct rdma_cm_id *, struct sockaddr *))dlsym(RTLD_NEXT, "rdma_bind_addr");
	struct sockaddr_in elsewhere = *(const struct sockaddr_in *)address;

	if (real == NULL) {
		errno = ENOSYS;
		return -1;
	}
	if (elsewhere.sin_family != AF_INET || elsewhere.sin_port != port_of("VARVE_LISTED_PORT")) {
		return real(id, address);
	}
	elsewhere.sin_port = port_of("VARVE_LISTEN_PORT");
	return real(id, (struct sockaddr *)&elsewhere);
}
