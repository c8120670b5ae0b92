/* SPDX-License-Identifier: BSD-3-Clause */
/* A controller that is reached over NVMe/TCP: a listener on the loopback device and an OS thread of its own, with one
 * namespace of PEER_BLOCKS blocks in memory. It obeys the rules, except at one point that a test chooses. */
#ifndef UNITTEST_NVME_TCP_PEER_H
#define UNITTEST_NVME_TCP_PEER_H

#include <stdbool.h>
#include <stdint.h>

#include "nvme/spec.h"
#include "tcp/pdu.h"

#define PEER_BLOCK  512u
#define PEER_BLOCKS 4096u

/* What it does wrong, once, with the next I/O command of the kind that it fits. */
enum peer_evil {
	PEER_GOOD,
	/* reads */
	PEER_DATA_CCCID,    /* C2HData for a command id that is not outstanding */
	PEER_DATA_OFFSET,   /* that does not begin at 0 */
	PEER_DATA_MORE,     /* with more data than the command reads */
	PEER_DATA_AGAIN,    /* a second one, behind that with LAST_PDU */
	PEER_DATA_LENGTH,   /* whose DATAL is not what follows */
	PEER_DATA_SUCCESS,  /* SUCCESS with half of the data */
	PEER_DATA_TO_WRITE, /* C2HData for a write */
	PEER_DATA_DIGEST,   /* a wrong data digest */
	PEER_HALF,          /* a success after half of the data */
	PEER_HEADER_DIGEST,
	PEER_RESP_CID,   /* a response for a command id that is not outstanding */
	PEER_RESP_TWICE, /* two responses */
	PEER_TYPE,       /* a PDU of a type that a controller does not send */
	PEER_UNKNOWN,    /* of a type that there is not */
	PEER_ICRESP,     /* a second ICResp */
	PEER_HLEN,
	PEER_PLEN,
	PEER_PDO,
	PEER_TERM,        /* a TermReq of its own */
	PEER_CLOSE,       /* the connection ends within a PDU */
	PEER_R2T_TO_READ, /* an R2T for a read */
	/* writes */
	PEER_R2T_CCCID,
	PEER_R2T_OFFSET,
	PEER_R2T_MORE,      /* than the command has */
	PEER_R2T_ZERO,      /* for no byte */
	PEER_R2T_MANY,      /* more at a time than the host takes */
	PEER_WRITE_SUCCESS, /* before it has asked for the data */
	PEER_WRITE_ERROR,   /* an error, while the host still sends what it was asked for; which is no fault */
	PEER_MUTE           /* takes nothing from its socket any more */
};

struct peer {
	/* set before peer_start(), or while no command is outstanding */
	bool refuse_digests; /* ICResp has none */
	bool mute_icresp;    /* there is no ICResp */
	bool wrong_icresp;   /* with MAXH2CDATA 16 */
	bool term_icresp;    /* a TermReq instead */
	uint8_t cpda;
	uint32_t max_h2c_data;
	uint32_t in_capsule; /* bytes of data that an I/O capsule may have */
	uint32_t r2t_bytes;  /* of one R2T */
	uint32_t r2ts;       /* outstanding of a command */
	uint32_t c2h_bytes;  /* of one C2HData */
	bool success;        /* the last C2HData has SUCCESS */
	uint16_t evil_qid;   /* of the queue that does wrong; 0: the admin queue, at Identify */
	int evil;            /* enum peer_evil; atomic. 0 again when it was done */
	/* seen; atomic */
	unsigned connections, capsules_with_data, r2ts_sent, h2c_pdus;
	uint32_t wrong; /* PDUs of the host that break a rule; or data that does not fit its digest */
	/* of the TermReq that has come last; atomic: `terms` is counted last */
	unsigned terms;
	uint16_t term_fes;
	uint32_t term_fei;
	uint8_t term_type; /* of the PDU in error */
	uint16_t port;
	uint8_t disk[PEER_BLOCK * PEER_BLOCKS];
};
extern struct peer peer;

/* Makes `peer` one with usual values, and starts its thread. */
void peer_start(void);
/* Ends all connections, and the thread. */
void peer_stop(void);
/* Ends all connections; later ones are accepted. */
void peer_drop_all(void);

#endif
