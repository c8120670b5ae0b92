/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of nvmf/ share, by subject: one private header each.
 *
 * Threads: what is not marked otherwise belongs to the control thread. "Group" marks what belongs to a poll group's
 * thread. Two threads exchange objects by thread_post() with a struct thread_msg that is a part of the object, so a
 * message never needs memory and cannot be refused. The control thread may also call into a group and wait for the
 * result (thread_call()); a group never waits for the control thread. */
#ifndef NVMF_INTERNAL_H
#define NVMF_INTERNAL_H

#include <assert.h>
#include <rte_common.h>
#include "dhchap/dhchap.h"
#include "env_dpdk/env.h"
#include "keyring/keyring.h"
#include "nvmf/ana_internal.h"
#include "nvmf/ctrlr_internal.h"
#include "nvmf/nvmf.h"
#include "nvmf/qos_internal.h"
#include "nvmf/request_internal.h"
#include "nvmf/resv_internal.h"
#include "nvmf/subsystem_internal.h"
#include "nvmf/tgt_internal.h"
#include "nvmf/transport.h"
#include "nvmf/view_internal.h"
#include "thread/thread.h"
#include "trace/trace.h"
#include "usdt/usdt.h"
#include "util/compiler.h"
#include "util/log.h"
#include "util/state_machine.h"

/* ---- Notices: nvmf.c ---- */

enum nvmf_notice {
	NVMF_NOTICE_SUBSYSTEM_CREATE,
	NVMF_NOTICE_SUBSYSTEM_DESTROY,
	NVMF_NOTICE_HOST_CONNECT,
	NVMF_NOTICE_HOST_DISCONNECT,
	NVMF_NOTICE_NS_ADD,
	NVMF_NOTICE_NS_REMOVE,
	NVMF_NOTICE_NS_LOST,
	NVMF_NOTICE_NS_RESIZE,
	NVMF_NOTICE_ANA_CHANGE,
	NVMF_NOTICE_HOST_REFUSED,
	NVMF_NOTICE_AUTH_FAILED,
	NVMF_NOTICE_KEEP_ALIVE_EXPIRED,
	NVMF_NOTICE_QUIESCE_LATE,
	NVMF_NOTICE_LISTENER_ADD,
	NVMF_NOTICE_LISTENER_REMOVE,
	NVMF_NOTICE_CROSS_RESET,
	NVMF_NOTICE_CROSS_RESET_DONE,
	NVMF_NOTICE_CROSS_RESET_FAILED,
	NVMF_NOTICES,
};

/* Passes a fault on to the listener of nvmf_set_fault_fn(). */
void nvmf_tell_fault(const struct nvmf_fault *fault);
/* Passes a notice on to the listener of nvmf_set_notice_fn(). why: NULL if there is no reason to tell. */
void nvmf_notice(enum nvmf_notice notice, const char *why, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Whether a notice that anybody on the fabric can cause may be passed on: some at once, and then one in a while, so
 * that they do not displace those that operators wait for. *left_out: how many of its kind were not since the last one.
 */
bool nvmf_notice_budget(enum nvmf_notice notice, uint32_t *left_out);
/* A host was refused: NVMF_NOTICE_HOST_REFUSED or NVMF_NOTICE_AUTH_FAILED. Passed on within the budget. */
void nvmf_notice_refused(enum nvmf_notice notice, const char *subnqn, const char *hostnqn, const char *why);

#endif
