/* SPDX-License-Identifier: BSD-3-Clause */
/* CRC-64/NVME (NVM 5.2.1.3: the guard of 64 bits), of which ISA-L has no version before 2.31. Pure; any thread. */
#ifndef BDEV_DIF_CRC64_H
#define BDEV_DIF_CRC64_H

#include <stddef.h>
#include <stdint.h>

/* The CRC of data, continued from crc, the CRC of what is in front of it; 0: from the start. Any alignment. */
uint64_t dif_crc64(uint64_t crc, const void *data, size_t bytes);

/* The same without carry-less multiplication, whatever the processor has. */
uint64_t dif_crc64_by_table(uint64_t crc, const void *data, size_t bytes);

#endif
