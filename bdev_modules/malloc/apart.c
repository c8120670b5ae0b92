/* SPDX-License-Identifier: BSD-3-Clause */
#include "bdev_modules/malloc/apart.h"

#include <string.h>

#include "util/iov.h"

void apart_read(const struct apart_blocks *at, const struct iovec *iovs, uint64_t num_blocks)
{
	struct iov_cursor c = iov_cursor_at(iovs, 0);

	for (uint64_t i = 0; i < num_blocks; i++) {
		iov_from_buffer(&c, at->data + i * at->data_size, at->data_size);
		iov_from_buffer(&c, at->md + i * at->md_size, at->md_size);
	}
}

void apart_write(const struct apart_blocks *at, const struct iovec *iovs, uint64_t num_blocks)
{
	struct iov_cursor c = iov_cursor_at(iovs, 0);

	for (uint64_t i = 0; i < num_blocks; i++) {
		iov_to_buffer(&c, at->data + i * at->data_size, at->data_size);
		iov_to_buffer(&c, at->md + i * at->md_size, at->md_size);
	}
}

bool apart_equals(const struct apart_blocks *at, const struct iovec *iovs, uint64_t num_blocks)
{
	struct iov_cursor c = iov_cursor_at(iovs, 0);

	for (uint64_t i = 0; i < num_blocks; i++) {
		if (!iov_equals_buffer(&c, at->data + i * at->data_size, at->data_size) ||
		    !iov_equals_buffer(&c, at->md + i * at->md_size, at->md_size)) {
			return false;
		}
	}
	return true;
}

void apart_copy(const struct apart_blocks *to, const struct apart_blocks *from, uint64_t num_blocks)
{
	memcpy(to->data, from->data, num_blocks * to->data_size);
	memcpy(to->md, from->md, num_blocks * to->md_size);
}
