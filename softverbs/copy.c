/* SPDX-License-Identifier: BSD-3-Clause */
/* Moves data directly between our memory and a peer's, without an intermediate copy. */
#include <sys/uio.h>
#include <unistd.h>

#include "softverbs/softverbs.h"

/* The position of a transfer in a list of spans. */
struct cursor {
	const struct sv_span *spans;
	uint32_t count;
	uint32_t index;
	uint64_t offset; /* in spans[index] */
};

static void span_cursor_advance(struct cursor *c, uint64_t n)
{
	while (c->index < c->count) {
		uint64_t left = c->spans[c->index].length - c->offset;

		if (n < left) {
			c->offset += n;
			return;
		}
		n -= left;
		c->index++;
		c->offset = 0;
	}
}

static unsigned long span_cursor_to_iov(const struct cursor *c, struct iovec *iov)
{
	unsigned long n = 0;

	for (uint32_t i = c->index; i < c->count; i++) {
		uint64_t skip = i == c->index ? c->offset : 0;

		iov[n].iov_base = (void *)(uintptr_t)(c->spans[i].addr + skip);
		iov[n].iov_len = c->spans[i].length - skip;
		n++;
	}
	return n;
}

static enum sv_copy_result copy_self(bool to_remote, struct cursor *local, struct cursor *remote)
{
	while (local->index < local->count && remote->index < remote->count) {
		const struct sv_span *l = &local->spans[local->index], *r = &remote->spans[remote->index];
		uint64_t n = l->length - local->offset;
		void *lp = (void *)(uintptr_t)(l->addr + local->offset);
		void *rp = (void *)(uintptr_t)(r->addr + remote->offset);

		n = r->length - remote->offset < n ? r->length - remote->offset : n;
		/* The two may overlap if the peer is this process. */
		memmove(to_remote ? rp : lp, to_remote ? lp : rp, n);
		span_cursor_advance(local, n);
		span_cursor_advance(remote, n);
	}
	return SV_COPY_OK;
}

/* Copies through mappings of the peer's memory. False: not all of it is mapped. */
static bool copy_mapped(struct sv_remote *rem, bool to_remote, struct cursor *local, struct cursor *remote)
{
	struct sv_span here[SV_MAX_SGE];
	struct cursor r = {.spans = here, .count = remote->count};

	for (uint32_t i = 0; i < remote->count; i++) {
		const struct sv_span *s = &remote->spans[i];
		void *p = s->map != 0 ? sv_peer_mapped(rem, s) : NULL;

		if (p == NULL) {
			return false;
		}
		here[i] = (struct sv_span){.addr = (uintptr_t)p, .length = s->length};
	}
	copy_self(to_remote, local, &r); /* the two may be the same memory here, too */
	return true;
}

/* Finds out whether our memory or the peer's caused a fault, by reading a byte at the position in ours. */
static enum sv_copy_result copy_find_fault(const struct cursor *local)
{
	uint8_t byte;
	struct iovec to = {&byte, 1};
	struct iovec from = {(void *)(uintptr_t)(local->spans[local->index].addr + local->offset), 1};

	return process_vm_readv(getpid(), &to, 1, &from, 1, 0) == 1 ? SV_COPY_REMOTE_FAULT : SV_COPY_LOCAL_FAULT;
}

enum sv_copy_result sv_copy(struct sv_remote *rem, bool to_remote, const struct sv_span *local, uint32_t num_local,
			    const struct sv_span *remote, uint32_t num_remote)
{
	struct cursor l = {.spans = local, .count = num_local}, r = {.spans = remote, .count = num_remote};
	struct iovec liov[SV_MAX_SGE], riov[SV_MAX_SGE];

	if (rem->self) {
		return copy_self(to_remote, &l, &r);
	}
	if (copy_mapped(rem, to_remote, &l, &r)) {
		return SV_COPY_OK;
	}
	/* Usually one call. More are needed above 2 GiB less a page, the kernel's limit, and if pages are missing. */
	while (l.index < l.count) {
		unsigned long nl = span_cursor_to_iov(&l, liov), nr = span_cursor_to_iov(&r, riov);
		ssize_t n = to_remote ? process_vm_writev(rem->pid, liov, nl, riov, nr, 0)
				      : process_vm_readv(rem->pid, liov, nl, riov, nr, 0);

		if (n <= 0) {
			return n < 0 && errno == EFAULT ? copy_find_fault(&l) : SV_COPY_REMOTE_FAULT;
		}
		span_cursor_advance(&l, (uint64_t)n);
		span_cursor_advance(&r, (uint64_t)n);
	}
	return SV_COPY_OK;
}
