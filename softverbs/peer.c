/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Links to other processes. A process that sends to a queue pair of another process connects to that process's socket,
 * and gets its arena and its kick descriptor, and later descriptors of completion channels. The link stays open; its
 * end means that the other process has died. All functions run on the control thread.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "softverbs/softverbs.h"
#include "softverbs/wire.h"

struct sv_peer_channel {
	LIST_ENTRY(sv_peer_channel) link;
	uint32_t id;
	int fd; /* -1: asked for */
	_Atomic uint32_t users;
};

enum peer_state {
	PEER_HELLO, /* waiting for the answer */
	PEER_UP,
	PEER_REFUSED, /* cannot be used; attaching fails as if there were no such process */
};

struct sv_peer {
	struct sv_source source;
	enum peer_state state;
	uint32_t slot;
	pid_t pid;
	struct sv_arena *arena;
	uint64_t arena_size;
	int kick_fd;
	LIST_HEAD(, sv_peer_channel) channels;
	/* Added to by the control thread; read under the lock of a queue pair that is attached to the peer. */
	_Atomic(struct sv_mapping *) mappings;
	_Atomic uint32_t num_mappings;
	_Atomic uint64_t mapping_wanted; /* one at a time; 0: none */
	bool mapping_asked;
};

/* A process that connected to us. */
struct guest {
	struct sv_source source;
	LIST_ENTRY(guest) link;
};
static LIST_HEAD(, guest) g_guests = LIST_HEAD_INITIALIZER(g_guests);

static struct sv_peer *g_peers[SV_MAX_SLOTS];
static struct sv_peer g_self;
static _Atomic bool g_sweep;
static _Atomic bool g_mapping_wanted;

/* A word of private memory, which a peer reads to find out whether it may read our memory. */
static const uint64_t g_probe = SV_ARENA_MAGIC;

static bool same_user(int fd, pid_t *pid)
{
	struct ucred cred;
	socklen_t size = sizeof(cred);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &size) < 0 || cred.uid != geteuid()) {
		return false;
	}
	*pid = cred.pid;
	return true;
}

/* ---- Guests: processes that connected to us ---- */

static void guest_close(struct guest *g)
{
	LIST_REMOVE(g, link);
	sv_source_remove(&g->source);
	close(g->source.fd);
	free(g);
}

void sv_peer_tell_forget(uint64_t map)
{
	struct sv_link_msg m = {.magic = SV_ARENA_MAGIC, .type = SV_LINK_FORGET, .slot = sv.slot, .map = map};
	struct guest *g;

	/* A guest that does not receive the message keeps useless pages mapped, which does no harm. */
	LIST_FOREACH (g, &g_guests, link) {
		sv_wire_send(g->source.fd, &m, sizeof(m), NULL, 0);
	}
}

static int guest_answer(struct guest *g, const struct sv_link_msg *m)
{
	struct sv_link_msg reply = {.magic = SV_ARENA_MAGIC, .type = m->type, .slot = sv.slot, .id = m->id};
	int fds[2] = {sv.arena_fd, sv.kick_fd}, fd, rc;

	switch (m->type) {
	case SV_LINK_HELLO:
		reply.arena_size = sv.arena_size;
		reply.probe = (uintptr_t)&g_probe;
		return sv_wire_send(g->source.fd, &reply, sizeof(reply), fds, 2);
	case SV_LINK_CHANNEL:
		fd = sv_channel_fd_by_id(m->id);
		rc = sv_wire_send(g->source.fd, &reply, sizeof(reply), &fd, fd >= 0 ? 1 : 0);
		if (fd >= 0) {
			close(fd);
		}
		return rc;
	case SV_LINK_MEMORY:
		reply.map = m->map;
		fd = sv_shared_fd(m->map, &reply.map_addr, &reply.map_length, &reply.map_offset);
		rc = sv_wire_send(g->source.fd, &reply, sizeof(reply), &fd, fd >= 0 ? 1 : 0);
		if (fd >= 0) {
			close(fd);
		}
		return rc;
	default:
		return EPROTO;
	}
}

static void guest_ready(struct sv_source *source, uint32_t events)
{
	struct guest *g = (struct guest *)source;
	struct sv_link_msg m;
	int fds[SV_WIRE_MAX_FDS], num_fds;
	ssize_t n = sv_wire_receive(source->fd, &m, sizeof(m), fds, &num_fds);

	sv_wire_close_fds(fds, num_fds);
	if (n < 0 && errno == EAGAIN) {
		return;
	}
	if (n <= 0 || !sv_link_msg_ok(&m, (size_t)n) || guest_answer(g, &m) != 0) {
		guest_close(g);
	}
}

void sv_peer_listen_ready(struct sv_source *source, uint32_t events)
{
	int fd;

	while ((fd = accept4(source->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0) {
		struct guest *g = calloc(1, sizeof(*g));
		pid_t pid;

		if (g == NULL || !same_user(fd, &pid)) {
			free(g);
			close(fd);
			continue;
		}
		g->source = (struct sv_source){.fd = fd, .ready = guest_ready};
		if (sv_source_add(&g->source, EPOLLIN) != 0) {
			free(g);
			close(fd);
			continue;
		}
		LIST_INSERT_HEAD(&g_guests, g, link);
	}
}

/* ---- Peers: processes that we connected to ---- */

static void channel_free(struct sv_peer_channel *c)
{
	LIST_REMOVE(c, link);
	if (c->fd >= 0) {
		close(c->fd);
	}
	free(c);
}

/*
 * The process of the connected queue pair has ended. If it had destroyed its queue pair before, nothing happens, as
 * with a real device: programs end with receives posted, and do not expect that these are flushed if the other side
 * ended first. If it died with the connection in use, the work that can never complete is flushed.
 */
static void qp_lost_peer(struct sv_qp *qp)
{
	uint32_t state = atomic_load(&qp->rem.qp->state);
	bool in_use = atomic_load(&qp->rem.qp->gen) == qp->rem.gen && state != IBV_QPS_RESET && state != IBV_QPS_ERR;

	sv_peer_detach(qp);
	qp->peer_died = true;
	if (!in_use) {
		sv_send_progress(qp);
		return;
	}
	sv_qp_fail(qp, IBV_WC_RETRY_EXC_ERR);
	/* It may have died between taking our request for an event and sending it. */
	sv_cq_wake(sv_cq(qp->ex.qp_base.recv_cq));
}

/* The peer's process has ended; ends all connections to it. */
static void peer_down(struct sv_peer *peer)
{
	struct sv_peer_channel *c;

	sv_source_remove(&peer->source);
	close(peer->source.fd);
	g_peers[peer->slot] = NULL;
	pthread_mutex_lock(&sv.table_lock);
	for (uint32_t i = 0; i < SV_MAX_QP; i++) {
		struct sv_qp *qp = sv.qp[i];

		if (qp == NULL) {
			continue;
		}
		pthread_mutex_lock(&qp->lock);
		if (qp->rem.peer == peer) {
			qp_lost_peer(qp);
		}
		pthread_mutex_unlock(&qp->lock);
	}
	pthread_mutex_unlock(&sv.table_lock);
	while ((c = LIST_FIRST(&peer->channels)) != NULL) {
		channel_free(c);
	}
	for (struct sv_mapping *m = atomic_load(&peer->mappings), *next; m != NULL; m = next) {
		next = atomic_load(&m->next);
		sv_mapping_free(m);
	}
	if (peer->arena != NULL) {
		munmap(peer->arena, peer->arena_size);
	}
	if (peer->kick_fd >= 0) {
		close(peer->kick_fd);
	}
	free(peer);
}

/* Whether we may read the peer's memory. */
static bool probe_memory(const struct sv_peer *peer, uint64_t address)
{
	uint64_t word = 0;
	struct iovec to = {&word, sizeof(word)}, from = {(void *)(uintptr_t)address, sizeof(word)};

	if (process_vm_readv(peer->pid, &to, 1, &from, 1, 0) == sizeof(word) && word == SV_ARENA_MAGIC) {
		return true;
	}
	if (errno == ESRCH) {
		return false; /* it has just ended */
	}
	sv_warn("cannot reach the memory of process %d: process_vm_readv: %s. Needed is the right to trace "
		"processes of "
		"one's own user: kernel.yama.ptrace_scope 0 or 1, no seccomp filter against it, a dumpable "
		"process, and "
		"a common PID namespace",
		peer->pid, strerror(errno));
	return false;
}

static bool map_arena(struct sv_peer *peer, int fd, uint64_t size)
{
	struct stat st;

	if (fstat(fd, &st) < 0 || size < SV_HEAP_OFFSET || (uint64_t)st.st_size != size ||
	    (fcntl(fd, F_GET_SEALS) & F_SEAL_SHRINK) == 0) {
		return false;
	}
	peer->arena = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
	if (peer->arena == MAP_FAILED) {
		peer->arena = NULL;
		return false;
	}
	madvise(peer->arena, size, MADV_DONTDUMP); /* as our own: see sv_arena_create() */
	peer->arena_size = size;
	return peer->arena->magic == SV_ARENA_MAGIC && peer->arena->version == SV_ARENA_VERSION;
}

static void peer_hello(struct sv_peer *peer, const struct sv_link_msg *m, int *fds, int num_fds)
{
	peer->state = PEER_REFUSED;
	if (num_fds != 2 || !map_arena(peer, fds[0], m->arena_size)) {
		sv_warn("process %d sent no usable arena", peer->pid);
		return;
	}
	peer->kick_fd = fds[1];
	fds[1] = -1;
	if (probe_memory(peer, m->probe)) {
		peer->state = PEER_UP;
	}
}

static void peer_channel(struct sv_peer *peer, const struct sv_link_msg *m, int *fds, int num_fds)
{
	struct sv_peer_channel *c;

	LIST_FOREACH (c, &peer->channels, link) {
		if (c->id == m->id && c->fd < 0 && num_fds == 1) {
			c->fd = fds[0];
			fds[0] = -1;
			atomic_store(&g_sweep, true); /* the queue pair that it was asked for may have gone */
			return;
		}
	}
}

/* The answer to a request for a mapping. There is no second request: memory that cannot be mapped is reached by system
 * calls. */
static void peer_memory(struct sv_peer *peer, const struct sv_link_msg *m, const int *fds, int num_fds)
{
	struct sv_mapping *made;

	if (!peer->mapping_asked || m->map != atomic_load(&peer->mapping_wanted)) {
		return;
	}
	made = sv_mapping_make(num_fds == 1 ? fds[0] : -1, m->map, m->map_addr, m->map_length, m->map_offset);
	if (made == NULL) {
		return;
	}
	atomic_store(&made->next, atomic_load(&peer->mappings));
	atomic_store(&peer->mappings, made); /* published: pairs with find_mapping() */
	atomic_fetch_add(&peer->num_mappings, 1);
	peer->mapping_asked = false;
	atomic_store(&peer->mapping_wanted, 0);
}

/* Makes sure that no queue pair uses a mapping any more; they find it under their locks. */
static void leave_mapping(const struct sv_peer *peer, const struct sv_mapping *mapping)
{
	pthread_mutex_lock(&sv.table_lock);
	for (uint32_t i = 0; i < SV_MAX_QP; i++) {
		struct sv_qp *qp = sv.qp[i];

		if (qp == NULL) {
			continue;
		}
		pthread_mutex_lock(&qp->lock);
		if (qp->rem.peer == peer && qp->rem.mapping == mapping) {
			qp->rem.mapping = NULL;
		}
		pthread_mutex_unlock(&qp->lock);
	}
	pthread_mutex_unlock(&sv.table_lock);
}

static void peer_forget(struct sv_peer *peer, uint64_t id)
{
	struct sv_mapping *m = atomic_load(&peer->mappings), *before = NULL;

	while (m != NULL && m->id != id) {
		before = m;
		m = atomic_load(&m->next);
	}
	if (m == NULL) {
		return;
	}
	if (before != NULL) {
		atomic_store(&before->next, atomic_load(&m->next));
	} else {
		atomic_store(&peer->mappings, atomic_load(&m->next));
	}
	leave_mapping(peer, m);
	sv_mapping_free(m);
	atomic_fetch_sub(&peer->num_mappings, 1);
}

static void peer_source_ready(struct sv_source *source, uint32_t events)
{
	struct sv_peer *peer = (struct sv_peer *)source;
	struct sv_link_msg m;
	int fds[SV_WIRE_MAX_FDS], num_fds;
	ssize_t n = sv_wire_receive(source->fd, &m, sizeof(m), fds, &num_fds);

	if (n < 0 && errno == EAGAIN) {
		return;
	}
	if (n <= 0 || !sv_link_msg_ok(&m, (size_t)n)) {
		sv_wire_close_fds(fds, num_fds);
		peer_down(peer);
		return;
	}
	if (m.type == SV_LINK_HELLO && peer->state == PEER_HELLO) {
		peer_hello(peer, &m, fds, num_fds);
	} else if (m.type == SV_LINK_CHANNEL && peer->state == PEER_UP) {
		peer_channel(peer, &m, fds, num_fds);
	} else if (m.type == SV_LINK_MEMORY && peer->state == PEER_UP) {
		peer_memory(peer, &m, fds, num_fds);
	} else if (m.type == SV_LINK_FORGET) {
		peer_forget(peer, m.map);
	}
	sv_wire_close_fds(fds, num_fds);
	/* Queue pairs that wait for this attach next, since the control thread looks at all after every event. */
}

static int link_connect(uint32_t slot)
{
	struct sockaddr_storage address;
	socklen_t length = sv_socket_name(&address, "p%u", slot);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd >= 0 && connect(fd, (struct sockaddr *)&address, length) < 0) {
		int error = errno;

		close(fd);
		errno = error;
		fd = -1;
	}
	return fd;
}

bool sv_slot_alive(uint32_t slot)
{
	int fd;

	if (slot == sv.slot) {
		return true;
	}
	fd = link_connect(slot);
	if (fd >= 0) {
		close(fd);
		return true;
	}
	return errno != ECONNREFUSED; /* a full backlog is a sign of life */
}

static struct sv_peer *peer_get(uint32_t slot)
{
	struct sv_link_msg hello = {.magic = SV_ARENA_MAGIC, .type = SV_LINK_HELLO, .slot = sv.slot};
	struct sv_peer *peer;
	int fd;

	if (slot == sv.slot) {
		if (g_self.state != PEER_UP) {
			g_self = (struct sv_peer){.state = PEER_UP,
						  .slot = slot,
						  .pid = getpid(),
						  .arena = sv.arena,
						  .arena_size = sv.arena_size,
						  .kick_fd = sv.kick_fd};
		}
		return &g_self;
	}
	if (g_peers[slot] != NULL) {
		return g_peers[slot];
	}
	fd = link_connect(slot);
	if (fd < 0) {
		return NULL;
	}
	peer = calloc(1, sizeof(*peer));
	if (peer == NULL || !same_user(fd, &peer->pid) || sv_wire_send(fd, &hello, sizeof(hello), NULL, 0) != 0) {
		free(peer);
		close(fd);
		return NULL;
	}
	peer->slot = slot;
	peer->kick_fd = -1;
	peer->source = (struct sv_source){.fd = fd, .ready = peer_source_ready};
	if (sv_source_add(&peer->source, EPOLLIN) != 0) {
		free(peer);
		close(fd);
		return NULL;
	}
	g_peers[slot] = peer;
	return peer;
}

/* The descriptor of a peer's channel: NULL while it is on its way. */
static struct sv_peer_channel *channel_get(struct sv_peer *peer, uint32_t id)
{
	struct sv_link_msg ask = {.magic = SV_ARENA_MAGIC, .type = SV_LINK_CHANNEL, .slot = sv.slot, .id = id};
	struct sv_peer_channel *c;

	LIST_FOREACH (c, &peer->channels, link) {
		if (c->id == id) {
			return c->fd >= 0 ? c : NULL;
		}
	}
	c = calloc(1, sizeof(*c));
	if (c == NULL) {
		return NULL;
	}
	c->id = id;
	c->fd = -1;
	if (peer == &g_self) {
		c->fd = sv_channel_fd_by_id(id);
	} else if (sv_wire_send(peer->source.fd, &ask, sizeof(ask), NULL, 0) != 0) {
		free(c);
		return NULL;
	}
	LIST_INSERT_HEAD(&peer->channels, c, link);
	return c->fd >= 0 ? c : NULL;
}

/* A ring as a peer describes it: every slot of it must lie in its arena. */
static bool ring_ok(const struct sv_peer *peer, uint64_t offset, uint32_t size, uint32_t stride, uint32_t max_sge)
{
	return size != 0 && (size & (size - 1)) == 0 && size <= SV_MAX_WR && max_sge <= SV_MAX_SGE &&
	       stride % 64 == 0 && stride >= sv_ring_stage_off(max_sge) &&
	       sv_heap_contains(peer->arena_size, offset, (uint64_t)size * stride);
}

static bool remote_rings(const struct sv_peer *peer, const struct sv_qp_shm *qp, struct sv_remote *rem)
{
	uint32_t size = qp->rq_size, stride = qp->rq_stride, max_sge = qp->rq_max_sge, rcq_size = qp->rcq_size;
	uint64_t off = qp->rq_off, rcq_off = qp->rcq_off;

	if (!ring_ok(peer, off, size, stride, max_sge) || rcq_size == 0 || (rcq_size & (rcq_size - 1)) != 0 ||
	    !sv_heap_contains(peer->arena_size, rcq_off, (uint64_t)rcq_size * sizeof(*rem->rcq))) {
		return false;
	}
	rem->ring = (struct sv_ring){(uint8_t *)peer->arena + off, size, stride, max_sge};
	rem->rcq = (struct sv_rcqe *)((uint8_t *)peer->arena + rcq_off);
	rem->rcq_size = rcq_size;
	return true;
}

static bool remote_srq(const struct sv_peer *peer, uint32_t index, struct sv_remote *rem)
{
	struct sv_srq_shm *srq = &peer->arena->srq[index];
	uint32_t size, stride, max_sge;
	uint64_t off, order_off;

	rem->srq_gen = atomic_load(&srq->gen);
	size = srq->size;
	stride = srq->stride;
	max_sge = srq->max_sge;
	off = srq->slots_off;
	order_off = srq->order_off;
	if ((rem->srq_gen & 1) == 0 || !ring_ok(peer, off, size, stride, max_sge) ||
	    !sv_heap_contains(peer->arena_size, order_off, (uint64_t)size * sizeof(*rem->order))) {
		return false;
	}
	rem->srq = srq;
	rem->ring = (struct sv_ring){(uint8_t *)peer->arena + off, size, stride, max_sge};
	rem->order = (_Atomic uint32_t *)((uint8_t *)peer->arena + order_off);
	rem->pd = srq->pd;
	return true;
}

/* Reads and checks the fields of the peer's queue pair. */
static bool remote_fill(struct sv_peer *peer, uint32_t qpn, struct sv_remote *rem)
{
	struct sv_qp_shm *qp = &peer->arena->qp[SV_QPN_INDEX(qpn)];
	uint32_t cq, srq;

	*rem = (struct sv_remote){
		.arena = peer->arena, .qp = qp, .qpn = qpn, .channel_fd = -1, .kick_fd = peer->kick_fd};
	rem->gen = atomic_load(&qp->gen);
	if ((rem->gen & 1) == 0) {
		return false;
	}
	rem->busy = atomic_load(&qp->busy) & ~1ull;
	rem->pid = peer->pid;
	rem->self = peer == &g_self;
	rem->keys = rem->self ? sv.keys : peer->arena->mr;
	rem->qp_pd = rem->pd = qp->pd;
	cq = qp->cq;
	srq = qp->srq;
	if (cq >= SV_MAX_CQ || srq > SV_MAX_SRQ || qp->cq_bit >= SV_CQ_BUCKETS || !remote_rings(peer, qp, rem) ||
	    (srq != 0 && !remote_srq(peer, srq - 1, rem))) {
		return false;
	}
	rem->cq = &peer->arena->cq[cq];
	rem->cq_bit = 1ull << qp->cq_bit;
	return atomic_load(&qp->gen) == rem->gen;
}

bool sv_peer_try_attach(struct sv_qp *qp)
{
	const struct ibv_ah_attr *ah = &qp->attr.ah_attr;
	uint32_t qpn = qp->attr.dest_qp_num, channel;
	struct sv_peer_channel *c = NULL;
	struct sv_remote rem;
	struct sv_peer *peer;

	if (ah->is_global != 0 && !sv_gid_is_local(&ah->grh.dgid)) {
		qp->want_attach = false; /* another host, which will never answer */
		return true;
	}
	peer = peer_get(SV_QPN_SLOT(qpn));
	if (peer == NULL || peer->state == PEER_REFUSED) {
		return true;
	}
	if (peer->state == PEER_HELLO) {
		return false;
	}
	if (!remote_fill(peer, qpn, &rem)) {
		return true;
	}
	channel = atomic_load(&rem.cq->channel);
	if (channel != 0) {
		c = channel_get(peer, channel);
		if (c == NULL) {
			return false;
		}
		atomic_fetch_add(&c->users, 1);
		rem.channel = c;
		rem.channel_fd = c->fd;
	}
	rem.peer = peer;
	qp->rem = rem;
	qp->want_attach = false;
	return true;
}

void sv_peer_detach(struct sv_qp *qp)
{
	if (qp->rem.channel != NULL && atomic_fetch_sub(&qp->rem.channel->users, 1) == 1) {
		atomic_store(&g_sweep, true);
	}
	qp->rem = (struct sv_remote){.channel_fd = -1};
}

static const struct sv_mapping *find_mapping(const struct sv_peer *peer, uint64_t id)
{
	const struct sv_mapping *m = atomic_load(&peer->mappings);

	while (m != NULL && m->id != id) {
		m = atomic_load(&m->next);
	}
	return m;
}

/* Has the control thread ask the peer for a mapping. Until it has come, and for mappings beyond the limit, transfers
 * use system calls. */
static void want_mapping(struct sv_peer *peer, uint64_t id)
{
	uint64_t none = 0;

	if (atomic_load(&peer->num_mappings) < SV_MAX_MAPPINGS &&
	    atomic_compare_exchange_strong(&peer->mapping_wanted, &none, id)) {
		atomic_store(&g_mapping_wanted, true);
		sv_kick_self();
	}
}

void *sv_peer_mapped(struct sv_remote *rem, const struct sv_span *span)
{
	const struct sv_mapping *m = rem->mapping;

	if (m == NULL || m->id != span->map) {
		m = find_mapping(rem->peer, span->map);
		if (m == NULL) {
			want_mapping(rem->peer, span->map);
			return NULL;
		}
		rem->mapping = m;
	}
	/* Check that the span lies in the mapping, which the peer only claims. */
	if (m->base == NULL || span->addr < m->addr || span->addr - m->addr > m->length ||
	    span->length > m->length - (span->addr - m->addr)) {
		return NULL;
	}
	return m->base + (span->addr - m->addr);
}

static void ask_for_mappings(void)
{
	struct sv_link_msg ask = {.magic = SV_ARENA_MAGIC, .type = SV_LINK_MEMORY, .slot = sv.slot};

	for (uint32_t i = 0; i < SV_MAX_SLOTS; i++) {
		struct sv_peer *peer = g_peers[i];

		if (peer == NULL || peer->state != PEER_UP || peer->mapping_asked) {
			continue;
		}
		ask.map = atomic_load(&peer->mapping_wanted);
		if (ask.map != 0) {
			peer->mapping_asked = sv_wire_send(peer->source.fd, &ask, sizeof(ask), NULL, 0) == 0;
		}
	}
}

static void sweep_peer(struct sv_peer *peer)
{
	struct sv_peer_channel *c, *next;

	for (c = LIST_FIRST(&peer->channels); c != NULL; c = next) {
		next = LIST_NEXT(c, link);
		if (c->fd >= 0 && atomic_load(&c->users) == 0) {
			channel_free(c);
		}
	}
}

void sv_peer_sweep(void)
{
	sv_shared_tell();
	if (atomic_exchange(&g_mapping_wanted, false)) {
		ask_for_mappings();
	}
	if (!atomic_exchange(&g_sweep, false)) {
		return;
	}
	sweep_peer(&g_self);
	for (uint32_t i = 0; i < SV_MAX_SLOTS; i++) {
		if (g_peers[i] != NULL) {
			sweep_peer(g_peers[i]);
		}
	}
}

void sv_peer_kick_all(void)
{
	for (uint32_t i = 0; i < SV_MAX_SLOTS; i++) {
		if (g_peers[i] != NULL && g_peers[i]->state == PEER_UP) {
			sv_kick(g_peers[i]->kick_fd);
		}
	}
}
