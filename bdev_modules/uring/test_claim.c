/* SPDX-License-Identifier: BSD-3-Clause */
/* One owner for a file or block device. */
#include "bdev_modules/uring/claim.h"
#include "bdev_modules/uring/uring.h"
#include "unittest/bdev/fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <linux/blkpg.h>
#include <linux/loop.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#define FILE_BYTES (16u << 20)

static char folder[] = "/var/tmp/unit-bdev-claim-XXXXXX";
static char file[128], other[128];
static char error[BDEV_ERROR_MAX];
static bool no_ring;

static bool make_file(const char *name)
{
	int fd = open(name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	bool ok = fd >= 0 && ftruncate(fd, FILE_BYTES) == 0;

	close(fd);
	return ok;
}

static int start(void)
{
	if (mkdtemp(folder) == NULL) {
		return -1;
	}
	snprintf(file, sizeof(file), "%s/file", folder);
	snprintf(other, sizeof(other), "%s/other", folder);
	if (!make_file(file) || fixture_start() != 0) {
		return -1;
	}
	const struct bdev_uring_opts o = {.name = "probe", .filename = file};
	int rc = bdev_uring_create(&o, error);
	no_ring = rc == -EPERM || rc == -ENOSYS;
	return rc == 0 ? fixture_delete(bdev_uring_delete, "probe") : no_ring ? 0 : -1;
}

static int stop(void)
{
	unlink(file);
	rmdir(folder);
	return fixture_stop();
}

#define NEED_RING()                                                                                                    \
	if (no_ring) {                                                                                                 \
		UNIT_SKIP("no io_uring here");                                                                         \
	}

static int make(const char *name, const char *filename)
{
	const struct bdev_uring_opts o = {.name = name, .filename = filename, .block_size = 512};

	error[0] = '\0';
	return bdev_uring_create(&o, error);
}

static int make_shared(const char *name, const char *filename)
{
	const struct bdev_uring_opts o = {.name = name, .filename = filename, .block_size = 512, .shared = true};

	return bdev_uring_create(&o, error);
}

static int make_readonly(const char *name, const char *filename)
{
	const struct bdev_uring_opts o = {.name = name, .filename = filename, .block_size = 512, .readonly = true};

	return bdev_uring_create(&o, error);
}

static void delete (const char *name)
{
	CU_ASSERT_EQUAL(fixture_delete(bdev_uring_delete, name), 0);
}

static void check_refused_naming(const char *filename, const char *word)
{
	CU_ASSERT_EQUAL(make("second", filename), -EBUSY);
	if (strstr(error, word) == NULL) {
		printf("%s: lacks '%s'\n", error, word);
		CU_FAIL("the holder is not named");
	}
	CU_ASSERT_PTR_NULL(bdev_find("second"));
}

static void test_a_second_bdev_on_a_file_is_refused(void)
{
	NEED_RING();
	CU_ASSERT_EQUAL_FATAL(make("first", file), 0);
	check_refused_naming(file, "'first'");
	delete ("first");
	CU_ASSERT_EQUAL(make("second", file), 0);
	delete ("second");
}

static void test_links_and_relative_names_lead_to_the_same_claim(void)
{
	char relative[300], cwd[200];

	NEED_RING();
	CU_ASSERT_EQUAL_FATAL(make("first", file), 0);
	CU_ASSERT_EQUAL(link(file, other), 0);
	check_refused_naming(other, "'first'");
	unlink(other);
	CU_ASSERT_EQUAL(symlink(file, other), 0);
	check_refused_naming(other, "'first'");
	unlink(other);
	CU_ASSERT_PTR_NOT_NULL(getcwd(cwd, sizeof(cwd)));
	CU_ASSERT_EQUAL(chdir(folder), 0);
	check_refused_naming("file", "'first'");
	snprintf(relative, sizeof(relative), "../%s/./file", basename(folder));
	check_refused_naming(relative, "'first'");
	CU_ASSERT_EQUAL(chdir(cwd), 0);
	delete ("first");
}

static void test_a_bind_mount_leads_to_the_same_claim(void)
{
	NEED_RING();
	CU_ASSERT_TRUE(make_file(other));
	if (mount(file, other, "none", MS_BIND, NULL) != 0) {
		unlink(other);
		UNIT_SKIP("no mounts here");
	}
	CU_ASSERT_EQUAL_FATAL(make("first", file), 0);
	check_refused_naming(other, "'first'");
	delete ("first");
	CU_ASSERT_EQUAL(umount(other), 0);
	unlink(other);
}

/* What counts is the file, not its name. */
static void test_a_file_that_replaced_another_is_free(void)
{
	NEED_RING();
	CU_ASSERT_EQUAL_FATAL(make("first", file), 0);
	CU_ASSERT_EQUAL(rename(file, other), 0);
	CU_ASSERT_TRUE(make_file(file));
	CU_ASSERT_EQUAL(make("second", file), 0);
	CU_ASSERT_EQUAL(make("third", other), -EBUSY);
	delete ("second");
	delete ("first");
	unlink(other);
}

static void test_shared_and_read_only_uses_exclude_only_exclusive_ones(void)
{
	NEED_RING();
	CU_ASSERT_EQUAL(make_shared("a", file), 0);
	CU_ASSERT_EQUAL(make_shared("b", file), 0);
	CU_ASSERT_EQUAL(make_readonly("c", file), 0);
	check_refused_naming(file, "shared");
	delete ("a");
	delete ("b");
	check_refused_naming(file, "'c'");
	delete ("c");
	CU_ASSERT_EQUAL(make("second", file), 0);
	CU_ASSERT_EQUAL(make_shared("a", file), -EBUSY);
	CU_ASSERT_EQUAL(make_readonly("a", file), -EBUSY);
	delete ("second");
}

static void test_a_relative_name_is_kept_absolute(void)
{
	struct bdev_uring_opts o;
	char cwd[200], real[300];

	NEED_RING();
	CU_ASSERT_PTR_NOT_NULL(getcwd(cwd, sizeof(cwd)));
	CU_ASSERT_EQUAL(chdir(folder), 0);
	CU_ASSERT_EQUAL_FATAL(make("first", "./file"), 0);
	CU_ASSERT_EQUAL(chdir(cwd), 0);
	CU_ASSERT_TRUE(bdev_uring_get(bdev_find("first"), &o));
	CU_ASSERT_PTR_NOT_NULL(realpath(file, real));
	CU_ASSERT_STRING_EQUAL(o.filename, real);
	delete ("first");
}

/* Another process that has locked a file: the child. */
static pid_t child_lock(const char *name, short type, bool ofd)
{
	int pipes[2];
	char byte;

	CU_ASSERT_EQUAL_FATAL(pipe(pipes), 0);
	pid_t pid = fork();
	if (pid == 0) {
		int fd = open(name, O_RDWR);
		struct flock range = {.l_type = type, .l_whence = SEEK_SET};
		int rc = fcntl(fd, ofd ? F_OFD_SETLK : F_SETLK, &range);
		byte = rc == 0;
		rc = (int)write(pipes[1], &byte, 1);
		while (rc != 0) {
			pause();
		}
		_exit(0);
	}
	CU_ASSERT_EQUAL(read(pipes[0], &byte, 1), 1);
	CU_ASSERT_EQUAL(byte, 1);
	close(pipes[0]);
	close(pipes[1]);
	return pid;
}

static void child_end(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static void test_another_process_is_named_by_its_pid(void)
{
	char word[64];

	NEED_RING();
	for (int ofd = 0; ofd <= 1; ofd++) {
		pid_t pid = child_lock(file, F_WRLCK, ofd);
		snprintf(word, sizeof(word), "process %d", pid);
		check_refused_naming(file, word);
		CU_ASSERT_EQUAL(make_shared("a", file), -EBUSY);
		child_end(pid);
		CU_ASSERT_EQUAL(make("second", file), 0);
		delete ("second");
	}
	pid_t pid = child_lock(file, F_RDLCK, true);
	check_refused_naming(file, "readonly or shared");
	CU_ASSERT_EQUAL(make_readonly("a", file), 0);
	delete ("a");
	child_end(pid);
}

/* --- Block devices: a loop device --- */

static struct {
	char path[64], part[128], alias[128];
	dev_t rdev;
	int fd;
} loop;

static bool loop_make(void)
{
	struct loop_info64 info = {.lo_flags = LO_FLAGS_PARTSCAN};
	struct blkpg_partition part = {.start = 1 << 20, .length = 2 << 20, .pno = 1};
	struct blkpg_ioctl_arg arg = {.op = BLKPG_ADD_PARTITION, .datalen = sizeof(part), .data = &part};
	struct stat st;
	int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
	int number = control >= 0 ? ioctl(control, LOOP_CTL_GET_FREE) : -1;
	int fd = open(file, O_RDWR | O_CLOEXEC);

	close(control);
	snprintf(loop.path, sizeof(loop.path), "/dev/loop%d", number);
	snprintf(loop.part, sizeof(loop.part), "%s/part", folder);
	snprintf(loop.alias, sizeof(loop.alias), "%s/alias", folder);
	loop.fd = number >= 0 ? open(loop.path, O_RDWR | O_CLOEXEC) : -1;
	bool ok = loop.fd >= 0 && ioctl(loop.fd, LOOP_SET_FD, fd) == 0;
	close(fd);
	if (!ok) {
		close(loop.fd);
		return false;
	}
	CU_ASSERT_EQUAL(ioctl(loop.fd, LOOP_SET_STATUS64, &info), 0);
	CU_ASSERT_EQUAL(ioctl(loop.fd, BLKPG, &arg), 0);
	fstat(loop.fd, &st);
	loop.rdev = st.st_rdev;
	return true;
}

static void loop_end(void)
{
	struct blkpg_partition part = {.pno = 1};
	struct blkpg_ioctl_arg arg = {.op = BLKPG_DEL_PARTITION, .datalen = sizeof(part), .data = &part};

	unlink(loop.part);
	unlink(loop.alias);
	CU_ASSERT_EQUAL(ioctl(loop.fd, BLKPG, &arg), 0);
	CU_ASSERT_EQUAL(ioctl(loop.fd, LOOP_CLR_FD, 0), 0);
	close(loop.fd);
}

/* A node for the partition, and a second one for the whole device. */
static bool loop_make_nodes(void)
{
	char dev[128] = "";
	unsigned major_, minor_;

	snprintf(dev, sizeof(dev), "/sys/class/block/%.40sp1/dev", loop.path + strlen("/dev/"));
	FILE *f = fopen(dev, "re");
	bool ok = f != NULL && fscanf(f, "%u:%u", &major_, &minor_) == 2;
	if (f != NULL) {
		fclose(f);
	}
	return ok && mknod(loop.part, S_IFBLK | 0600, makedev(major_, minor_)) == 0 &&
	       mknod(loop.alias, S_IFBLK | 0600, loop.rdev) == 0;
}

#define NEED_LOOP()                                                                                                    \
	NEED_RING();                                                                                                   \
	if (!loop_make()) {                                                                                            \
		UNIT_SKIP("no loop devices here");                                                                     \
	}

static void test_nodes_and_partitions_of_a_device_exclude_each_other(void)
{
	NEED_LOOP();
	CU_ASSERT_TRUE(loop_make_nodes());
	CU_ASSERT_EQUAL_FATAL(make("first", loop.path), 0);
	check_refused_naming(loop.alias, "'first'");
	check_refused_naming(loop.part, "'first'");
	CU_ASSERT_EQUAL(make_shared("a", loop.alias), -EBUSY);
	CU_ASSERT_EQUAL(make_shared("a", loop.part), -EBUSY);
	delete ("first");
	CU_ASSERT_EQUAL(make("first", loop.part), 0);
	check_refused_naming(loop.path, "'first'");
	CU_ASSERT_EQUAL(make_readonly("a", loop.alias), -EBUSY);
	delete ("first");
	CU_ASSERT_EQUAL(make_shared("a", loop.part), 0);
	CU_ASSERT_EQUAL(make_shared("b", loop.path), 0);
	CU_ASSERT_EQUAL(make_readonly("c", loop.alias), 0);
	check_refused_naming(loop.alias, "shared");
	delete ("b");
	delete ("c");
	check_refused_naming(loop.path, "'a'");
	delete ("a");
	loop_end();
}

static void test_the_file_behind_a_loop_device_is_refused(void)
{
	NEED_LOOP();
	check_refused_naming(file, loop.path);
	CU_ASSERT_EQUAL(make_shared("a", file), -EBUSY);
	loop_end();
	CU_ASSERT_EQUAL(make("first", file), 0);
	delete ("first");
}

/* The name under which it was attached is gone. */
static void test_the_file_behind_a_loop_device_is_refused_by_another_name(void)
{
	NEED_LOOP();
	CU_ASSERT_EQUAL(link(file, other), 0);
	CU_ASSERT_EQUAL(unlink(file), 0);
	check_refused_naming(other, loop.path);
	CU_ASSERT_EQUAL(rename(other, file), 0);
	loop_end();
}

/* The kernel attaches a file to a loop device whoever has locked it. */
static void test_a_loop_device_over_a_file_in_use_is_refused(void)
{
	NEED_RING();
	CU_ASSERT_EQUAL_FATAL(make("first", file), 0);
	if (!loop_make()) {
		delete ("first");
		UNIT_SKIP("no loop devices here");
	}
	CU_ASSERT_TRUE(loop_make_nodes());
	check_refused_naming(loop.path, "'first'");
	check_refused_naming(loop.part, "'first'");
	CU_ASSERT_EQUAL(make_shared("a", loop.path), -EBUSY);
	delete ("first");
	CU_ASSERT_EQUAL(make("first", loop.path), 0);
	delete ("first");
	loop_end();
}

/* The name led to a file when it was looked at, and to something else when it is opened. */
static void test_what_is_no_file_any_more_is_refused(void)
{
	struct uring_claim c;

	CU_ASSERT_EQUAL_FATAL(mkfifo(other, 0600), 0);
	CU_ASSERT_EQUAL(uring_claim_open(&c, &(struct uring_claim_opts){"a", other, .readonly = true}, error), -EAGAIN);
	CU_ASSERT_EQUAL(uring_claim_open(&c, &(struct uring_claim_opts){"a", other}, error), -EAGAIN);
	CU_ASSERT_PTR_NOT_NULL(strstr(error, "has become another file"));
	unlink(other);
	CU_ASSERT_EQUAL(uring_claim_open(&c, &(struct uring_claim_opts){"a", file}, error), 0);
	CU_ASSERT_EQUAL(fcntl(c.fd, F_GETFL) & O_NONBLOCK, 0); /* it is for I/O */
	uring_claim_close(&c);
}

static void test_what_another_program_has_open_exclusively_is_refused(void)
{
	NEED_LOOP();
	int fd = open(loop.path, O_RDONLY | O_EXCL | O_CLOEXEC);
	CU_ASSERT_TRUE(fd >= 0);
	check_refused_naming(loop.path, "exclusively");
	CU_ASSERT_EQUAL(make_shared("a", loop.path), -EBUSY);
	close(fd);
	CU_ASSERT_EQUAL(make_shared("a", loop.path), 0);
	delete ("a");
	loop_end();
}

static void test_a_mounted_device_is_refused(void)
{
	char command[256], point[160];

	NEED_LOOP();
	CU_ASSERT_TRUE(loop_make_nodes());
	snprintf(command, sizeof(command), "mke2fs -q -F %s 2>/dev/null", loop.part);
	snprintf(point, sizeof(point), "%s/mount point", folder);
	mkdir(point, 0700);
	bool mounted = system(command) == 0 && mount(loop.part, point, "ext4", 0, NULL) == 0;
	if (mounted) {
		check_refused_naming(loop.part, "/mount point");
		check_refused_naming(loop.alias, "/mount point");
		CU_ASSERT_EQUAL(make_shared("a", loop.part), -EBUSY);
		CU_ASSERT_EQUAL(make_readonly("a", loop.path), -EBUSY);
		CU_ASSERT_EQUAL(umount(point), 0);
		CU_ASSERT_EQUAL(make("first", loop.part), 0);
		CU_ASSERT_EQUAL(mount(loop.part, point, "ext4", 0, NULL), -1);
		CU_ASSERT_EQUAL(errno, EBUSY);
		delete ("first");
	}
	rmdir(point);
	loop_end();
	if (!mounted) {
		UNIT_SKIP("no mke2fs or ext4 here");
	}
}

static const struct unit_test tests[] = {
	UNIT(test_a_second_bdev_on_a_file_is_refused),
	UNIT(test_links_and_relative_names_lead_to_the_same_claim),
	UNIT(test_a_bind_mount_leads_to_the_same_claim),
	UNIT(test_a_file_that_replaced_another_is_free),
	UNIT(test_shared_and_read_only_uses_exclude_only_exclusive_ones),
	UNIT(test_a_relative_name_is_kept_absolute),
	UNIT(test_another_process_is_named_by_its_pid),
	UNIT(test_nodes_and_partitions_of_a_device_exclude_each_other),
	UNIT(test_the_file_behind_a_loop_device_is_refused),
	UNIT(test_the_file_behind_a_loop_device_is_refused_by_another_name),
	UNIT(test_a_loop_device_over_a_file_in_use_is_refused),
	UNIT(test_what_is_no_file_any_more_is_refused),
	UNIT(test_what_another_program_has_open_exclusively_is_refused),
	UNIT(test_a_mounted_device_is_refused),
	UNIT_END,
};
UNIT_MAIN("bdev_claim", tests, start, stop)
