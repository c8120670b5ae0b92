/* SPDX-License-Identifier: BSD-3-Clause */
#include "unittest/bdev_modules/rbd_kit.h"

int rbd_kit_start(void)
{
	fake_start();
	return fixture_start();
}

int rbd_kit_end(void)
{
	int rc = fixture_stop();

	fake_stop();
	return rc;
}

void on_answer(void *arg, int rc, const char *text)
{
	struct answer *a = arg;

	a->rc = rc;
	snprintf(a->text, sizeof(a->text), "%s", text != NULL ? text : "");
	set_done(&a->done);
}

int answer_rc(struct answer *a)
{
	CU_ASSERT_TRUE_FATAL(fixture_wait(&a->done));
	return a->rc;
}

struct bdev_rbd_opts opts_of(const char *name)
{
	return (struct bdev_rbd_opts){.name = name, .pool = "rbd", .image = "image", .block_size = BS};
}

int create(const struct bdev_rbd_opts *opts, struct answer *a)
{
	*a = (struct answer){.rc = 1};
	bdev_rbd_create(opts, on_answer, a);
	return answer_rc(a);
}

int create_named(const char *name)
{
	struct bdev_rbd_opts opts = opts_of(name);
	struct answer a;

	return create(&opts, &a);
}

bool nothing_is_open(void *arg)
{
	return fake.opens == fake.closes && fake.clients == fake.shutdowns && fake.ioctxs == 0 && fake.completions == 0;
}

void check_nothing_is_left(void)
{
	struct bdev_rbd_cluster_info info;

	CU_ASSERT_TRUE(fixture_poll(nothing_is_open, NULL));
	CU_ASSERT_FALSE(bdev_rbd_get_cluster(0, &info));
	fake_reset();
}

int create_standby(const char *name)
{
	struct bdev_rbd_opts opts = opts_of(name);
	struct answer a;

	opts.standby = true;
	return create(&opts, &a);
}

bool lock_waits(void *arg)
{
	return fake.waiting == 1;
}

void note_deleted(void *arg, int rc)
{
	on_answer(arg, rc, NULL);
}
