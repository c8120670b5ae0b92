/* SPDX-License-Identifier: BSD-3-Clause */
/* The daemon's command line. Pure. */
#ifndef APPLIANCE_OPTIONS_H
#define APPLIANCE_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "env_dpdk/env.h"
#include "env_dpdk/startup.h"
#include "thread/thread.h"
#include "trace/trace.h"
#include "util/log.h"

#define APPLIANCE_ERROR_MAX 1024
#define APPLIANCE_PCI_MAX   64
#define APPLIANCE_FLAGS_MAX 32
#define APPLIANCE_NOTES_MAX 8

#define APPLIANCE_TAKEOVER_DEFAULT_S 60
#define APPLIANCE_TAKEOVER_MAX_S     3600

enum appliance_command {
	APPLIANCE_RUN,
	APPLIANCE_HELP,
	APPLIANCE_VERSION,
	APPLIANCE_TRACE_HELP, /* -e help */
	APPLIANCE_CHECK,      /* config_file only */
	APPLIANCE_DESCRIBE,   /* the methods of RPC */
};

/* All strings are those of argv. */
struct appliance_options {
	enum appliance_command command;
	struct env_opts env; /* its lists of PCI devices are those below */
	struct env_startup startup;
	const char *pci[APPLIANCE_PCI_MAX + 1];
	const char *config_file;
	bool ignore_init_errors;
	const char *takeover;     /* the RPC socket of the process to take over from, or NULL */
	uint32_t takeover_s;      /* how long that may take */
	bool takeover_forced;     /* even if something is lost */
	const char *rpc_path;     /* NULL: no RPC server */
	const char *rpcs_allowed; /* the only methods that clients may call, or NULL */
	unsigned rpc_mode;
	uint32_t rpc_deadline_s; /* 0: none */
	bool wait_for_rpc;
	const char *tracepoints; /* as given, or NULL */
	struct trace_masks trace_masks;
	uint32_t trace_entries;
	const char *trace_group; /* Unix group that may read the trace file */
	const char *metrics;     /* where they are served, or NULL */
	enum poll_mode poll_mode;
	bool no_core_locks;
	const char *pid_file; /* or NULL */
	/* Lines for the log about options that were taken and have no effect. */
	const char *notes[APPLIANCE_NOTES_MAX + 1];
	bool limit_coredump;
	enum log_level print_level;
	const char *log_flags[APPLIANCE_FLAGS_MAX + 1];
};

/* Reads the command line into o. 0; or -EINVAL, and error (APPLIANCE_ERROR_MAX bytes) names the option, the value it
 * was given, and the values it takes. */
int appliance_options_parse(int argc, char **argv, struct appliance_options *o, char *error);
/* Prints the text of -h. */
void appliance_options_help(FILE *out);

#endif
