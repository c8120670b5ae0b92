/* SPDX-License-Identifier: BSD-3-Clause */
/* Devices driven from here: registers that go away, the kernel's news, what is refused. */
#include "unittest/unit.h"
#include "env_dpdk/pci_internal.h"

#include <errno.h>
#include <linux/netlink.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile uint32_t *window(int *fd)
{
	*fd = memfd_create("bar", MFD_CLOEXEC);
	if (*fd < 0 || ftruncate(*fd, 8192) != 0) {
		abort();
	}
	void *p = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
	return p != MAP_FAILED ? p : NULL;
}

/* A file that is cut off under its mapping gives the same SIGBUS as the BAR of a device that is pulled out. */
static void pull_out(int fd)
{
	if (ftruncate(fd, 0) != 0) {
		abort();
	}
}

static uint8_t signal_stack[64 * 1024];

/* As that of a crash report: on the stack that the thread has for signals, with the signals blocked that it names. */
static void on_crash(int number, siginfo_t *info, void *context)
{
	uint8_t here;
	sigset_t blocked;

	pthread_sigmask(SIG_SETMASK, NULL, &blocked);
	bool on_stack = &here >= signal_stack && &here < signal_stack + sizeof(signal_stack);
	_exit(!on_stack ? 2 : !sigismember(&blocked, SIGUSR1) ? 3 : info->si_addr == NULL ? 4 : 0);
}

/* In a child, because the handler of windows is installed once. This is the first test, before it is. */
static void test_a_crash_handler_is_called_on_its_own_stack(void)
{
	int fd, status;
	pid_t child = fork();

	if (child == 0) {
		struct sigaction action = {.sa_sigaction = on_crash, .sa_flags = SA_SIGINFO | SA_ONSTACK};
		const stack_t stack = {.ss_sp = signal_stack, .ss_size = sizeof(signal_stack)};
		sigaddset(&action.sa_mask, SIGUSR1);
		sigaltstack(&stack, NULL);
		sigaction(SIGBUS, &action, NULL);
		volatile uint32_t *regs = window(&fd);
		env_pci_window_add((void *)regs, 8192);
		volatile uint32_t *other = window(&fd);
		pull_out(fd);
		_exit(5 + (int)(other[0] & 1));
	}
	CU_ASSERT_EQUAL(waitpid(child, &status, 0), child);
	CU_ASSERT(WIFEXITED(status));
	CU_ASSERT_EQUAL(WEXITSTATUS(status), 0);
}

static void test_a_signal_that_is_sent_ends_the_process(void)
{
	int fd, status;
	pid_t child = fork();

	if (child == 0) {
		signal(SIGBUS, SIG_DFL);
		env_pci_window_add((void *)window(&fd), 8192);
		raise(SIGBUS);
		_exit(0);
	}
	CU_ASSERT_EQUAL(waitpid(child, &status, 0), child);
	CU_ASSERT(WIFSIGNALED(status));
}

static void test_registers_of_a_removed_device_read_as_ones(void)
{
	int fd;
	volatile uint32_t *regs = window(&fd);

	CU_ASSERT_EQUAL_FATAL(env_pci_window_add((void *)regs, 8192), 0);
	regs[3] = 77;
	CU_ASSERT_EQUAL(regs[3], 77);
	pull_out(fd);
	CU_ASSERT_EQUAL(regs[3], UINT32_MAX);
	CU_ASSERT_EQUAL(regs[2047], UINT32_MAX);
	env_pci_window_remove((void *)regs);
	munmap((void *)regs, 8192);
	close(fd);
}

static void test_write_to_a_removed_device_goes_nowhere(void)
{
	int fd;
	volatile uint32_t *regs = window(&fd);

	CU_ASSERT_EQUAL_FATAL(env_pci_window_add((void *)regs, 8192), 0);
	pull_out(fd);
	regs[1024] = 5;
	CU_ASSERT_EQUAL(regs[0], UINT32_MAX);
	/* the ones of the next device are not spoiled by it */
	int other;
	volatile uint32_t *next = window(&other);
	CU_ASSERT_EQUAL_FATAL(env_pci_window_add((void *)next, 8192), 0);
	pull_out(other);
	CU_ASSERT_EQUAL(next[1024], UINT32_MAX);
	munmap((void *)regs, 8192);
	munmap((void *)next, 8192);
	env_pci_window_remove((void *)regs);
	env_pci_window_remove((void *)next);
	close(fd);
	close(other);
}

static void test_sigbus_elsewhere_is_still_a_crash(void)
{
	int fd, status;
	pid_t child = fork();

	if (child == 0) {
		volatile uint32_t *other = window(&fd);
		signal(SIGBUS, SIG_DFL); /* a sanitizer's handler would report it */
		volatile uint32_t *regs = window(&fd);
		env_pci_window_add((void *)regs, 8192);
		munmap((void *)other, 8192);
		other = window(&fd);
		pull_out(fd);
		_exit((int)other[0] & 1);
	}
	CU_ASSERT_EQUAL(waitpid(child, &status, 0), child);
	CU_ASSERT(!WIFEXITED(status) || WEXITSTATUS(status) > 1);
}

static struct {
	volatile uint32_t *regs;
	unsigned unmapped;
	bool handled; /* SIGBUS there was still handled when they were unmapped */
} watched;

int __real_munmap(void *start, size_t len);
int __wrap_munmap(void *start, size_t len);

int __wrap_munmap(void *start, size_t len)
{
	if (start == watched.regs && start != NULL) {
		int status;
		pid_t child = fork();

		if (child == 0) {
			close(STDERR_FILENO); /* a sanitizer's report is not wanted */
			_exit(watched.regs[0] != UINT32_MAX);
		}
		watched.unmapped++;
		CU_ASSERT_EQUAL(waitpid(child, &status, 0), child);
		watched.handled = WIFEXITED(status) && WEXITSTATUS(status) == 0;
	}
	return __real_munmap(start, len);
}

static int config_of_a_device_that_has_gone(struct env_pci *dev, bool write, unsigned offset, void *data, unsigned size)
{
	return -EIO;
}

static void do_not_close(struct env_pci *dev)
{
}

/* Else an error of somebody who gets the addresses next would be taken for the removal of a device. */
static void test_registers_are_forgotten_before_they_are_unmapped(void)
{
	static const struct env_pci_kind kind = {.config = config_of_a_device_that_has_gone, .close = do_not_close};
	int fd;
	struct env_pci *dev = calloc(1, sizeof(*dev));

	CU_ASSERT_PTR_NOT_NULL_FATAL(dev);
	watched.regs = window(&fd);
	dev->registers = (void *)watched.regs;
	dev->registers_len = 8192;
	dev->kind = &kind;
	dev->claim = -1;
	CU_ASSERT_EQUAL_FATAL(env_pci_window_add(dev->registers, 8192), 0);
	pull_out(fd);
	env_pci_close(dev);
	CU_ASSERT_EQUAL(watched.unmapped, 1);
	CU_ASSERT_FALSE(watched.handled);
	watched.regs = NULL;
	close(fd);
}

#define PARSE(text_, e_) env_pci_uevent_parse(text_, sizeof(text_) - 1, e_)

static void test_uevents_of_pci_devices_are_understood(void)
{
	struct env_pci_uevent e;

	CU_ASSERT(PARSE("remove@/devices/x\0ACTION=remove\0SUBSYSTEM=pci\0PCI_SLOT_NAME=0000:00:04.0\0", &e));
	CU_ASSERT_EQUAL(e.action, ENV_PCI_UEVENT_REMOVE);
	CU_ASSERT_STRING_EQUAL(e.bdf, "0000:00:04.0");
	CU_ASSERT(PARSE("bind@/x\0ACTION=bind\0DRIVER=vfio-pci\0SUBSYSTEM=pci\0PCI_SLOT_NAME=0000:5e:00.1\0", &e));
	CU_ASSERT_EQUAL(e.action, ENV_PCI_UEVENT_BIND);
	CU_ASSERT_STRING_EQUAL(e.driver, "vfio-pci");
	CU_ASSERT(PARSE("add@/x\0ACTION=add\0SUBSYSTEM=pci\0PCI_SLOT_NAME=0000:5e:00.1\0", &e));
	CU_ASSERT_EQUAL(e.action, ENV_PCI_UEVENT_ADD);
	CU_ASSERT(PARSE("change@/x\0ACTION=change\0SUBSYSTEM=pci\0PCI_SLOT_NAME=0000:5e:00.1\0", &e));
	CU_ASSERT_EQUAL(e.action, ENV_PCI_UEVENT_OTHER);
}

static void test_other_uevents_are_passed_over(void)
{
	struct env_pci_uevent e;

	CU_ASSERT(!PARSE("add@/x\0ACTION=add\0SUBSYSTEM=block\0DEVNAME=sda\0", &e));
	CU_ASSERT(!PARSE("add@/x\0ACTION=add\0SUBSYSTEM=pci\0PCI_SLOT_NAME=nonsense\0", &e));
	CU_ASSERT(!PARSE("add@/x\0SUBSYSTEM=pci\0PCI_SLOT_NAME=0000:00:04.0\0", &e));
	CU_ASSERT(!PARSE("", &e));
}

static void test_truncated_uevent_is_not_read_beyond_its_end(void)
{
	static const char text[] = "remove@/x\0ACTION=remove\0SUBSYSTEM=pci\0PCI_SLOT_NAME=0000:00:04.0";
	struct env_pci_uevent e;

	/* the last value has no NUL: it is none */
	for (size_t len = 0; len < sizeof(text); len++) {
		char *copy = malloc(len ? len : 1);
		memcpy(copy, text, len);
		CU_ASSERT(!env_pci_uevent_parse(copy, len, &e));
		free(copy);
	}
}

static char folder[] = "/tmp/varve-unit-pcidev-XXXXXX";

static int setup(void)
{
	char path[256];

	if (mkdtemp(folder) == NULL) {
		return -1;
	}
	env_pci_set_folder(folder);
	for (const char *const *bdf = (const char *const[]){"0000:00:04.0", "0000:00:05.0", NULL}; *bdf != NULL;
	     bdf++) {
		snprintf(path, sizeof(path), "%s/%s", folder, *bdf);
		if (mkdir(path, 0700) != 0) {
			return -1;
		}
	}
	snprintf(path, sizeof(path), "%s/0000:00:04.0/driver", folder);
	return symlink("../../../../bus/pci/drivers/nvme", path);
}

static int teardown(void)
{
	char command[256];

	env_pci_set_folder("/sys/bus/pci/devices");
	snprintf(command, sizeof(command), "rm -r %s", folder);
	return system(command);
}

static void test_device_of_a_driver_of_the_kernel_is_refused_with_advice(void)
{
	struct env_pci *dev;
	char error[ENV_PCI_ERROR_MAX];

	CU_ASSERT_EQUAL(env_pci_open("00:04.0", &dev, error), -EBUSY);
	CU_ASSERT_PTR_NULL(dev);
	CU_ASSERT_PTR_NOT_NULL(strstr(error, "the kernel's driver 'nvme'"));
	CU_ASSERT_PTR_NOT_NULL(strstr(error, "scripts/setup.sh bind 0000:00:04.0"));
}

static void test_device_without_a_driver_is_refused_with_advice(void)
{
	struct env_pci *dev;
	char error[ENV_PCI_ERROR_MAX];

	CU_ASSERT_EQUAL(env_pci_open("0000:00:05.0", &dev, error), -EBUSY);
	CU_ASSERT_PTR_NOT_NULL(strstr(error, "scripts/setup.sh bind 0000:00:05.0"));
}

static void test_no_such_device_is_named(void)
{
	struct env_pci *dev;
	char error[ENV_PCI_ERROR_MAX];

	CU_ASSERT_EQUAL(env_pci_open("0000:00:06.0", &dev, error), -ENODEV);
	CU_ASSERT_PTR_NOT_NULL(strstr(error, "0000:00:06.0"));
	CU_ASSERT_EQUAL(env_pci_open("../../etc", &dev, error), -ENODEV);
}

/* Sends what a process may send to all that listen, which they pass over, until it has been too much for the one at
 * fd. */
static bool overflow(int fd)
{
	struct sockaddr_nl all = {.nl_family = AF_NETLINK, .nl_groups = 1};
	static const char text[4096] = "change@/x\0ACTION=change\0SUBSYSTEM=none";
	int s = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_KOBJECT_UEVENT), small = 1, size = 0;
	socklen_t len = sizeof(size);
	bool sent = s >= 0 && setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small)) == 0 &&
		    getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, &len) == 0;

	for (int n = 0; sent && n < size + 2 * (int)sizeof(text); n += (int)sizeof(text)) {
		sent = sendto(s, text, sizeof(text), 0, (struct sockaddr *)&all, sizeof(all)) == sizeof(text) ||
		       errno == ENOBUFS;
	}
	close(s);
	return sent;
}

static void test_lost_uevents_are_told_of(void)
{
	struct env_pci_uevent e = {.action = ENV_PCI_UEVENT_ADD};
	int fd = env_pci_uevent_open(), tries = 0;

	if (fd < 0 || !overflow(fd)) {
		close(fd);
		UNIT_SKIP("no uevents may be sent here");
	}
	while (env_pci_uevent_read(fd, &e) == 1 && e.action != ENV_PCI_UEVENT_LOST && tries++ < 1000) {
	}
	CU_ASSERT_EQUAL(e.action, ENV_PCI_UEVENT_LOST);
	close(fd);
}

static const struct unit_test tests[] = {
	UNIT(test_a_crash_handler_is_called_on_its_own_stack),
	UNIT(test_a_signal_that_is_sent_ends_the_process),
	UNIT(test_registers_of_a_removed_device_read_as_ones),
	UNIT(test_write_to_a_removed_device_goes_nowhere),
	UNIT(test_sigbus_elsewhere_is_still_a_crash),
	UNIT(test_registers_are_forgotten_before_they_are_unmapped),
	UNIT(test_uevents_of_pci_devices_are_understood),
	UNIT(test_other_uevents_are_passed_over),
	UNIT(test_truncated_uevent_is_not_read_beyond_its_end),
	UNIT(test_lost_uevents_are_told_of),
	UNIT(test_device_of_a_driver_of_the_kernel_is_refused_with_advice),
	UNIT(test_device_without_a_driver_is_refused_with_advice),
	UNIT(test_no_such_device_is_named),
	UNIT_END,
};
UNIT_MAIN("pci_device", tests, setup, teardown)
