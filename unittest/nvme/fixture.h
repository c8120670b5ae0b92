/* SPDX-License-Identifier: BSD-3-Clause */
/* What the driver's tests share: a model, a controller of the driver on it, and the events it sent. Everything runs on
 * the control thread, which is the using thread of the queue pairs too: what happens is the same at each run. */
#ifndef UNITTEST_NVME_FIXTURE_H
#define UNITTEST_NVME_FIXTURE_H

#include "unittest/nvme/model.h"
#include "unittest/unit.h"

#define WAIT_US 120000000 /* deadline of what must happen soon */
#define FX_IOS  128

struct fx_io {
	struct fx_io *self;
	struct iovec iov[16];
	unsigned completions;
	uint16_t status;
	uint8_t *buf; /* DMA-able, 16 KiB */
	struct nvme_request *req;
};

struct fx {
	struct model model;
	struct nvme_ctrlr *ctrlr;
	struct nvme_ctrlr_opts opts;
	struct poller *model_poller, *qpair_poller;
	bool model_idle; /* it had nothing to do in the last round */
	struct nvme_qpair *qpair;
	int create_error;
	bool created, destroyed, stopped;
	bool close_by_event; /* the queue pair ends when the controller goes down */
	unsigned ready, down, retry, failed, removed, ns_changed, logs;
	uint32_t aer;
	int poll_result;
	struct fx_io io[FX_IOS];
};

extern struct fx fx;

int fx_setup(void); /* of the suite */
int fx_teardown(void);
/* A model, not yet attached: the test may change it. Timeouts are so long that a busy machine does not hit them. */
void fx_begin(void);
/* Short timeouts from now on, for tests of what comes after one. */
void fx_be_quick(void);
/* Attaches and waits for READY, FAILED or the first RETRY. */
void fx_connect(void);
/* fx_begin, fx_connect, a queue pair of n entries on the control thread. */
void fx_begin_ready(uint16_t entries);
void fx_create_qpair(uint16_t entries);
/* Ends the queue pair and the controller as users do, checks that the driver kept to the specification, and that each
 * I/O that was submitted has been completed exactly once. */
void fx_end(void);
/* Until the condition holds; false after WAIT_US. */
#define FX_WAIT(condition_)                                                                                            \
	({                                                                                                             \
		uint64_t end_ = env_ticks() + env_us_to_ticks(WAIT_US);                                                \
		while (!(condition_) && env_ticks() < end_) {                                                          \
			fx_wait_round();                                                                               \
		}                                                                                                      \
		(condition_);                                                                                          \
	})
/* One round of the control thread. */
void fx_round(void);
/* The same, and a nap if the model had nothing to do in it. */
void fx_wait_round(void);
/* Submits an I/O of `blocks` blocks at lba to namespace nsid. The result of the submission. */
int fx_submit(unsigned i, uint8_t opcode, uint32_t nsid, uint64_t lba, uint32_t blocks);
int fx_submit_pieces(unsigned i, uint8_t opcode, uint32_t nsid, uint64_t lba, uint32_t blocks, unsigned iovcnt);
/* Runs model and queue pair until there is nothing to do. */
void fx_run(void);

#endif
