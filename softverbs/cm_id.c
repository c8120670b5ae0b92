/* SPDX-License-Identifier: BSD-3-Clause */
/* Identifiers of the connection manager: their life, their addresses, their timers. */
#include <stdlib.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "softverbs/cm.h"

static pthread_mutex_t g_context_lock = PTHREAD_MUTEX_INITIALIZER;
static struct ibv_context *_Atomic g_context;
static struct ibv_pd *g_pd;
static TAILQ_HEAD(, sv_cm_id) g_ids = TAILQ_HEAD_INITIALIZER(g_ids);

struct ibv_context *sv_cm_context(void)
{
	struct ibv_context *context = atomic_load(&g_context);

	/* A context that exists can be returned with sv.lock held; opening one takes that lock. */
	if (context != NULL) {
		return context;
	}
	pthread_mutex_lock(&g_context_lock);
	context = atomic_load(&g_context);
	if (context == NULL) {
		context = sv_context_open();
		atomic_store(&g_context, context);
	}
	pthread_mutex_unlock(&g_context_lock);
	return context;
}

struct ibv_pd *sv_cm_default_pd(void)
{
	struct ibv_context *context = sv_cm_context();

	pthread_mutex_lock(&g_context_lock);
	if (g_pd == NULL && context != NULL) {
		g_pd = ibv_alloc_pd(context);
	}
	pthread_mutex_unlock(&g_context_lock);
	return g_pd;
}

SV_EXPORT struct ibv_context **rdma_get_devices(int *num_devices)
{
	struct ibv_context *context = sv_cm_context();
	struct ibv_context **list = context != NULL ? calloc(2, sizeof(*list)) : NULL;

	if (list != NULL) {
		list[0] = context;
	}
	if (num_devices != NULL) {
		*num_devices = list != NULL ? 1 : 0;
	}
	return list;
}

SV_EXPORT void rdma_free_devices(struct ibv_context **list)
{
	free(list);
}

struct sv_cm_id *sv_cm_id_new(struct rdma_event_channel *channel, void *context, enum rdma_port_space ps)
{
	struct sv_cm_id *id = calloc(1, sizeof(*id));

	if (id == NULL) {
		return NULL;
	}
	id->rdma.channel = channel;
	id->rdma.context = context;
	id->rdma.ps = ps;
	id->rdma.qp_type = IBV_QPT_RC;
	id->source.fd = -1;
	pthread_cond_init(&id->acked, NULL);
	if (getrandom(&id->psn, sizeof(id->psn), 0) < 0) {
		id->psn = (uint32_t)sv_now_ns();
	}
	id->psn &= 0xffffff;
	TAILQ_INSERT_TAIL(&g_ids, id, link);
	return id;
}

SV_EXPORT int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **out, void *context,
			     enum rdma_port_space ps)
{
	struct rdma_event_channel *own = NULL;
	struct sv_cm_id *id;

	if (ps != RDMA_PS_TCP && ps != RDMA_PS_IB) {
		errno = EOPNOTSUPP; /* no datagrams */
		return -1;
	}
	if (channel == NULL) {
		own = channel = rdma_create_event_channel();
		if (channel == NULL) {
			return -1;
		}
	}
	pthread_mutex_lock(&sv.lock);
	id = sv_cm_id_new(channel, context, ps);
	pthread_mutex_unlock(&sv.lock);
	if (id == NULL) {
		if (own != NULL) {
			rdma_destroy_event_channel(own);
		}
		return -1;
	}
	id->sync = own != NULL;
	*out = &id->rdma;
	return 0;
}

void sv_cm_id_free(struct sv_cm_id *id)
{
	struct sv_cm_id *other;

	TAILQ_REMOVE(&g_ids, id, link);
	sv_cm_forget_events(id);
	if (id->source.fd >= 0) {
		sv_source_remove(&id->source);
		close(id->source.fd);
	}
	/* Incoming connections whose REQ has not come yet. */
	if (id->state == CM_LISTEN) {
		struct sv_cm_id *next;

		for (other = TAILQ_FIRST(&g_ids); other != NULL; other = next) {
			next = TAILQ_NEXT(other, link);
			if (other->listener == id && other->state == CM_ACCEPTED) {
				sv_cm_id_free(other);
				next = TAILQ_FIRST(&g_ids);
			} else if (other->listener == id) {
				other->listener = NULL;
			}
		}
	}
	pthread_cond_destroy(&id->acked);
	free(id->rdma.route.path_rec);
	free(id->ep_qp_attr);
	free(id->request);
	free(id);
}

SV_EXPORT int rdma_destroy_id(struct rdma_cm_id *rdma)
{
	struct sv_cm_id *id = sv_cm_id(rdma);
	struct rdma_event_channel *own = id->sync ? rdma->channel : NULL;

	if (rdma->event != NULL) {
		rdma_ack_cm_event(rdma->event);
		rdma->event = NULL;
	}
	pthread_mutex_lock(&sv.lock);
	sv_cm_wait_acked(id);
	sv_cm_id_free(id);
	pthread_mutex_unlock(&sv.lock);
	if (own != NULL) {
		rdma_destroy_event_channel(own);
	}
	return 0;
}

uint64_t sv_cm_timers(void)
{
	uint64_t now = sv_now_ns(), next = UINT64_MAX;
	struct sv_cm_id *id;

	TAILQ_FOREACH (id, &g_ids, link) {
		if (id->deadline_ns != 0 && id->deadline_ns <= now) {
			id->deadline_ns = 0;
			sv_cm_expire(id);
		}
		if (id->deadline_ns != 0 && id->deadline_ns < next) {
			next = id->deadline_ns;
		}
	}
	return next;
}

int sv_cm_complete(struct sv_cm_id *id)
{
	struct rdma_cm_id *rdma = &id->rdma;

	if (!id->sync) {
		return 0;
	}
	if (rdma->event != NULL) {
		rdma_ack_cm_event(rdma->event);
		rdma->event = NULL;
	}
	if (rdma_get_cm_event(rdma->channel, &rdma->event) != 0) {
		return -1;
	}
	if (rdma->event->status != 0) {
		errno = rdma->event->event == RDMA_CM_EVENT_REJECTED ? ECONNREFUSED : abs(rdma->event->status);
		return -1;
	}
	return 0;
}

void sv_cm_bind_device(struct sv_cm_id *id)
{
	struct rdma_addr *a = &id->rdma.route.addr;

	id->rdma.verbs = sv_cm_context();
	id->rdma.port_num = 1;
	sv_cm_gid_of(&a->src_addr, &a->addr.ibaddr.sgid);
	if (a->dst_addr.sa_family != 0) {
		sv_cm_gid_of(&a->dst_addr, &a->addr.ibaddr.dgid);
	}
	a->addr.ibaddr.pkey = 0xffff;
}

static int bind_locked(struct sv_cm_id *id, const struct sockaddr *address)
{
	union ibv_gid gid;
	int rc;

	if (id->state != CM_IDLE || !sv_cm_address_ok(address)) {
		return EINVAL;
	}
	sv_cm_gid_of(address, &gid);
	if (!sv_cm_address_is_any(address) && !sv_gid_is_local(&gid)) {
		return EADDRNOTAVAIL;
	}
	memcpy(&id->rdma.route.addr.src_storage, address, sv_cm_address_length(address));
	rc = sv_cm_bind(id);
	if (rc != 0) {
		memset(&id->rdma.route.addr.src_storage, 0, sizeof(struct sockaddr_storage));
		return rc;
	}
	id->state = CM_BOUND;
	if (!sv_cm_address_is_any(address)) {
		sv_cm_bind_device(id);
	}
	return 0;
}

SV_EXPORT int rdma_bind_addr(struct rdma_cm_id *rdma, struct sockaddr *address)
{
	int rc;

	pthread_mutex_lock(&sv.lock);
	rc = bind_locked(sv_cm_id(rdma), address);
	pthread_mutex_unlock(&sv.lock);
	return sv_cm_result(rc);
}

SV_EXPORT int rdma_listen(struct rdma_cm_id *rdma, int backlog)
{
	const struct sockaddr_in any = {.sin_family = AF_INET};
	struct sv_cm_id *id = sv_cm_id(rdma);
	int rc = 0;

	pthread_mutex_lock(&sv.lock);
	if (id->state == CM_IDLE) {
		rc = bind_locked(id, (const struct sockaddr *)&any);
	}
	if (rc == 0 && id->state != CM_BOUND) {
		rc = EINVAL;
	}
	if (rc == 0 && listen(id->source.fd, 4096) < 0) {
		rc = errno;
	}
	if (rc == 0) {
		id->backlog = backlog > 0 && backlog < 1024 ? backlog : 1024;
		id->source.ready = sv_cm_accept_ready;
		rc = sv_source_add(&id->source, 1 /* EPOLLIN */);
	}
	if (rc == 0) {
		id->state = CM_LISTEN;
	}
	pthread_mutex_unlock(&sv.lock);
	return sv_cm_result(rc);
}

/* A wildcard destination is this host, as with sockets. */
static void dest_set(struct sv_cm_id *id, const struct sockaddr *dest)
{
	struct rdma_addr *a = &id->rdma.route.addr;

	memcpy(&a->dst_storage, dest, sv_cm_address_length(dest));
	if (sv_cm_address_is_any(dest)) {
		if (dest->sa_family == AF_INET) {
			a->dst_sin.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		} else {
			a->dst_sin6.sin6_addr = in6addr_loopback;
		}
	}
}

/* Traffic to a local address comes from that address. */
static int source_choose(struct sv_cm_id *id)
{
	struct rdma_addr *a = &id->rdma.route.addr;
	struct sockaddr_storage source;

	if (id->state == CM_BOUND) {
		if (sv_cm_address_is_any(&a->src_addr)) {
			uint16_t port = sv_cm_port(&a->src_addr);

			a->src_storage = a->dst_storage;
			sv_cm_set_port(&a->src_addr, port);
		}
		return 0;
	}
	source = a->dst_storage;
	sv_cm_set_port((struct sockaddr *)&source, 0);
	return bind_locked(id, (struct sockaddr *)&source);
}

static int resolve_addr_locked(struct sv_cm_id *id, const struct sockaddr *source, const struct sockaddr *dest)
{
	union ibv_gid gid;
	int rc = 0;

	if (!sv_cm_address_ok(dest) || (id->state != CM_IDLE && id->state != CM_BOUND)) {
		return EINVAL;
	}
	if (source != NULL && id->state == CM_IDLE && source->sa_family != 0) {
		rc = bind_locked(id, source);
	}
	if (rc != 0) {
		return rc;
	}
	dest_set(id, dest);
	sv_cm_gid_of(&id->rdma.route.addr.dst_addr, &gid);
	if (!sv_gid_is_local(&gid)) {
		/* Another host, to which there is no route. */
		sv_cm_raise(id, RDMA_CM_EVENT_ADDR_ERROR, -EHOSTUNREACH, NULL, 0, 0);
		return 0;
	}
	rc = source_choose(id);
	if (rc != 0) {
		return rc;
	}
	sv_cm_bind_device(id);
	id->state = CM_ADDR_RESOLVED;
	sv_cm_raise(id, RDMA_CM_EVENT_ADDR_RESOLVED, 0, NULL, 0, 0);
	return 0;
}

SV_EXPORT int rdma_resolve_addr(struct rdma_cm_id *rdma, struct sockaddr *source, struct sockaddr *dest, int timeout_ms)
{
	int rc;

	pthread_mutex_lock(&sv.lock);
	rc = resolve_addr_locked(sv_cm_id(rdma), source, dest);
	pthread_mutex_unlock(&sv.lock);
	return rc != 0 ? sv_cm_result(rc) : sv_cm_complete(sv_cm_id(rdma));
}

static int resolve_route_locked(struct sv_cm_id *id)
{
	struct rdma_route *route = &id->rdma.route;
	struct ibv_sa_path_rec *path;

	if (id->state != CM_ADDR_RESOLVED) {
		return EINVAL;
	}
	path = calloc(1, sizeof(*path));
	if (path == NULL) {
		return ENOMEM;
	}
	*path = (struct ibv_sa_path_rec){.dgid = route->addr.addr.ibaddr.dgid,
					 .sgid = route->addr.addr.ibaddr.sgid,
					 .hop_limit = 64,
					 .reversible = 1,
					 .numb_path = 1,
					 .pkey = 0xffff,
					 .mtu_selector = 2,
					 .mtu = IBV_MTU_4096,
					 .rate_selector = 2,
					 .rate = IBV_RATE_100_GBPS,
					 .packet_life_time_selector = 2,
					 .packet_life_time = 14};
	free(route->path_rec);
	route->path_rec = path;
	route->num_paths = 1;
	id->state = CM_ROUTE_RESOLVED;
	sv_cm_raise(id, RDMA_CM_EVENT_ROUTE_RESOLVED, 0, NULL, 0, 0);
	return 0;
}

SV_EXPORT int rdma_resolve_route(struct rdma_cm_id *rdma, int timeout_ms)
{
	int rc;

	pthread_mutex_lock(&sv.lock);
	rc = resolve_route_locked(sv_cm_id(rdma));
	pthread_mutex_unlock(&sv.lock);
	return rc != 0 ? sv_cm_result(rc) : sv_cm_complete(sv_cm_id(rdma));
}

SV_EXPORT __be16 rdma_get_src_port(struct rdma_cm_id *id)
{
	return sv_cm_port(&id->route.addr.src_addr);
}

SV_EXPORT __be16 rdma_get_dst_port(struct rdma_cm_id *id)
{
	return sv_cm_port(&id->route.addr.dst_addr);
}

/* Most options are about packets, which softverbs does not have: they are checked and otherwise ignored. */
SV_EXPORT int rdma_set_option(struct rdma_cm_id *rdma, int level, int optname, void *optval, size_t optlen)
{
	static const size_t sizes[] = {[RDMA_OPTION_ID_TOS] = sizeof(uint8_t),
				       [RDMA_OPTION_ID_REUSEADDR] = sizeof(int),
				       [RDMA_OPTION_ID_AFONLY] = sizeof(int),
				       [RDMA_OPTION_ID_ACK_TIMEOUT] = sizeof(uint8_t)};
	struct sv_cm_id *id = sv_cm_id(rdma);
	int rc = 0;

	if (level != RDMA_OPTION_ID || optname < 0 || (size_t)optname >= ARRAY_SIZE(sizes)) {
		return sv_cm_result(ENOSYS);
	}
	if (optlen != sizes[optname] || optval == NULL) {
		return sv_cm_result(EINVAL);
	}
	pthread_mutex_lock(&sv.lock);
	if (optname == RDMA_OPTION_ID_REUSEADDR) {
		id->reuseaddr = *(int *)optval != 0;
	} else if (optname == RDMA_OPTION_ID_AFONLY) {
		rc = id->state == CM_IDLE ? 0 : EINVAL;
		id->afonly = rc == 0 ? *(int *)optval != 0 : id->afonly;
	}
	pthread_mutex_unlock(&sv.lock);
	return sv_cm_result(rc);
}
