/* SPDX-License-Identifier: BSD-3-Clause */
/* A transport of the NVMe host over the tests' loop transport: controllers of remote targets that are in the same
 * process. An address is TARGET.ADDRESS, such as "T1.here" and the service id "1"; without a target it is the first
 * one's. Data go through memory of the wire, so that what a target still carries out when its host has given the
 * connection up does no harm to the host. */
#ifndef UNITTEST_OVERLAP_WIRE_H
#define UNITTEST_OVERLAP_WIRE_H

#include <stdbool.h>
#include <stddef.h>

struct nvmf_address;

#define OV_WIRE_ADDRESS_MAX 288

/* How a connection is lost. */
enum ov_loss {
	OV_LOSS_BOTH,   /* both sides notice at once */
	OV_LOSS_HOST,   /* the host notices at once, the target by its keep-alive timer */
	OV_LOSS_SILENT, /* nobody notices but by keep-alive timers */
	OV_LOSSES,
};

void ov_wire_reset(void);
/* How a transport address of target t is written for hosts. */
void ov_wire_address(unsigned t, const struct nvmf_address *address, char text[OV_WIRE_ADDRESS_MAX]);
/* Loses the connections of a controller: of those that there are, number says which one. whole: all of it. */
void ov_wire_lose(unsigned number, enum ov_loss how, bool whole);
/* Targets notice all losses. */
void ov_wire_heal(void);
/* Hangs up what hosts have left, and frees what has ended. Control thread. */
void ov_wire_advance(void);
/* Answers have arrived that no host has read yet. */
bool ov_wire_has_answers(void);
/* Nothing is left of any connection. */
bool ov_wire_is_gone(void);
void ov_wire_print(void);

#endif
