/* SPDX-License-Identifier: BSD-3-Clause */
/* Options of transports, as tables. nvmf_create_transport decodes and checks them, shows them in its help, in
 * nvmf_get_transports and in the saved configuration, all from these tables: an option is one line in one of them.
 *
 * Some options hold for every transport (nvmf/transport_options.c); a transport declares the others itself:
 *
 *     struct nvmf_rdma_opts {
 *         int32_t num_cqe;
 *         bool no_srq;
 *     };
 *     #define OPTION(field_, type_, initial_, help_) \
 *         NVMF_TRANSPORT_OPTION(struct nvmf_rdma_opts, field_, NVMF_OPTION_##type_, initial_, help_)
 *     static const struct nvmf_transport_option options[] = {
 *         OPTION(num_cqe, INT32, 4096, "entries of a completion queue"),
 *         OPTION(no_srq, BOOL, false, "a receive queue for each connection"),
 *         {0},
 *     };
 *     static struct nvmf_transport_ops nvmf_rdma_ops = {.options = options, ...};
 *
 * and finds the values at opts->own. Two transports may declare an option of the same name, of the same type. */
#ifndef NVMF_TRANSPORT_OPTIONS_H
#define NVMF_TRANSPORT_OPTIONS_H

#include "nvmf/nvmf.h"

/* The C type of an option's field. */
enum nvmf_option_type {
	NVMF_OPTION_BOOL,
	NVMF_OPTION_UINT16,
	NVMF_OPTION_UINT32,
	NVMF_OPTION_INT32,
	NVMF_OPTION_BITS, /* uint16_t; to users a list of the names of its bits */
	NVMF_OPTION_TYPES,
};

/* A bit of an option of type NVMF_OPTION_BITS. */
struct nvmf_option_bit {
	const char *name; /* NULL ends a table */
	uint16_t bit;
};

/* The most that the metadata of a namespace may add to its data: a quarter, as 128 bytes for each block of 512. */
#define NVMF_MD_SHARE 4
/* The bytes that a command of max_io_size bytes of data can transfer: metadata come on top of them, because MDTS leaves
 * them out (Identify Controller, CTRATT.MEM). Any thread. */
static inline uint32_t nvmf_max_transfer(uint32_t max_io_size)
{
	return max_io_size + max_io_size / NVMF_MD_SHARE;
}

struct nvmf_transport_option {
	const char *name; /* as the parameter of nvmf_create_transport; NULL ends a table */
	const char *help; /* for people who have not read the code: meaning, unit, special values */
	enum nvmf_option_type type;
	uint16_t offset;  /* of the field in struct nvmf_transport_opts */
	int64_t initial;  /* its value where none is given; of common options the transport says it (opts_init) */
	int64_t min, max; /* the range that is allowed; both 0: whatever the type holds */
	const struct nvmf_option_bit *bits; /* NVMF_OPTION_BITS: all that it may have */
	bool power_of_two;
	bool own;   /* SPDK has no such option: rpc/own.h */
	bool bytes; /* a number of bytes */
};

/* A line of a transport's table. type_: its own struct; further fields of the option may follow help_. */
#define NVMF_TRANSPORT_OPTION(type_, field_, option_type_, initial_, help_, ...)                                       \
	{                                                                                                              \
		.name = #field_, .type = option_type_, .initial = initial_, .help = help_,                             \
		.offset = offsetof(struct nvmf_transport_opts, own) + offsetof(type_, field_) +                        \
			  0 * sizeof(char[sizeof(type_) <= NVMF_OWN_OPTS_SIZE ? 1 : -1]),                              \
		##__VA_ARGS__                                                                                          \
	}

/* Line n of the table of options that every transport has; NULL: there are no more. Any thread. */
const struct nvmf_transport_option *nvmf_transport_common_option(unsigned n);
/* Line n of a transport type's own table; NULL: there are no more, or there is no such type. Any thread. */
const struct nvmf_transport_option *nvmf_transport_own_option(const char *trtype, unsigned n);
/* Line n of both tables one after the other, the common one first; NULL: there are no more. Any thread. */
const struct nvmf_transport_option *nvmf_transport_option(const char *trtype, unsigned n);

/* The value of an option of one of opts' own transport's tables. Any thread. */
int64_t nvmf_transport_option_get(const struct nvmf_transport_opts *opts, const struct nvmf_transport_option *option);
/* Sets it. value: within the type; nvmf_transport_opts_check() finds values out of the allowed range. Any thread. */
void nvmf_transport_option_set(struct nvmf_transport_opts *opts, const struct nvmf_transport_option *option,
			       int64_t value);
/* The bit of that name of an option of type NVMF_OPTION_BITS; 0: it has none. Any thread. */
uint16_t nvmf_transport_option_bit(const struct nvmf_transport_option *option, const char *name);
/* Writes the names of its bits, "a, b and c". Returns to. Any thread. */
const char *nvmf_transport_option_bit_names(const struct nvmf_transport_option *option, char *to, size_t size);

#endif
