/* SPDX-License-Identifier: BSD-3-Clause */
/* The options that every transport has, and the checks of all options. */
#include "nvmf/transport_options.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "env_dpdk/iobuf.h"
#include "nvmf/internal.h"

#define COMMON(name_, field_, type_, help_, ...)                                                                       \
	{                                                                                                              \
		.name = name_, .type = NVMF_OPTION_##type_, .offset = offsetof(struct nvmf_transport_opts, field_),    \
		.help = help_, ##__VA_ARGS__                                                                           \
	}

/* The names are those of the NVMe specifications' ONCS and FUSES. */
static const struct nvmf_option_bit oncs_bits[] = {
	{"nvmcmps", NVME_CTRL_ONCS_COMPARE},      {"nvmdsmsv", NVME_CTRL_ONCS_DSM},
	{"nvmwzsv", NVME_CTRL_ONCS_WRITE_ZEROES}, {"reservs", NVME_CTRL_ONCS_RESERVATIONS},
	{"nvmcpys", NVME_CTRL_ONCS_COPY},         {NULL, 0},
};
static const struct nvmf_option_bit fuses_bits[] = {{"fcws", NVME_CTRL_FUSES_COMPARE_AND_WRITE}, {NULL, 0}};

/* Queues have 2 to 65536 entries (CAP.MQES), but 65536 does not fit the type; MDTS counts in powers of two of 4096
 * bytes. In the order in which nvmf_get_transports and the help list them. */
static const struct nvmf_transport_option common_options[] = {
	COMMON("max_queue_depth", max_queue_depth, UINT16, "entries of an I/O queue", .min = 2, .max = UINT16_MAX),
	COMMON("max_io_qpairs_per_ctrlr", max_io_qpairs_per_ctrlr, UINT16, "I/O queues of a controller", .min = 1,
	       .max = UINT16_MAX - 1),
	COMMON("in_capsule_data_size", in_capsule_data_size, UINT32, "bytes of data that a command may bring along",
	       .bytes = true),
	COMMON("max_io_size", max_io_size, UINT32, "bytes of one command, a power of two", .bytes = true, .min = 8192,
	       .max = 1 << 30, .power_of_two = true),
	COMMON("io_unit_size", io_unit_size, UINT32, "bytes of one data buffer", .bytes = true),
	COMMON("max_aq_depth", max_aq_depth, UINT32, "entries of an admin queue", .min = 32, .max = 4096),
	COMMON("num_shared_buffers", num_shared_buffers, UINT32,
	       "data buffers of all poll groups together; where they need more, as many as they need", .min = 1,
	       .max = UINT32_MAX),
	COMMON("buf_cache_size", buf_cache_size, UINT32, "the default of the next two"),
	COMMON("iobuf_small_cache_size", iobuf_small_cache_size, UINT32,
	       "small data buffers that each poll group keeps at hand"),
	COMMON("iobuf_large_cache_size", iobuf_large_cache_size, UINT32,
	       "large ones; used when io_unit_size exceeds small_bufsize"),
	COMMON("dif_insert_or_strip", dif_insert_or_strip, BOOL,
	       "hosts see blocks without metadata: made when they write, checked when they read"),
	COMMON("zcopy", zcopy, BOOL,
	       "RDMA: move data straight to and from bdevs whose blocks are memory; no effect over TCP"),
	COMMON("acceptor_backlog", acceptor_backlog, INT32, "connections that may wait to be accepted"),
	COMMON("acceptor_poll_rate", acceptor_poll_rate_us, UINT32,
	       "of transports that look for connections now and then; not looked at: they are taken as they come"),
	COMMON("abort_timeout_sec", abort_timeout_sec, UINT32,
	       "not looked at: an abort ends when the bdev has answered it"),
	COMMON("kas", kas, UINT16, "keep-alive granularity, units of 100 ms"),
	COMMON("min_kato", min_kato_ms, UINT32, "milliseconds that a host's keep-alive timeout is rounded up to"),
	COMMON("max_anonymous", max_anonymous, UINT32,
	       "connections that have not sent Connect, have not authenticated, or only use discovery; 0: no limit",
	       .own = true),
	COMMON("max_anonymous_per_host", max_anonymous_per_host, UINT32, "of these from one address; 0: no limit",
	       .own = true),
	COMMON("ack_timeout", ack_timeout, UINT32,
	       "milliseconds that a host may acknowledge nothing of what it was sent (TCP: take and send too little) "
	       "before it is disconnected; 0: 30000"),
	COMMON("masked_oncs", masked_oncs, BITS,
	       "optional commands that hosts do not see and that are refused: nvmcmps (Compare), nvmdsmsv (Dataset "
	       "Management), nvmwzsv (Write Zeroes), reservs (reservations), nvmcpys (Copy)",
	       .bits = oncs_bits),
	COMMON("masked_fuses", masked_fuses, BITS, "the same of fused commands: fcws (Compare and Write)",
	       .bits = fuses_bits),
};

const struct nvmf_transport_option *nvmf_transport_common_option(unsigned n)
{
	return n < ARRAY_SIZE(common_options) ? &common_options[n] : NULL;
}

static const struct nvmf_transport_option *own_option_at(const struct nvmf_transport_ops *ops, unsigned n)
{
	const struct nvmf_transport_option *o = ops->options;

	while (o != NULL && o->name != NULL && n-- != 0) {
		o++;
	}
	return o != NULL && o->name != NULL ? o : NULL;
}

const struct nvmf_transport_option *nvmf_transport_own_option(const char *trtype, unsigned n)
{
	const struct nvmf_transport_ops *ops = nvmf_transport_ops_find(trtype);

	return ops != NULL ? own_option_at(ops, n) : NULL;
}

const struct nvmf_transport_option *nvmf_transport_option(const char *trtype, unsigned n)
{
	return n < ARRAY_SIZE(common_options)
		       ? &common_options[n]
		       : nvmf_transport_own_option(trtype, n - (unsigned)ARRAY_SIZE(common_options));
}

int64_t nvmf_transport_option_get(const struct nvmf_transport_opts *opts, const struct nvmf_transport_option *option)
{
	const char *at = (const char *)opts + option->offset;

	switch (option->type) {
	case NVMF_OPTION_BOOL:
		return *(const bool *)at;
	case NVMF_OPTION_UINT16:
	case NVMF_OPTION_BITS:
		return *(const uint16_t *)at;
	case NVMF_OPTION_UINT32:
		return *(const uint32_t *)at;
	case NVMF_OPTION_INT32:
		return *(const int32_t *)at;
	case NVMF_OPTION_TYPES:
		break;
	}
	assert(false);
	return 0;
}

void nvmf_transport_option_set(struct nvmf_transport_opts *opts, const struct nvmf_transport_option *option,
			       int64_t value)
{
	char *at = (char *)opts + option->offset;

	switch (option->type) {
	case NVMF_OPTION_BOOL:
		*(bool *)at = value != 0;
		break;
	case NVMF_OPTION_UINT16:
	case NVMF_OPTION_BITS:
		*(uint16_t *)at = (uint16_t)value;
		break;
	case NVMF_OPTION_UINT32:
		*(uint32_t *)at = (uint32_t)value;
		break;
	case NVMF_OPTION_INT32:
		*(int32_t *)at = (int32_t)value;
		break;
	case NVMF_OPTION_TYPES:
		assert(false);
		break;
	}
}

uint16_t nvmf_transport_option_bit(const struct nvmf_transport_option *option, const char *name)
{
	const struct nvmf_option_bit *b = option->bits;

	while (b->name != NULL && strcmp(b->name, name) != 0) {
		b++;
	}
	return b->bit;
}

const char *nvmf_transport_option_bit_names(const struct nvmf_transport_option *option, char *to, size_t size)
{
	size_t len = 0;

	to[0] = '\0';
	for (const struct nvmf_option_bit *b = option->bits; b->name != NULL && len < size; b++) {
		const char *between = b == option->bits ? "" : b[1].name == NULL ? " and " : ", ";
		len += (size_t)snprintf(to + len, size - len, "%s%s", between, b->name);
	}
	return to;
}

/* 10 000 hosts may each have a discovery connection to three ports, and all connect again at once. */
#define MAX_ANONYMOUS          32768
#define MAX_ANONYMOUS_PER_HOST 1024

int nvmf_transport_opts_init(const char *trtype, struct nvmf_transport_opts *opts)
{
	const struct nvmf_transport_ops *ops = nvmf_transport_ops_find(trtype);
	const struct nvmf_transport_option *o;

	if (ops == NULL) {
		return -EINVAL;
	}
	memset(opts, 0, sizeof(*opts));
	opts->max_anonymous = MAX_ANONYMOUS;
	opts->max_anonymous_per_host = MAX_ANONYMOUS_PER_HOST;
	for (unsigned n = 0; (o = own_option_at(ops, n)) != NULL; n++) {
		nvmf_transport_option_set(opts, o, o->initial);
	}
	ops->opts_init(opts);
	return 0;
}

static int check_range(const char *name, int64_t v, int64_t min, int64_t max, bool power_of_two,
		       char why[NVMF_ERROR_MAX])
{
	bool odd = power_of_two && (v & (v - 1)) != 0;

	if (v >= min && v <= max && !odd) {
		return 0;
	}
	snprintf(why, NVMF_ERROR_MAX, "\"%s\" is %" PRId64 ": allowed are %s%" PRId64 " to %" PRId64, name, v,
		 power_of_two ? "powers of two from " : "", min, max);
	return -EINVAL;
}

int nvmf_transport_opts_check(const char *trtype, const struct nvmf_transport_opts *o, char why[NVMF_ERROR_MAX])
{
	const struct nvmf_transport_option *option;

	for (unsigned n = 0; (option = nvmf_transport_option(trtype, n)) != NULL; n++) {
		int64_t value = nvmf_transport_option_get(o, option);
		bool limited = option->min != 0 || option->max != 0;

		if (limited &&
		    check_range(option->name, value, option->min, option->max, option->power_of_two, why) != 0) {
			return -EINVAL;
		}
	}
	if (check_range("io_unit_size", o->io_unit_size, 1, iobuf_size(IOBUF_LARGE), false, why) != 0) {
		return -EINVAL; /* the limit is large_bufsize */
	}
	/* in-capsule data is announced in units of 16 bytes (IOCCSZ) */
	if (o->in_capsule_data_size % 16 != 0 || o->in_capsule_data_size > o->max_io_size) {
		snprintf(why, NVMF_ERROR_MAX,
			 "\"in_capsule_data_size\" is %u: allowed are multiples of 16 up to max_io_size, %u",
			 o->in_capsule_data_size, o->max_io_size);
		return -EINVAL;
	}
	return 0;
}
