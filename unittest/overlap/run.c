/* SPDX-License-Identifier: BSD-3-Clause */
/* One interleaving: made from a seed, carried out, and checked at its end. */
#include <stdarg.h>

#include "bdev/qos_group.h"
#include "bdev/vbdev/waiting.h"
#include "unittest/overlap/model.h"
#include "unittest/overlap/overlap.h"
#include "unittest/overlap/wire.h"

#define STEPS_MAX    24
#define SETTLE_STEPS 200000
#define QUIESCE_US   (UINT64_C(600) * 1000000) /* of virtual time, within which everything ends */
#define SLICE_US     UINT64_C(1000000)

const char *const ov_kind_names[OV_KINDS] = {
#define X(name_, weight_, args_) [OV_##name_] = #name_,
	OV_OPS(X)
#undef X
};

static const uint8_t kind_weights[OV_KINDS] = {
#define X(name_, weight_, args_) [OV_##name_] = weight_,
	OV_OPS(X)
#undef X
};

bool ov_verbose, ov_plant_hang;
static unsigned op_number;
static unsigned base_threads;

void ov_say(const char *fmt, ...)
{
	va_list ap;

	if (ov_verbose) {
		va_start(ap, fmt);
		fprintf(stderr, "%9lu us  ", (unsigned long)sim_now_us());
		vfprintf(stderr, fmt, ap);
		fputc('\n', stderr);
		va_end(ap);
	}
}

void ov_fail(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fprintf(stderr, "OVERLAP: ");
	vfprintf(stderr, fmt, ap);
	fputc('\n', stderr);
	va_end(ap);
	abort();
}

uint64_t ov_random(uint64_t *state)
{
	return fixture_random(state);
}

/* ---- Operations of a seed ---- */

/* What the operations of a seed are about: each kind's weight is multiplied. */
enum theme {
	THEME_ALL,
	THEME_CONCENTRATED, /* on one target and two of its subsystems */
	THEME_MANAGEMENT,
	THEME_RESERVATIONS,
	THEME_PREEMPTION,
	THEME_CROSS_RESETS,
	THEME_STACKS,  /* bdevs on bdevs that come and go */
	THEME_REMOTES, /* controllers of remote targets, with a front before them */
	THEME_REMOTE_WRITES,
	THEMES,
};

static unsigned kind_weight(enum theme theme, unsigned k)
{
	unsigned w = kind_weights[k];
	bool of_cross_reset = k == OV_ccr || k == OV_ccr_log || k == OV_peer_answer || k == OV_connect || k == OV_io ||
			      k == OV_bdev_stick || k == OV_bdev_unstick || k == OV_silence || k == OV_die ||
			      k == OV_reset;
	bool of_remote = (k >= OV_remote_attach && k <= OV_discovery_stop) || k == OV_ns_remote || k == OV_host_keys;
	bool of_ns = k == OV_ns_add || k == OV_ns_remove || k == OV_bdev_stick || k == OV_bdev_unstick || k == OV_io;

	if (of_remote && theme < THEME_REMOTES) {
		return theme == THEME_ALL ? (w + 3) / 4 : 0;
	}
	switch (theme) {
	case THEME_REMOTES:
		return of_remote || k == OV_host_add            ? w * 4
		       : of_ns || k == OV_time || k == OV_abort ? w * 2
								: (w + 1) / 2;
	case THEME_REMOTE_WRITES:
		return k == OV_remote_lose || k == OV_remote_reset || k == OV_ccr ? w * 5
		       : k == OV_io || k == OV_time || k == OV_bdev_stick         ? w * 3
		       : of_remote || k == OV_bdev_unstick || k == OV_connect     ? w
		       : k == OV_ns_remove || k == OV_listener_remove || k == OV_listener_ana || k == OV_peer_answer ||
				       k == OV_listener_add
			       ? w
			       : 0;
	case THEME_MANAGEMENT:
		return k < OV_bdev_create ? w * 3 : w;
	case THEME_RESERVATIONS:
		return k == OV_resv || of_ns ? w * 3 : k <= OV_sub_delete ? 0 : (w + 2) / 4;
	case THEME_STACKS:
		return k >= OV_stack_create && k <= OV_stack_fault                             ? w * 10
		       : of_ns || (k >= OV_bdev_create && k <= OV_bdev_reset) || k == OV_abort ? w * 3
		       : k == OV_connect || k == OV_leave || k == OV_die                       ? w
											       : (w + 3) / 4;
	case THEME_CROSS_RESETS:
		return of_cross_reset ? w * 3 : (w + 2) / 4;
	default:
		return w;
	}
}

static uint8_t pick_kind(enum theme theme, uint64_t *state)
{
	unsigned total = 0, k = 0;

	for (unsigned i = 0; i < OV_KINDS; i++) {
		total += kind_weight(theme, i);
	}
	for (unsigned n = (unsigned)(ov_random(state) % total); n >= kind_weight(theme, k); k++) {
		n -= kind_weight(theme, k);
	}
	return (uint8_t)k;
}

static void op_fill(struct ov_op *op, uint64_t *state)
{
	uint64_t r = ov_random(state);

	for (unsigned i = 0; i < OV_ARGS; i++) {
		op->a[i] = (uint8_t)(r >> (8 * i));
	}
	if (r >> 61 != 0 && op->kind != OV_connect) { /* most are about what is there at the beginning */
		op->a[0] = op->kind < OV_bdev_create ? (r >> 59 & 3) == 0 : op->a[0];
		op->a[1] = op->kind < OV_bdev_create ? op->a[1] % 2 : op->a[1];
		op->a[2] = op->kind >= OV_connect ? op->a[2] % 2 : op->a[2];
	}
	/* Some operations come at once, most soon, some when all has settled. */
	op->steps = r >> 40 & 3 ? (uint16_t)((r >> 42) % STEPS_MAX) : r >> 50 & 1 ? 400 : 0;
	op->seed = ov_random(state);
}

/* Some namespaces have a file for their reservations, and some hosts want theirs to be kept there. */
static void op_may_persist(struct ov_op *op, uint64_t r)
{
	if (op->kind == OV_ns_add && (r & 1) != 0) {
		op->a[4] |= 2;
	} else if (op->kind == OV_resv && (r & 2) != 0) {
		op->a[4] |= 1;
	}
}

/* Objects to begin with, most of them. */
static unsigned generate_setup(uint64_t *state, struct ov_op *ops)
{
	static const struct ov_op setup[] = {
		{OV_tgt_create, {0}},          {OV_tgt_create, {1}},          {OV_transport_create, {0}},
		{OV_transport_create, {1}},    {OV_bdev_create, {0, 1}},      {OV_bdev_create, {1, 2}},
		{OV_bdev_create, {2, 3}},      {OV_bdev_create, {3, 0}},      {OV_bdev_create, {4, 3}},
		{OV_sub_create, {0, 0, 1}},    {OV_sub_create, {0, 1, 5}},    {OV_sub_create, {1, 0, 1}},
		{OV_listener_add, {0, 0, 0}},  {OV_listener_add, {0, 1, 0}},  {OV_listener_add, {0, 1, 1}},
		{OV_listener_add, {1, 0, 0}},  {OV_ns_add, {0, 0, 0, 0}},     {OV_ns_add, {0, 0, 1, 1}},
		{OV_ns_add, {0, 1, 0, 2}},     {OV_ns_add, {0, 1, 1, 3}},     {OV_ns_add, {1, 0, 0, 4}},
		{OV_connect, {0, 0, 0, 0, 4}}, {OV_connect, {1, 0, 0, 0, 9}}, {OV_connect, {2, 0, 1, 1, 6}},
		{OV_connect, {3, 1, 0, 0, 4}},
	};
	unsigned n = 0;

	for (unsigned i = 0; i < sizeof(setup) / sizeof(setup[0]); i++) {
		uint64_t r = ov_random(state);
		if (r % 16 != 0) {
			ops[n] = setup[i];
			op_may_persist(&ops[n], r >> 12);
			ops[n].steps = (uint16_t)(r >> 8 & 15);
			ops[n++].seed = ov_random(state);
		}
	}
	return n;
}

/* Hosts register, so that the rest of their reservation commands means something. */
static unsigned generate_registrations(uint64_t *state, struct ov_op *ops, unsigned n)
{
	for (uint8_t i = 0; i < 6; i++) {
		ops[n++] = (struct ov_op){
			.kind = OV_resv, .a = {i % 2, 0, i / 2}, .steps = i == 0 ? 400 : 8, .seed = ov_random(state)};
		op_may_persist(&ops[n - 1], ops[n - 1].seed);
	}
	return n;
}

/* One host with controllers of both targets, which are each other's peers. */
#define CROSS_HOST 4
static unsigned generate_peers(uint64_t *state, struct ov_op *ops, unsigned n)
{
	static const struct ov_op setup[] = {
		{OV_peer_add, {0, 0, 1}},
		{OV_peer_add, {1, 0, 0}},
		{OV_connect, {4, 0, 0, 0, CROSS_HOST}},
		{OV_connect, {5, 0, 0, 0, CROSS_HOST}},
	};

	for (unsigned i = 0; i < sizeof(setup) / sizeof(setup[0]); i++) {
		ops[n] = setup[i];
		ops[n].steps = 8;
		ops[n++].seed = ov_random(state);
	}
	return n;
}

/* Bdevs on others: one on a base that comes later, one on that one, and a namespace on top. */
static unsigned generate_stacks(uint64_t *state, struct ov_op *ops, unsigned n)
{
	static const struct ov_op setup[] = {
		{OV_stack_create, {OV_STACKED_DELAY, 5}},
		{OV_stack_create, {OV_STACKED_ERROR_ON_DELAY}},
		{OV_bdev_create, {5, 1}},
		{OV_ns_add, {0, 0, 2, OV_DISKS + OV_STACKED_ERROR_ON_DELAY}},
		{OV_stack_create, {OV_STACKED_PASSTHRU, 4}},
		/* In half of them the base goes while I/O waits in it: its group allows one per second. */
		{OV_bdev_group, {5, 0, MODEL_GROUP_CREATE}},
		{OV_bdev_group, {5, 0, MODEL_GROUP_JOIN}, 60},
		{OV_bdev_group, {5, 0, MODEL_GROUP_LIMIT + 8}},
		{OV_io, {0, 0, 2, 0}},
		{OV_io, {0, 1, 2, 0}},
		{OV_io, {1, 0, 2, 0}},
		{OV_io, {0, 1, 2, 0}},
		{OV_bdev_delete, {5}, 60},
		{OV_bdev_create, {5, 1}, 60},
	};
	bool base_goes = ov_random(state) % 2 == 0;

	for (unsigned i = 0; i < sizeof(setup) / sizeof(setup[0]); i++) {
		if (setup[i].kind == OV_bdev_group && !base_goes) {
			break;
		}
		ops[n] = setup[i];
		ops[n].steps = (uint16_t)(ops[n].steps + 8);
		ops[n++].seed = ov_random(state);
	}
	return n;
}

/* A front, which is a subsystem of target 0, of two namespaces that subsystem 2 of both targets exports: bdevs 0 and 1,
 * which are one store, and 2. */
static unsigned generate_front(uint64_t *state, struct ov_op *ops)
{
	static const struct ov_op setup[] = {
		{OV_tgt_create, {0}},
		{OV_tgt_create, {1}},
		{OV_transport_create, {0}},
		{OV_transport_create, {1}},
		{OV_bdev_create, {0, 3}},
		{OV_bdev_create, {1, 1}},
		{OV_bdev_create, {2, 2}},
		{OV_sub_create, {1, OV_BACK, 5}},
		{OV_sub_create, {0, OV_BACK, 5}},
		{OV_host_add, {1, OV_BACK, 0, 1}},
		{OV_host_add, {0, OV_BACK, 0, 1}},
		{OV_listener_add, {1, OV_BACK, 0}},
		{OV_listener_add, {1, OV_BACK, 1}},
		{OV_listener_add, {0, OV_BACK, 0}},
		{OV_ns_add, {1, OV_BACK, 0, 0}},
		{OV_ns_add, {0, OV_BACK, 0, 1}},
		{OV_ns_add, {1, OV_BACK, 1, 2}},
		{OV_peer_add, {0, OV_BACK, 1}},
		{OV_peer_add, {1, OV_BACK, 0}},
		{OV_sub_create, {0, 0, 1}},
		{OV_listener_add, {0, 0, 0}},
		{OV_remote_attach, {0, 1, 0, 3 << 2, 3}},
		{OV_time, {5}},
		{OV_remote_attach, {0, 0, 0, 3 << 2, 2}},
		{OV_time, {5}},
		{OV_ns_remote, {0, 0, 0, 0}},
		{OV_ns_remote, {0, 0, 1, 1}},
		{OV_connect, {0, 0, 0, 0, 4}},
		{OV_connect, {1, 0, 0, 0, 9}},
		{OV_time, {2}},
	};
	unsigned n = 0;

	for (unsigned i = 0; i < sizeof(setup) / sizeof(setup[0]); i++) {
		uint64_t r = ov_random(state);
		if (r % 16 == 0 || (setup[i].kind == OV_host_add && r % 4 != 0) ||
		    (setup[i].kind == OV_peer_add && r % 4 == 0) || (i == 23 && r % 4 == 0)) {
			continue;
		}
		ops[n] = setup[i];
		ops[n].steps = (uint16_t)(r >> 8 & 15);
		ops[n++].seed = ov_random(state);
	}
	return n;
}

/* Most is about the front's hosts and namespaces, and about what is behind them. */
static void op_concentrate_on_front(struct ov_op *op, bool writes)
{
	if (op->kind == OV_connect) {
		op->a[1] = op->a[2] = op->a[3] = 0;
	} else if (op->kind == OV_remote_attach) {
		op->a[0] = (op->a[0] & 3) == 0;
		op->a[3] = (uint8_t)(op->a[3] & ~3); /* one host, mostly with the right key */
	} else if (op->kind == OV_ns_remote) {
		op->a[0] = op->a[1] = 0;
	} else if (op->kind < OV_bdev_create) {
		op->a[1] = OV_BACK;
		op->a[2] = (uint8_t)(op->a[2] % 2);
	} else if (op->kind == OV_io) {
		op->a[1] = writes ? 1 : op->a[1];
		op->a[2] = (uint8_t)(op->a[2] % 2);
	} else if (op->kind == OV_bdev_stick || op->kind == OV_bdev_unstick || op->kind == OV_remote_detach) {
		op->a[0] = (uint8_t)(op->a[0] % 2);
	} else if (op->kind == OV_time) {
		op->a[0] = (uint8_t)(op->a[0] % 6 + 1);
	}
}

/* Most stand on the same few. */
static void op_concentrate_stack(struct ov_op *op)
{
	static const uint8_t bases[] = {
		5, 5, 0, OV_DISKS, OV_DISKS + OV_STACKED_ERROR_ON_DELAY, OV_DISKS + OV_STACKED_PASSTHRU};

	if (op->kind == OV_stack_create) {
		op->a[1] = bases[op->a[1] % sizeof(bases)];
	} else if (op->kind == OV_bdev_create || op->kind == OV_bdev_delete) {
		op->a[0] = (op->a[0] & 1) != 0 ? 5 : 0;
	} else if (op->kind == OV_bdev_group) {
		op->a[0] = bases[op->a[0] % sizeof(bases)];
	} else if (op->kind == OV_ns_add) {
		op->a[3] = (uint8_t)(OV_DISKS + op->a[3] % OV_STACKED);
	} else if (op->kind == OV_connect) {
		op->a[1] = op->a[2] = 0;
	}
}

static void op_concentrate_on_host(struct ov_op *op)
{
	static const uint8_t of_host[] = {0, 4, 5, 3}; /* its associations */

	if (op->kind == OV_connect) {
		op->a[1] %= OV_TGTS;
		op->a[2] = op->a[3] = 0;
		op->a[4] = CROSS_HOST;
		return;
	}
	op->a[0] = op->kind >= OV_leave ? of_host[op->a[0] % 4] : op->a[0];
	if (op->kind == OV_ccr) {
		op->a[1] = of_host[op->a[1] % 4];
	} else if (op->kind == OV_io) {
		op->a[1] = 1; /* writes */
		op->a[2] %= 2;
	}
}

/* Three namespaces with I/O that does not end, of two hosts that have registered; and then what may happen to them. */
static const struct ov_op preemption_setup[] = {
	{OV_bdev_create, {5, 1}},     {OV_bdev_create, {4, 1}},     {OV_ns_add, {0, 0, 0, 0, 4}},
	{OV_ns_add, {0, 0, 1, 1, 4}}, {OV_ns_add, {0, 0, 2, 4, 4}}, {OV_resv, {0, 0, 0}, 100},
	{OV_resv, {1, 0, 0}},         {OV_resv, {0, 0, 1}},         {OV_resv, {1, 0, 1}},
	{OV_bdev_stick, {0, 0}, 60},  {OV_bdev_stick, {1, 0}},      {OV_bdev_stick, {4, 0}},
	{OV_bdev_stick, {5, 0}},      {OV_io, {0, 0, 0, 0}},        {OV_io, {0, 0, 1, 0}},
	{OV_io, {1, 0, 2, 0}},
};
#define PREEMPTION_OPS 12

static void op_fill_preemption(struct ov_op *op, uint64_t *state)
{
	static const uint8_t kinds[] = {OV_ns_remove, OV_ns_remove,    OV_ns_remove,    OV_ns_remove, OV_resv,
					OV_resv,      OV_ns_add,       OV_ns_add,       OV_ns_add,    OV_io,
					OV_io,        OV_bdev_unstick, OV_bdev_unstick, OV_bdev_stick};

	uint64_t r = ov_random(state);

	*op = (struct ov_op){
		.kind = kinds[r % sizeof(kinds)], .steps = (uint16_t)(r >> 8 & 31), .seed = ov_random(state)};
	if (op->kind == OV_ns_add || op->kind == OV_ns_remove) {
		op->a[2] = (uint8_t)((r >> 16) % 3);
		op->a[3] = (uint8_t)((r >> 20) % 5);
		op->a[4] = 4;             /* whichever bdev is free */
	} else if (op->kind == OV_resv) { /* Preempt and Abort of the other host */
		op->a[0] = r >> 16 & 1;
		op->a[1] = 6;
		op->a[2] = (uint8_t)((r >> 20) % 3);
		op->a[3] = op->a[0];
	} else {
		op->a[0] = (uint8_t)((r >> 16) % OV_DISKS);
		op->a[1] = (uint8_t)((r >> 20) % 2);
		op->a[2] = (uint8_t)((r >> 24) % 3);
	}
}

/* A story around which chance plays: namespaces are removed one after the other, a host preempts in between, and a
 * number is used again. */
static unsigned generate_story(uint64_t *state, struct ov_op *ops, unsigned n)
{
	static const uint8_t bdev_of[] = {0, 1, 4};
	uint64_t r = ov_random(state);
	uint8_t x = (uint8_t)(r % 3), y = (uint8_t)((x + 1 + (r >> 8) % 2) % 3), z = (uint8_t)(3 - x - y),
		h = r >> 16 & 1;
	const struct ov_op story[] = {
		{OV_ns_remove, {0, 0, x}},        {OV_ns_remove, {0, 0, y}},       {OV_ns_remove, {0, 0, z}},
		{OV_resv, {h, 6, y, h}},          {OV_bdev_unstick, {bdev_of[y]}}, {OV_bdev_unstick, {bdev_of[x]}, 60},
		{OV_ns_add, {0, 0, y, 5, 4}, 60}, {OV_io, {h, 0, y, 0}},           {OV_bdev_unstick, {bdev_of[z]}, 60},
	};
	unsigned first = n;

	for (unsigned i = 0; i < sizeof(story) / sizeof(story[0]); i++) {
		r = ov_random(state);
		if (r % 8 == 0) {
			op_fill_preemption(&ops[n++], state);
		}
		if ((r >> 8) % 12 != 0) {
			ops[n] = story[i];
			ops[n].steps = (uint16_t)(ops[n].steps + (r >> 16) % 16);
			ops[n++].seed = ov_random(state);
		}
		if ((r >> 24) % 12 == 0 && n > first + 1) {
			struct ov_op last = ops[n - 1];
			ops[n - 1] = ops[n - 2];
			ops[n - 2] = last;
		}
	}
	return n;
}

static unsigned generate_preemptions(uint64_t *state, struct ov_op *ops, unsigned n, unsigned wanted)
{
	unsigned setup = sizeof(preemption_setup) / sizeof(preemption_setup[0]);

	while (n + setup + 2 * PREEMPTION_OPS + OV_DISKS < wanted) {
		for (unsigned i = 0; i < setup; i++) {
			ops[n] = preemption_setup[i];
			op_may_persist(&ops[n], ov_random(state));
			ops[n].steps = (uint16_t)(ops[n].steps + 8);
			ops[n++].seed = ov_random(state);
		}
		if (ov_random(state) % 2 == 0) {
			n = generate_story(state, ops, n);
		}
		for (unsigned i = 0; i < PREEMPTION_OPS; i++) {
			op_fill_preemption(&ops[n++], state);
		}
		for (uint8_t b = 0; b < OV_DISKS; b++) {
			ops[n++] =
				(struct ov_op){.kind = OV_bdev_unstick, .a = {b}, .steps = 2, .seed = ov_random(state)};
		}
	}
	return n;
}

/* The fewer objects, the more overlaps. */
static void op_concentrate(struct ov_op *op, unsigned subs, unsigned nsids)
{
	bool of_host = op->kind >= OV_connect;

	if (op->kind == OV_connect) {
		op->a[1] = op->a[2] = 0;
	} else if (of_host) {
		op->a[0] %= 3;
	} else if (op->kind < OV_bdev_create) {
		op->a[0] = 0;
		op->a[1] = (uint8_t)(op->a[1] % subs);
	}
	if (op->kind == OV_io || op->kind == OV_resv || (op->kind >= OV_ns_add && op->kind <= OV_ns_host_remove)) {
		op->a[2] = (uint8_t)(op->a[2] % nsids);
	}
}

unsigned ov_generate(uint64_t seed, unsigned wanted, struct ov_op *ops)
{
	uint64_t mixed = seed,
		 state = ov_random(&mixed); /* else the numbers of a seed are its neighbour's, but for one */
	enum theme theme = (enum theme)(ov_random(&state) % THEMES);
	bool remote = theme == THEME_REMOTES || theme == THEME_REMOTE_WRITES;
	unsigned n = remote ? generate_front(&state, ops) : generate_setup(&state, ops);

	if (theme == THEME_RESERVATIONS) {
		n = generate_registrations(&state, ops, n);
	}
	if (theme == THEME_CROSS_RESETS) {
		n = generate_peers(&state, ops, n);
	}
	if (theme == THEME_STACKS) {
		n = generate_stacks(&state, ops, n);
	}
	if (theme == THEME_PREEMPTION) {
		n = generate_preemptions(&state, ops, n, wanted);
	}
	for (; n + 1 < wanted && n < OV_OPS_MAX - 1; n++) {
		ops[n].kind = pick_kind(theme, &state);
		op_fill(&ops[n], &state);
		if (theme == THEME_CROSS_RESETS && ov_random(&state) % 8 != 0) {
			op_concentrate_on_host(&ops[n]);
		}
		if (remote && ov_random(&state) % 8 != 0) {
			op_concentrate_on_front(&ops[n], theme == THEME_REMOTE_WRITES);
		}
		if (theme == THEME_STACKS && ov_random(&state) % 4 != 0) {
			op_concentrate_stack(&ops[n]);
		}
		if ((theme == THEME_CONCENTRATED || theme == THEME_RESERVATIONS) && ov_random(&state) % 8 != 0) {
			op_concentrate(&ops[n], theme == THEME_RESERVATIONS ? 1 : 2,
				       theme == THEME_RESERVATIONS ? 3 : OV_NSIDS);
		}
	}
	if (ov_random(&state) % 2 == 0) { /* otherwise everything is deleted while hosts are connected */
		ops[n++] = (struct ov_op){.kind = OV_leave_all, .steps = 400, .seed = seed};
	}
	return n;
}

/* ---- Carrying out ---- */

static unsigned count_threads(void)
{
	unsigned n = 0;

	for (struct thread *t = thread_next(NULL); t != NULL; t = thread_next(t)) {
		n++;
	}
	return n;
}

void ov_start(void)
{
	if (fixture_start() != 0) {
		ov_fail("the fixture does not start");
	}
	state_machine_abort = true;
	ov_peers_start();
	ov_keys_start();
	base_threads = count_threads();
}

void ov_stop(void)
{
	ov_keys_stop();
	if (fixture_stop() != 0) {
		ov_fail("the fixture does not stop");
	}
}

static void steps(unsigned n)
{
	while (n-- > 0) {
		sim_step();
	}
}

static void advance(void)
{
	sim_enter_control();
	ov_hosts_advance();
	ov_wire_advance();
	ov_check();
	sim_leave_control();
}

static void do_time(const struct ov_op *op)
{
	static const uint32_t ms[] = {0, 1, 10, 100, 1000, 5000, 20000, 130000};

	if (op->kind == OV_absence) {
		sim_be_absent(ms[op->a[0] % 8] * UINT64_C(1000));
		return;
	}
	uint64_t end = sim_now_us() + ms[op->a[0] % 8] * UINT64_C(1000);
	while (sim_now_us() < end) {
		uint64_t left = end - sim_now_us();
		sim_pass_time(left < SLICE_US ? left : SLICE_US);
		steps(STEPS_MAX);
		advance();
	}
}

static void carry_out(const struct ov_op *op)
{
	sim_seed(op->seed);
	steps(op->steps);
	advance();
	if (op->kind == OV_time || op->kind == OV_absence) {
		do_time(op);
		return;
	}
	sim_enter_control();
	ov_say("%s %u %u %u %u %u", ov_kind_names[op->kind], op->a[0], op->a[1], op->a[2], op->a[3], op->a[4]);
	if (!ov_control_do(op) && !ov_host_do(op)) {
		ov_fail("no such operation: %u", op->kind);
	}
	sim_leave_control();
}

/* ---- The end ---- */

static void resumed(void *arg, int status)
{
}

static bool resume_is_queued(const struct nvmf_subsystem *s)
{
	const struct nvmf_op *op;

	STAILQ_FOREACH (op, &s->ops, link) {
		if (op->kind == NVMF_OP_RESUME) {
			return true;
		}
	}
	return false;
}

/* What a test has held back must not wait any more. */
static void let_all_end(void)
{
	ov_slowdevs_unstick();
	ov_stacks_release();
	ov_peers_end();
	ov_remotes_release();
	ov_control_lift_limits();
	if (atomic_load(&loop_hold_data)) {
		ov_host_do(&(struct ov_op){.kind = OV_data_release});
	}
	for (struct nvmf_tgt *tgt = nvmf_tgt_next(NULL); tgt != NULL; tgt = nvmf_tgt_next(tgt)) {
		for (struct nvmf_subsystem *s = nvmf_subsystem_next(tgt, NULL); s != NULL;
		     s = nvmf_subsystem_next(tgt, s)) {
			if (s->state == NVMF_SUBSYSTEM_PAUSED && !resume_is_queued(s)) {
				nvmf_subsystem_resume(s, resumed, NULL);
			}
		}
	}
}

/* Controllers whose end has begun go too: what hosts have sent has ended. */
static bool a_controller_is_going(void)
{
	const struct nvmf_ctrlr *ctrlr;

	for (struct nvmf_tgt *tgt = nvmf_tgt_next(NULL); tgt != NULL; tgt = nvmf_tgt_next(tgt)) {
		for (struct nvmf_subsystem *s = nvmf_subsystem_next(tgt, NULL); s != NULL;
		     s = nvmf_subsystem_next(tgt, s)) {
			TAILQ_FOREACH (ctrlr, &s->ctrlrs, link) {
				if (ctrlr->state == NVMF_CTRLR_DESTROYING) {
					return true;
				}
			}
		}
	}
	return false;
}

static bool all_has_ended(void)
{
	return ov_control_outstanding() == 0 && ov_hosts_outstanding() == 0 && sim_pending() == 0 &&
	       !a_controller_is_going() && !ov_peers_are_asked() && !ov_wire_has_answers() && ov_remotes_agree();
}

static bool all_is_gone(void)
{
	return all_has_ended() && ov_hosts_gone() && ov_remotes_gone() && bdev_next(NULL) == NULL &&
	       bdev_qos_group_next(NULL) == NULL && vbdev_waiting_next(NULL) == NULL && nvmf_tgt_next(NULL) == NULL;
}

static void wait_until(bool (*fn)(void), const char *what)
{
	uint64_t end = sim_now_us() + QUIESCE_US;

	for (;;) {
		if (!sim_settle(SETTLE_STEPS)) {
			ov_fail("%s: messages without end", what);
		}
		sim_enter_control();
		let_all_end();
		ov_hosts_advance();
		ov_wire_advance();
		ov_check();
		bool ended = fn() && sim_pending() == 0;
		sim_leave_control();
		if (ended) {
			return;
		}
		if (sim_now_us() > end) {
			ov_control_print();
			ov_hosts_print();
			ov_remotes_print();
			ov_fail("%s does not happen: %u calls, %u commands and connections wait", what,
				ov_control_outstanding(), ov_hosts_outstanding());
		}
		if (ov_wire_has_answers()) { /* who polls for them makes no message of it */
			steps(STEPS_MAX);
		} else if (sim_pending() == 0) {
			sim_pass_time(SLICE_US);
		}
	}
}

static void check_nothing_left(void)
{
	if (atomic_load(&loop_requests) != 0 || atomic_load(&loop_qpairs) != 0) {
		ov_fail("left behind: %u requests, %u queue pairs", atomic_load(&loop_requests),
			atomic_load(&loop_qpairs));
	}
	if (count_threads() != base_threads) {
		ov_fail("left behind: %u threads", count_threads() - base_threads);
	}
}

unsigned ov_running(void)
{
	return op_number;
}

void ov_run(const struct ov_op *ops, unsigned n)
{
	sim_reset();
	sim_enter_control();
	ov_control_reset();
	ov_hosts_reset();
	ov_wire_reset();
	ov_slowdevs_reset();
	sim_leave_control();
	for (op_number = 1; op_number <= n; op_number++) {
		carry_out(&ops[op_number - 1]);
		while (ov_plant_hang && op_number == n / 2) {
			sim_step();
		}
	}
	sim_enter_control();
	ov_control_give_access();
	sim_leave_control();
	wait_until(all_has_ended, "the end of all operations");
	sim_enter_control();
	ov_control_compare();
	ov_say("all has ended; now everything is deleted");
	if (n % 4 < 2) { /* otherwise their bdevs go first */
		ov_control_delete_groups();
	}
	if (n % 2 == 0) { /* otherwise their targets go first */
		ov_remotes_delete();
	}
	ov_control_delete_targets();
	ov_control_delete_bdevs();
	sim_leave_control();
	wait_until(all_has_ended, "the end of the deletions");
	sim_enter_control();
	ov_hosts_leave();
	ov_remotes_delete();
	ov_control_delete_groups();
	sim_leave_control();
	wait_until(all_is_gone, "the end of everything");
	check_nothing_left();
}
