/* SPDX-License-Identifier: BSD-3-Clause */
/* Data pointers: Physical Region Pages (Base 4.1.1) where they can describe the data, else SGLs (Base 4.1.2). Large
 * contiguous data has SGLs too, because they are shorter. */
#include "nvme/pcie/pcie.h"

#include <errno.h>

#define SGL_WORTH_IT 32768 /* bytes per iov from which an SGL saves the drive more than it costs */
#define NOT_PRP      1

/* PRPs. The first entry may begin at any dword of a page; all others begin at the start of a page, and all but the last
 * reach to the end of one. list[i] is entry 1 + i; if there are only two, PRP2 itself is the second. */
static int prp_build_list(const struct nvme_pcie_data *d, const struct iovec *iovs, unsigned iovcnt,
			  struct nvme_sqe *cmd)
{
	__le64 *list = d->list;
	uint32_t n = 0, most = d->list_bytes / (uint32_t)sizeof(*list);
	uint64_t end = 0; /* where the previous segment ended */

	for (unsigned i = 0; i < iovcnt; i++) {
		const uint8_t *va = iovs[i].iov_base;

		for (size_t left = iovs[i].iov_len; left > 0;) {
			size_t len = left;
			uint64_t addr = d->translate(va, &len), page;

			if (addr == ENV_IOVA_BAD || len == 0) {
				return -EFAULT;
			}
			if (n == 0) {
				if (addr & 3) {
					return NOT_PRP;
				}
				cmd->prp1 = htole64(addr);
				n = 1;
				page = (addr | (NVME_PCIE_PAGE - 1)) + 1;
			} else if (addr == end) {
				page = (addr + NVME_PCIE_PAGE - 1) & ~(uint64_t)(NVME_PCIE_PAGE - 1);
			} else if ((addr | end) & (NVME_PCIE_PAGE - 1)) {
				return NOT_PRP;
			} else {
				page = addr;
			}
			for (end = addr + len; page < end; page += NVME_PCIE_PAGE) {
				if (n > most) {
					return -E2BIG;
				}
				list[n++ - 1] = htole64(page);
			}
			va += len;
			left -= len;
		}
	}
	cmd->prp2 = n <= 1 ? 0 : n == 2 ? list[0] : htole64(d->list_iova);
	cmd->flags &= (uint8_t)~NVME_CMD_FLAGS_PSDT_MASK;
	return 0;
}

/* Describes the segments; those that are adjacent share a descriptor. The number of descriptors, or a negative errno.
 */
static int sgl_build_descriptors(const struct nvme_pcie_data *d, const struct iovec *iovs, unsigned iovcnt)
{
	union nvme_sgl_desc *list = d->list;
	uint32_t n = 0, most = d->list_bytes / (uint32_t)sizeof(*list);
	uint64_t end = 0;

	for (unsigned i = 0; i < iovcnt; i++) {
		const uint8_t *va = iovs[i].iov_base;

		for (size_t left = iovs[i].iov_len; left > 0;) {
			size_t len = left;
			uint64_t addr = d->translate(va, &len);

			if (addr == ENV_IOVA_BAD || len == 0) {
				return -EFAULT;
			}
			if (d->sgl == NVME_PCIE_SGL_DWORDS && ((addr | len) & 3) != 0) {
				return -EINVAL;
			}
			if (n > 0 && addr == end) {
				list[n - 1].plain.length = htole32(le32toh(list[n - 1].plain.length) + (uint32_t)len);
			} else if (n == most) {
				return -E2BIG;
			} else {
				list[n++] = nvme_sgl_make_plain(NVME_SGL_TYPE_DATA_BLOCK, NVME_SGL_SUBTYPE_ADDRESS,
								addr, (uint32_t)len);
			}
			end = addr + len;
			va += len;
			left -= len;
		}
	}
	return (int)n;
}

static int sgl_build(const struct nvme_pcie_data *d, const struct iovec *iovs, unsigned iovcnt, struct nvme_sqe *cmd)
{
	const union nvme_sgl_desc *list = d->list;
	int n = sgl_build_descriptors(d, iovs, iovcnt);

	if (n < 0) {
		return n;
	}
	cmd->sgl1 = n == 1 ? list[0]
			   : nvme_sgl_make_plain(NVME_SGL_TYPE_LAST_SEGMENT, NVME_SGL_SUBTYPE_ADDRESS, d->list_iova,
						 (uint32_t)n * (uint32_t)sizeof(*list));
	cmd->flags = (uint8_t)((cmd->flags & ~NVME_CMD_FLAGS_PSDT_MASK) | NVME_CMD_FLAGS_PSDT_SGL);
	return 0;
}

int nvme_pcie_data_pointer(const struct nvme_pcie_data *d, const struct iovec *iovs, unsigned iovcnt, uint32_t len,
			   struct nvme_sqe *cmd)
{
	if (d->sgl != NVME_PCIE_SGL_NONE && len >= SGL_WORTH_IT * iovcnt) {
		int rc = sgl_build(d, iovs, iovcnt, cmd);
		if (rc != -EINVAL && rc != -E2BIG) {
			return rc;
		}
	}
	int rc = prp_build_list(d, iovs, iovcnt, cmd);
	if (rc != NOT_PRP) {
		return rc;
	}
	return d->sgl != NVME_PCIE_SGL_NONE ? sgl_build(d, iovs, iovcnt, cmd) : -EINVAL;
}
