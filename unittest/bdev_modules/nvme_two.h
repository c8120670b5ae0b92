/* SPDX-License-Identifier: BSD-3-Clause */
/* A namespace that two controllers share, for tests: `model`, which is attached first, and `second`. Both have the same
 * blocks. On the control thread. */
#ifndef UNITTEST_BDEV_NVME_TWO_H
#define UNITTEST_BDEV_NVME_TWO_H

#include "unittest/bdev_modules/nvme_fixture.h"

/* Makes the two models, and attaches none. */
void begin_apart(void);
/* Controllers are reconnected without a limit: the test decides when one is connected again. */
struct bdev_nvme_attach path_opts(void);
/* Attach the one and the other: the result of attach_with(). */
int attach_first(struct bdev_nvme_attach a);
int attach_second(struct bdev_nvme_attach a);
/* Makes the two models and attaches both. With u it opens their bdev, and waits until both paths can be used. */
void begin_two(const struct bdev_nvme_attach *a, struct user *u);
/* Detaches all, and checks what drive_end() checks, of both. */
void end_two(void);

#endif
