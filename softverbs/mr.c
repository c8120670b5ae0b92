/* SPDX-License-Identifier: BSD-3-Clause */
/* Protection domains, memory regions and memory windows, and the table of their keys. */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "softverbs/softverbs.h"

#define REMOTE_CHANGES (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)
#define REGION_ACCESS                                                                                                  \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |        \
	 IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED | IBV_ACCESS_HUGETLB | IBV_ACCESS_OPTIONAL_RANGE)

static _Atomic uint32_t g_next_pd = 1;

/* Of each table entry: its last generation, and whether it is in use. Under sv.mr_lock. */
static uint8_t g_generation[SV_MAX_MR];
static bool g_used[SV_MAX_MR];
static uint32_t g_next_index = 1;

SV_EXPORT struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	struct sv_pd *pd = calloc(1, sizeof(*pd));

	if (pd != NULL) {
		pd->ibv.context = context;
		pd->ibv.handle = atomic_fetch_add(&g_next_pd, 1);
		atomic_fetch_add(&sv_context(context)->objects, 1);
	}
	return pd != NULL ? &pd->ibv : NULL;
}

SV_EXPORT int ibv_dealloc_pd(struct ibv_pd *ibv)
{
	struct sv_pd *pd = (struct sv_pd *)ibv;

	if (atomic_load(&pd->users) != 0) {
		return EBUSY;
	}
	atomic_fetch_sub(&sv_context(ibv->context)->objects, 1);
	free(pd);
	return 0;
}

/* Returns the index of a table entry, 0: the table is full. */
static uint32_t key_alloc(void)
{
	uint32_t found = 0;

	pthread_mutex_lock(&sv.mr_lock);
	for (uint32_t i = 0; i < SV_MAX_MR && found == 0; i++) {
		uint32_t index = (g_next_index + i) % SV_MAX_MR;

		if (index != 0 && !g_used[index]) {
			found = index;
			g_used[index] = true;
			g_next_index = index + 1;
		}
	}
	pthread_mutex_unlock(&sv.mr_lock);
	return found;
}

static void mr_key_free(uint32_t index)
{
	pthread_mutex_lock(&sv.mr_lock);
	g_used[index] = false;
	pthread_mutex_unlock(&sv.mr_lock);
}

static uint32_t key_next(uint32_t index)
{
	return index << 8 | ++g_generation[index];
}

struct key_entry {
	enum sv_mr_kind kind;
	uint32_t pd;
	uint32_t access;
	uint32_t qpn;
	uint64_t iova;
	uint64_t addr;
	uint64_t length;
	uint64_t map;
};

static void key_store(struct sv_mr_shm *shm, uint32_t key, const struct key_entry *e)
{
	atomic_store_explicit(&shm->kind, e->kind, memory_order_relaxed);
	atomic_store_explicit(&shm->pd, e->pd, memory_order_relaxed);
	atomic_store_explicit(&shm->access, e->access, memory_order_relaxed);
	atomic_store_explicit(&shm->qpn, e->qpn, memory_order_relaxed);
	atomic_store_explicit(&shm->iova, e->iova, memory_order_relaxed);
	atomic_store_explicit(&shm->addr, e->addr, memory_order_relaxed);
	atomic_store_explicit(&shm->length, e->length, memory_order_relaxed);
	atomic_store_explicit(&shm->map, e->map, memory_order_relaxed);
	atomic_store_explicit(&shm->key, key, memory_order_release); /* pairs with sv_key_check() */
}

/* Writes an entry into the table that peers see, and into our private one, which is the only one that we trust. */
static void key_publish(uint32_t key, const struct key_entry *e)
{
	key_store(&sv.keys[SV_KEY_INDEX(key)], key, e);
	key_store(&sv.arena->mr[SV_KEY_INDEX(key)], key, e);
}

/*
 * Invalidates a key, and waits until no peer can be using it any more: peers read keys only in busy sections of our
 * queue pairs. False: a peer is stopped in the middle of a transfer, and the memory must stay registered.
 */
static bool key_withdraw(uint32_t index)
{
	uint32_t end = atomic_load(&sv.qp_end);
	bool idle = true;

	atomic_store(&sv.keys[index].key, 0);
	atomic_store(&sv.arena->mr[index].key, 0);
	for (uint32_t i = 0; i < end && idle; i++) {
		idle = sv_qp_quiesce(i);
	}
	return idle;
}

bool sv_key_check(const struct sv_mr_shm *table, uint32_t key, uint32_t pd, uint32_t qpn, uint32_t access,
		  uint64_t addr, uint64_t length, struct sv_span *where)
{
	const struct sv_mr_shm *shm;
	uint64_t iova, size, base;
	uint32_t bound;

	if (key == 0 || SV_KEY_INDEX(key) >= SV_MAX_MR) {
		return false;
	}
	shm = &table[SV_KEY_INDEX(key)];
	/* Sequentially consistent with the store to busy before, on which key_withdraw() relies. */
	if (atomic_load(&shm->key) != key || atomic_load_explicit(&shm->pd, memory_order_relaxed) != pd ||
	    (atomic_load_explicit(&shm->access, memory_order_relaxed) & access) != access) {
		return false;
	}
	bound = atomic_load_explicit(&shm->qpn, memory_order_relaxed);
	if (bound != 0 && bound != qpn) {
		return false;
	}
	iova = atomic_load_explicit(&shm->iova, memory_order_relaxed);
	size = atomic_load_explicit(&shm->length, memory_order_relaxed);
	base = atomic_load_explicit(&shm->addr, memory_order_relaxed);
	if (addr < iova || addr - iova > size || length > size - (addr - iova)) {
		return false;
	}
	*where = (struct sv_span){base + (addr - iova), length, atomic_load_explicit(&shm->map, memory_order_relaxed)};
	return true;
}

/* A real device pins the pages, so it refuses memory that is not mapped. */
static bool is_mapped(const void *addr, size_t length)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t at = (uintptr_t)addr & ~(page - 1), end = (uintptr_t)addr + length;
	unsigned char residence[4096];

	while (at < end) {
		size_t span = end - at < page * sizeof(residence) ? end - at : page * sizeof(residence);

		if (mincore((void *)at, span, residence) < 0 && errno == ENOMEM) {
			return false;
		}
		at += page * sizeof(residence);
	}
	return true;
}

static int region_check(const void *addr, size_t length, unsigned int access)
{
	if ((access & IBV_ACCESS_ON_DEMAND) != 0) {
		return EOPNOTSUPP;
	}
	if ((access & ~(unsigned)REGION_ACCESS) != 0 || length == 0 || (uintptr_t)addr + length < (uintptr_t)addr) {
		return EINVAL;
	}
	/* InfiniBand 10.6.3.1: a peer may change only what the owner may. */
	if ((access & REMOTE_CHANGES) != 0 && (access & IBV_ACCESS_LOCAL_WRITE) == 0) {
		return EINVAL;
	}
	return is_mapped(addr, length) ? 0 : EFAULT;
}

/* Windows that the peer has invalidated are still on the list, but do not count. */
static bool region_has_windows(struct sv_mr *mr)
{
	struct sv_mw *mw, *next;
	bool bound = false;

	pthread_mutex_lock(&sv.mr_lock);
	for (mw = LIST_FIRST(&mr->windows); mw != NULL; mw = next) {
		next = LIST_NEXT(mw, on_region);
		if (atomic_load(&sv.arena->mr[mw->ibv.handle].key) != 0) {
			bound = true;
		} else {
			LIST_REMOVE(mw, on_region);
			mw->mr = NULL;
		}
	}
	pthread_mutex_unlock(&sv.mr_lock);
	return bound;
}

static void region_publish(struct sv_mr *mr)
{
	key_publish(mr->ibv.lkey, &(struct key_entry){.kind = SV_MR_REGION,
						      .pd = mr->ibv.pd->handle,
						      .access = mr->access,
						      .iova = mr->iova,
						      .addr = (uintptr_t)mr->ibv.addr,
						      .length = mr->ibv.length,
						      .map = mr->map});
}

SV_EXPORT struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
					  unsigned int access)
{
	int rc = region_check(addr, length, access);
	struct sv_mr *mr = rc == 0 ? calloc(1, sizeof(*mr)) : NULL;
	uint32_t index;

	if (rc != 0 || mr == NULL) {
		errno = rc != 0 ? rc : ENOMEM;
		return NULL;
	}
	index = key_alloc();
	if (index == 0) {
		free(mr);
		errno = ENOMEM;
		return NULL;
	}
	mr->ibv = (struct ibv_mr){.context = pd->context, .pd = pd, .addr = addr, .length = length, .handle = index};
	mr->ibv.lkey = mr->ibv.rkey = key_next(index);
	mr->iova = (access & IBV_ACCESS_ZERO_BASED) != 0 ? 0 : iova;
	mr->access = access;
	mr->map = sv_shared_get(addr, length);
	region_publish(mr);
	atomic_fetch_add(&((struct sv_pd *)pd)->users, 1);
	return &mr->ibv;
}

SV_EXPORT struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	return ibv_reg_mr_iova2(pd, addr, length, (uintptr_t)addr, (unsigned)access);
}

struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, int access);
SV_EXPORT struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, int access)
{
	return ibv_reg_mr_iova2(pd, addr, length, iova, (unsigned)access);
}

SV_EXPORT struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd,
					   int access)
{
	errno = EOPNOTSUPP;
	return NULL;
}

SV_EXPORT int ibv_rereg_mr(struct ibv_mr *ibv, int flags, struct ibv_pd *pd, void *addr, size_t length, int access)
{
	struct sv_mr *mr = (struct sv_mr *)ibv;
	bool move = (flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0;
	unsigned int rights = (flags & IBV_REREG_MR_CHANGE_ACCESS) != 0 ? (unsigned)access : mr->access;
	int rc = region_check(move ? addr : ibv->addr, move ? length : ibv->length, rights);

	if ((flags & ~IBV_REREG_MR_FLAGS_SUPPORTED) != 0 || flags == 0 || rc != 0 ||
	    ((flags & IBV_REREG_MR_CHANGE_PD) != 0 && pd == NULL)) {
		errno = rc != 0 ? rc : EINVAL;
		return IBV_REREG_MR_ERR_INPUT;
	}
	if (region_has_windows(mr) || !key_withdraw(ibv->handle)) {
		region_publish(mr);
		errno = EBUSY;
		return IBV_REREG_MR_ERR_INPUT;
	}
	if (move) {
		ibv->addr = addr;
		ibv->length = length;
		mr->iova = (rights & IBV_ACCESS_ZERO_BASED) != 0 ? 0 : (uintptr_t)addr;
		sv_shared_put(mr->map);
		mr->map = sv_shared_get(addr, length);
	}
	if ((flags & IBV_REREG_MR_CHANGE_PD) != 0) {
		atomic_fetch_sub(&((struct sv_pd *)ibv->pd)->users, 1);
		atomic_fetch_add(&((struct sv_pd *)pd)->users, 1);
		ibv->pd = pd;
	}
	mr->access = rights;
	ibv->lkey = ibv->rkey = key_next(ibv->handle);
	region_publish(mr);
	return 0;
}

SV_EXPORT int ibv_dereg_mr(struct ibv_mr *ibv)
{
	struct sv_mr *mr = (struct sv_mr *)ibv;

	if (region_has_windows(mr) || !key_withdraw(ibv->handle)) {
		return EBUSY;
	}
	atomic_fetch_sub(&((struct sv_pd *)ibv->pd)->users, 1);
	mr_key_free(ibv->handle);
	sv_shared_put(mr->map);
	free(mr);
	return 0;
}

struct ibv_mw *sv_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	struct sv_mw *mw = NULL;
	uint32_t index;

	if (type != IBV_MW_TYPE_1 && type != IBV_MW_TYPE_2) {
		errno = EINVAL;
		return NULL;
	}
	index = key_alloc();
	mw = index != 0 ? calloc(1, sizeof(*mw)) : NULL;
	if (mw == NULL) {
		errno = ENOMEM;
		return NULL;
	}
	mw->ibv = (struct ibv_mw){
		.context = pd->context, .pd = pd, .handle = index, .type = type, .rkey = key_next(index)};
	atomic_fetch_add(&((struct sv_pd *)pd)->users, 1);
	return &mw->ibv;
}

static void window_unbind(struct sv_mw *mw)
{
	pthread_mutex_lock(&sv.mr_lock);
	if (mw->mr != NULL) {
		LIST_REMOVE(mw, on_region);
		mw->mr = NULL;
	}
	pthread_mutex_unlock(&sv.mr_lock);
}

int sv_dealloc_mw(struct ibv_mw *ibv)
{
	struct sv_mw *mw = (struct sv_mw *)ibv;

	if (!key_withdraw(ibv->handle)) {
		return EBUSY;
	}
	window_unbind(mw);
	atomic_fetch_sub(&((struct sv_pd *)ibv->pd)->users, 1);
	mr_key_free(ibv->handle);
	free(mw);
	return 0;
}

/* InfiniBand 10.6.7.2: what a window may be bound to. */
static bool window_bind_ok(const struct sv_qp *qp, const struct sv_mw *mw, uint32_t key,
			   const struct ibv_mw_bind_info *info)
{
	const struct sv_mr *mr = (const struct sv_mr *)info->mr;

	if (mw->ibv.pd != qp->ex.qp_base.pd || (info->mw_access_flags & ~(unsigned)REGION_ACCESS) != 0) {
		return false;
	}
	if (SV_KEY_INDEX(key) != mw->ibv.handle) {
		return false;
	}
	if (mr == NULL || info->length == 0) {
		return mw->ibv.type == IBV_MW_TYPE_1 && info->length == 0; /* unbinds */
	}
	if (mw->ibv.type == IBV_MW_TYPE_2 && atomic_load(&sv.arena->mr[mw->ibv.handle].key) != 0) {
		return false; /* has to be invalidated first */
	}
	return mr->ibv.pd == mw->ibv.pd && (mr->access & IBV_ACCESS_MW_BIND) != 0 &&
	       ((info->mw_access_flags & REMOTE_CHANGES) == 0 || (mr->access & IBV_ACCESS_LOCAL_WRITE) != 0) &&
	       info->addr >= mr->iova && info->addr - mr->iova <= mr->ibv.length &&
	       info->length <= mr->ibv.length - (info->addr - mr->iova);
}

int sv_mw_bind(struct sv_qp *qp, struct sv_mw *mw, uint32_t key, const struct ibv_mw_bind_info *info)
{
	struct sv_mr *mr = (struct sv_mr *)info->mr;
	struct key_entry e;

	if (!window_bind_ok(qp, mw, key, info)) {
		return IBV_WC_MW_BIND_ERR;
	}
	if (!key_withdraw(mw->ibv.handle)) {
		return IBV_WC_MW_BIND_ERR;
	}
	window_unbind(mw);
	if (mr == NULL || info->length == 0) {
		return IBV_WC_SUCCESS;
	}
	pthread_mutex_lock(&sv.mr_lock);
	LIST_INSERT_HEAD(&mr->windows, mw, on_region);
	mw->mr = mr;
	pthread_mutex_unlock(&sv.mr_lock);
	e = (struct key_entry){.kind = SV_MR_WINDOW,
			       .pd = mw->ibv.pd->handle,
			       .access = info->mw_access_flags,
			       .qpn = mw->ibv.type == IBV_MW_TYPE_2 ? qp->ex.qp_base.qp_num : 0,
			       .iova = (info->mw_access_flags & IBV_ACCESS_ZERO_BASED) != 0 ? 0 : info->addr,
			       .addr = (uintptr_t)mr->ibv.addr + (info->addr - mr->iova),
			       .length = info->length,
			       .map = mr->map};
	key_publish(key, &e);
	return IBV_WC_SUCCESS;
}

int sv_key_invalidate(struct sv_mr_shm *table, uint32_t key, uint32_t pd, uint32_t qpn)
{
	struct sv_mr_shm *shm = key != 0 && SV_KEY_INDEX(key) < SV_MAX_MR ? &table[SV_KEY_INDEX(key)] : NULL;
	uint32_t expected = key;

	/* Windows of type 2 only; ibv_reg_mr's regions cannot be invalidated (InfiniBand 10.6.5). */
	if (shm == NULL || atomic_load(&shm->key) != key || atomic_load(&shm->kind) != SV_MR_WINDOW ||
	    atomic_load(&shm->pd) != pd || atomic_load(&shm->qpn) != qpn) {
		return EINVAL;
	}
	if (table == sv.keys) {
		atomic_store(&sv.arena->mr[SV_KEY_INDEX(key)].key, 0);
	}
	return atomic_compare_exchange_strong(&shm->key, &expected, 0) ? 0 : EINVAL;
}

/* A window of type 1 is bound by a work request of its own, whose key the library chooses. */
int sv_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind)
{
	struct ibv_send_wr wr = {.wr_id = bind->wr_id, .opcode = IBV_WR_BIND_MW, .send_flags = bind->send_flags}, *bad;
	uint32_t key = ibv_inc_rkey(mw->rkey);
	int rc;

	wr.bind_mw.mw = mw;
	wr.bind_mw.rkey = key;
	wr.bind_mw.bind_info = bind->bind_info;
	rc = sv_post_send(qp, &wr, &bad);
	if (rc == 0) {
		mw->rkey = key;
	}
	return rc;
}
