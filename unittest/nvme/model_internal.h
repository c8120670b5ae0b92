/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the files of the model. */
#ifndef UNITTEST_NVME_MODEL_INTERNAL_H
#define UNITTEST_NVME_MODEL_INTERNAL_H

#include "unittest/nvme/model.h"

void model_violation(struct model *m, const char *what);
uint64_t model_noise(struct model *m, unsigned bits); /* 0 without noise */
void model_execute(struct model *m, unsigned qid, const struct nvme_sqe *sqe);
void model_admin_command(struct model *m, const struct nvme_sqe *sqe);
void model_io_command(struct model *m, unsigned qid, const struct nvme_sqe *sqe);
bool model_abort_held(struct model *m, uint16_t qid, uint16_t cid);
void model_drop_held(struct model *m, uint16_t qid);
/* Its doorbells begin at 0 when it is created again. */
void model_queue_gone(struct model *m, unsigned qid);

/* Moves len bytes between buf and what the command's data pointer says, checking that as strictly as the specification
 * allows. An NVMe status. */
uint16_t model_move(struct model *m, const struct nvme_sqe *sqe, void *buf, size_t len, bool to_host);

/* Protection information. The CRC of T10 (check value of "123456789": d0dbh). */
uint16_t model_pi_guard(const uint8_t *data, size_t len);
/* Checks what is stored as the command says. */
uint16_t model_pi_check(const struct nvme_sqe *sqe, const struct model_ns *ns, uint64_t lba, uint32_t blocks);
/* Blocks have been zeroed: their metadata follows. */
void model_pi_zeroed(const struct nvme_sqe *sqe, struct model_ns *ns, uint64_t lba, uint32_t blocks);
/* Read, Write and Compare of blocks with metadata. */
uint16_t model_md_move(struct model *m, const struct nvme_sqe *sqe, struct model_ns *ns, uint64_t lba, uint32_t blocks);

#endif
