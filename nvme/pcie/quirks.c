/* SPDX-License-Identifier: BSD-3-Clause */
/* Drives that need something beyond the specification, by vendor and device id. */
#include "nvme/pcie/pcie.h"

static const struct {
	uint16_t vendor, device;
	uint32_t quirks;
} table[] = {
	{0x8086, 0x0953, NVME_PCIE_QUIRK_STRIPE},        /* Intel DC P3500, P3600, P3700 */
	{0x8086, 0x0a53, NVME_PCIE_QUIRK_STRIPE},        /* Intel DC P3520 */
	{0x8086, 0x0a54, NVME_PCIE_QUIRK_STRIPE},        /* Intel DC P4500, P4600 */
	{0x8086, 0x0a55, NVME_PCIE_QUIRK_STRIPE},        /* Intel DC P4500, P4600 */
	{0x1c58, 0x0003, NVME_PCIE_QUIRK_DISABLE_DELAY}, /* HGST SN100 */
	{0x1c58, 0x0023, NVME_PCIE_QUIRK_DISABLE_DELAY}, /* HGST SN200 */
	{0x1c5f, 0x0540, NVME_PCIE_QUIRK_DISABLE_DELAY}, /* Memblaze PBlaze4 */
	{0x144d, 0xa821, NVME_PCIE_QUIRK_DISABLE_DELAY}, /* Samsung PM1725 */
	{0x144d, 0xa822, NVME_PCIE_QUIRK_DISABLE_DELAY}, /* Samsung PM1725a */
};

uint32_t nvme_pcie_quirks(uint16_t vendor, uint16_t device)
{
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		if (table[i].vendor == vendor && table[i].device == device) {
			return table[i].quirks;
		}
	}
	return 0;
}
