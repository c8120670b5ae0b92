/* SPDX-License-Identifier: BSD-3-Clause */
/* usdt-target PROBE...: says `ready`, waits for a line on its standard input, fires the probes that shipped scripts use
 * a known number of times with known arguments, says `fired`, and ends when its standard input does. For tests of
 * tracers and scripts. A tracer must be attached to each of the probes named by then, or it says so. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "usdt/usdt.h"

static const struct {
	const char *name;
	const unsigned short *semaphore;
} probes[] = {
#define USDT_PROBE(name_, ...) {#name_, &varve_##name_##_semaphore},
#include "usdt/probes.def"
};

static bool is_attached(const char *name)
{
	for (size_t i = 0; i < sizeof(probes) / sizeof(probes[0]); i++) {
		if (strcmp(probes[i].name, name) == 0) {
			return __atomic_load_n(probes[i].semaphore, __ATOMIC_RELAXED) != 0;
		}
	}
	return false;
}

/* 1000 reads, of which 10 fail with status 0x281 and 1 takes 2^40 ticks; 500 writes. */
static void fire_bdev(void)
{
	for (uint64_t i = 0; i < 1000; i++) {
		USDT(bdev_io_submit, "Malloc0", 1, 8 * i, 8);
		USDT(bdev_io_done, "Malloc0", 1, 8 * i, 8,
		     usdt_result(i % 100 == 50 ? 0x281 : 0, i == 77 ? 1ull << 40 : 1000));
	}
	for (uint64_t i = 0; i < 500; i++) {
		USDT(bdev_io_submit, "Null0", 2, i, 1);
		USDT(bdev_io_done, "Null0", 2, i, 1, usdt_result(0, 1000));
	}
}

static void fire_nvmf(const char *subnqn, const char *hostnqn)
{
	USDT(nvmf_tgt_state, 0);
	USDT(nvmf_subsystem_change_state, subnqn, 1, 0);
	USDT(nvmf_pg_change_state, subnqn, 1, 2);
	USDT(nvmf_pg_change_state_done, subnqn, 1, 2);
	USDT(nvmf_subsystem_change_state_done, subnqn, 1, 0, 0);
	USDT(nvmf_subsystem_change_state_done, subnqn, 2, 1, -16);
	USDT(nvmf_ctrlr_state, (const void *)0xc0de, subnqn, hostnqn, 0, 1);
	USDT(nvmf_qpair_state, (const void *)0xbeef, 3, hostnqn, 1, 2);
}

/* Five requests from arrival to end, and one that stays EXECUTING. */
static void fire_requests(const char *hostnqn)
{
	for (uint32_t cid = 0; cid < 6; cid++) {
		USDT(nvmf_req_state, hostnqn, 1, cid, 2, usdt_states(31, 0));
		USDT(nvmf_req_state, hostnqn, 1, cid, 2, usdt_states(0, 5));
		if (cid < 5) {
			USDT(nvmf_req_state, hostnqn, 1, cid, 2, usdt_states(5, 11));
			USDT(nvmf_req_state, hostnqn, 1, cid, 2, usdt_states(11, 31));
		}
	}
	USDT(buffer_wait, "nvmf_RDMA", hostnqn, 65536);
}

/* A controller is lost, cannot be reached, and is there again. */
static void fire_loss(const char *ctrlr)
{
	USDT(bdev_nvme_ctrlr_reset, ctrlr);
	USDT(bdev_nvme_ctrlr_reconnect_delay, ctrlr);
	USDT(bdev_nvme_ctrlr_reconnect, ctrlr);
}

/* System calls: three readv() of 16 bytes, and one that fails with EBADF. */
static bool call_readv(void)
{
	char text[48] = "", part[16];
	struct iovec iov = {part, sizeof(part)};
	int fds[2];
	bool ok = pipe(fds) == 0 && write(fds[1], text, sizeof(text)) == (ssize_t)sizeof(text);

	for (int i = 0; i < 3; i++) {
		ok = ok && readv(fds[0], &iov, 1) == (ssize_t)sizeof(part);
	}
	return ok && readv(-1, &iov, 1) < 0 && close(fds[0]) == 0 && close(fds[1]) == 0;
}

static void a_message(void)
{
}

static void wait_line(void)
{
	int c;

	do {
		c = getchar();
	} while (c != EOF && c != '\n');
}

int main(int argc, char **argv)
{
	printf("ready\n");
	fflush(stdout);
	wait_line();
	for (int i = 1; i < argc; i++) {
		if (!is_attached(argv[i])) {
			printf("nobody is attached to %s\n", argv[i]);
			return 1;
		}
	}
	USDT(test_none);
	USDT(test_args, "a string", -5, UINT64_MAX - 1, (const void *)0x123456789abc);
	USDT(appliance_state, 1, 2);
	for (int i = 0; i < 3; i++) {
		USDT(rpc_begin, "bdev_get_bdevs");
		USDT(rpc_end, "bdev_get_bdevs", -19, 250);
		USDT(thread_send_msg, 1, 2, (const void *)a_message);
		USDT(msg_exec, (const void *)a_message, NULL);
		USDT(event_exec, (const void *)a_message, (const void *)0xa, NULL);
		USDT(timerfd_exec, (const void *)a_message, NULL);
		USDT(interrupt_fd_process, "listener", 7, (const void *)a_message, NULL);
	}
	USDT(dynsched_move, 7, "worker", 3, 0);
	USDT(dynsched_balance, 9, 1);
	USDT(dynsched_balance, 9, 0);
	fire_bdev();
	fire_requests("nqn.host");
	fire_nvmf("nqn.2014-08.org.nvmexpress.discovery", "nqn.host");
	USDT(nvme_ctrlr_state, "0000:01:00.0", "", 0, 1);
	USDT(nvme_qpair_state, "0000:01:00.0", 3, 1, 2);
	USDT(nvme_cmd_submit, NULL, 1, 2, 3, 4);
	USDT(nvme_cmd_complete, NULL, 1, 2, 3, usdt_result(0, 5));
	fire_loss("Nvme0");
	if (!call_readv()) {
		printf("readv() does not do what it should\n");
		return 1;
	}
	printf("fired\n");
	fflush(stdout);
	wait_line();
	return 0;
}
