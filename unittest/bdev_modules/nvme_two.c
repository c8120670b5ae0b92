/* SPDX-License-Identifier: BSD-3-Clause */
#include "unittest/bdev_modules/nvme_two.h"

void begin_apart(void)
{
	struct model *both[] = {&model, &second};

	drive_begin();
	model_init(&second);
	second.cntlid = 2;
	for (unsigned i = 0; i < 2; i++) {
		both[i]->cmic = NVME_CTRL_CMIC_MULTI_CTRL | NVME_CTRL_CMIC_MULTI_ANA_REPORTING;
		both[i]->anatt = 200; /* longer than any test */
		both[i]->ns[0].shared = true;
		both[i]->ns[1].active = false;
	}
	free(second.ns[0].data);
	second.ns[0].data = model.ns[0].data;
}

struct bdev_nvme_attach path_opts(void)
{
	struct bdev_nvme_attach a = attach_opts();

	a.ctrlr_loss_timeout_sec = -1;
	a.reconnect_delay_sec = 1;
	return a;
}

int attach_first(struct bdev_nvme_attach a)
{
	model_current = &model;
	return attach_with(&a);
}

int attach_second(struct bdev_nvme_attach a)
{
	model_current = &second;
	a.trid.traddr[strlen(a.trid.traddr) - 3] = '5';
	return attach_with(&a);
}

void begin_two(const struct bdev_nvme_attach *a, struct user *u)
{
	begin_apart();
	CU_ASSERT_EQUAL_FATAL(attach_first(*a), 0);
	CU_ASSERT_EQUAL_FATAL(attach_second(*a), 0);
	if (u != NULL) {
		CU_ASSERT_EQUAL_FATAL(user_open(u, "Nvme0n1", true, fixture_thread(0)), 0);
		wait_usable(2);
	}
}

void end_two(void)
{
	while ((nvme = bdev_nvme_next(NULL)) != NULL) {
		CU_ASSERT_EQUAL(drive_detach(), 0);
	}
	CU_ASSERT_STRING_EQUAL(second.violation, "");
	CU_ASSERT(!second.open);
	second.ns[0].data = NULL; /* the other's */
	model_fini(&second);
	drive_end();
}
