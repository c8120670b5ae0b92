/* SPDX-License-Identifier: BSD-3-Clause */
/* Header and data digests: CRC32C (NVMe TCP Transport Specification 3.3.1.1), over one buffer or over pieces. Pure. */
#ifndef TCP_DIGEST_H
#define TCP_DIGEST_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#define TCP_DIGEST_START UINT32_MAX /* of a digest to which nothing has been added */

/* Adds bytes, less than 2 GiB, to a digest, which begins as TCP_DIGEST_START. */
uint32_t tcp_digest_add(uint32_t digest, const void *bytes, size_t length);
/* Adds `length` bytes that begin `offset` bytes into the iovs; these have that many. */
uint32_t tcp_digest_add_iovs(uint32_t digest, const struct iovec *iovs, unsigned iovcnt, size_t offset, size_t length);
/* The value as it is sent, in host byte order: on the wire it is little-endian. */
static inline uint32_t tcp_digest_end(uint32_t digest)
{
	return ~digest;
}

#endif
