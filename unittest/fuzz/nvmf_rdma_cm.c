/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>
#include <string.h>

#include "nvmf_rdma/internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct nvmf_rdma_cm_params out;

	if (nvmf_rdma_cm_decode(data, size, 128, 1024, &out) == 0) {
		if (out.host_send_queue < 2 || out.host_send_queue > 1024 || out.host_receive_queue == 0) {
			abort();
		}
	}
	return 0;
}
