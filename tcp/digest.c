/* SPDX-License-Identifier: BSD-3-Clause */
#include "tcp/digest.h"

#include <isa-l/crc.h>

uint32_t tcp_digest_add(uint32_t digest, const void *bytes, size_t length)
{
	return crc32_iscsi((unsigned char *)(uintptr_t)bytes, (int)length, digest); /* it only reads */
}

uint32_t tcp_digest_add_iovs(uint32_t digest, const struct iovec *iovs, unsigned iovcnt, size_t offset, size_t length)
{
	for (unsigned i = 0; i < iovcnt && length > 0; i++) {
		if (offset >= iovs[i].iov_len) {
			offset -= iovs[i].iov_len;
			continue;
		}
		size_t n = iovs[i].iov_len - offset < length ? iovs[i].iov_len - offset : length;
		digest = tcp_digest_add(digest, (const uint8_t *)iovs[i].iov_base + offset, n);
		length -= n;
		offset = 0;
	}
	return digest;
}
