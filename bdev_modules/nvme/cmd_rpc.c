/* SPDX-License-Identifier: BSD-3-Clause */
/* bdev_nvme_send_cmd: a raw command to a controller; command, data and completion are base64url texts (RFC 4648, 5).
 * bdev_nvme_add_error_injection, bdev_nvme_remove_error_injection: commands that end with errors, for tests. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bdev_modules/nvme/nvme_rpc.h"
#include "rpc/base64.h"
#include "thread/thread.h"

enum { CMD_ADMIN, CMD_IO };
enum { DATA_H2C, DATA_C2H };

static const struct rpc_enum cmd_types[] = {{"admin", CMD_ADMIN}, {"io", CMD_IO}, {NULL, 0}};
static const struct rpc_enum directions[] = {{"h2c", DATA_H2C}, {"c2h", DATA_C2H}, {NULL, 0}};

struct send_cmd {
	char *name, *cmdbuf, *data, *metadata;
	int cmd_type, data_direction;
	uint32_t data_len, metadata_len, timeout_ms;
};

#define SEND_CMD(field_, type_, required_, help_, ...)                                                                 \
	RPC_PARAM(struct send_cmd, field_, type_, required_, help_, ##__VA_ARGS__)
static const struct rpc_param send_cmd_params[] = {
	SEND_CMD(name, RPC_STRING, RPC_REQUIRED, "name of the controller"),
	SEND_CMD(cmd_type, RPC_ENUM, RPC_REQUIRED, "admin queue or I/O queue", .enums = cmd_types),
	SEND_CMD(data_direction, RPC_ENUM, RPC_REQUIRED, "h2c: to the controller, c2h: from it", .enums = directions),
	SEND_CMD(cmdbuf, RPC_STRING, RPC_REQUIRED,
		 "the 64 bytes of the command, as base64url; command id and data pointers are filled in"),
	SEND_CMD(data, RPC_STRING, RPC_OPTIONAL, "h2c: the data, as base64url"),
	SEND_CMD(data_len, RPC_UINT32, RPC_OPTIONAL, "c2h: bytes of data to read", .bytes = true,
		 .max = BDEV_NVME_RAW_MAX),
	SEND_CMD(metadata, RPC_STRING, RPC_OPTIONAL, "h2c: separate metadata, as base64url (io, on PCIe)"),
	SEND_CMD(metadata_len, RPC_UINT32, RPC_OPTIONAL, "c2h: bytes of separate metadata to read",
		 .max = BDEV_NVME_RAW_MAX),
	SEND_CMD(timeout_ms, RPC_UINT32, RPC_OPTIONAL,
		 "time after which the call fails if the controller has not answered; the command itself "
		 "stays outstanding until the controller's timeouts end it (default 0: no limit of the call)"),
	RPC_PARAM_END,
};

struct call {
	struct rpc_request *req; /* NULL: answered */
	uint32_t timeout_ms;
	struct thread_timer timer;
	struct bdev_nvme_raw raw;
};

static void send_cmd_free(struct call *c)
{
	thread_timer_stop(&c->timer);
	free(c->raw.data);
	free(c->raw.md);
	free(c);
}

static json_t *send_cmd_base64(const void *data, size_t len)
{
	char *text = base64url_encode(data, len);
	json_t *o = text ? json_string(text) : NULL;

	free(text);
	return o;
}

static void send_cmd_completed(void *arg, int rc, const struct nvme_cqe *cqe)
{
	struct call *c = arg;

	if (c->req == NULL) {
		send_cmd_free(c);
		return;
	}
	if (rc != 0) {
		rpc_error(c->req, rc, "the command cannot be sent: %s",
			  rc == -ENXIO     ? "the controller is not connected"
			  : rc == -ENOTSUP ? "separate metadata is for I/O commands on PCIe"
					   : strerror(-rc));
		send_cmd_free(c);
		return;
	}
	json_t *o = json_object();
	json_object_set_new(o, "cpl", send_cmd_base64(cqe, sizeof(*cqe)));
	if (!c->raw.to_device && c->raw.data_len != 0) {
		json_object_set_new(o, "data", send_cmd_base64(c->raw.data, c->raw.data_len));
	}
	if (!c->raw.to_device && c->raw.md_len != 0) {
		json_object_set_new(o, "metadata", send_cmd_base64(c->raw.md, c->raw.md_len));
	}
	rpc_reply(c->req, o);
	send_cmd_free(c);
}

/* The call is answered; its buffers are kept until the command ends. */
static void send_cmd_timed_out(void *arg)
{
	struct call *c = arg;

	rpc_error(c->req, -ETIMEDOUT, "no completion within the %u ms of timeout_ms; the command is still under way",
		  c->timeout_ms);
	c->req = NULL;
}

/* Makes one of the two buffers: the bytes of text for the controller, or zeroes to be read into. False: text is not
 * base64url, or its length is not allowed. */
static bool send_cmd_decode_buffer(bool to_device, const char *text, uint32_t wanted, void **buffer,
				   uint32_t *buffer_len)
{
	size_t len = wanted;

	if (!to_device) {
		*buffer_len = wanted;
		*buffer = wanted ? calloc(1, wanted) : NULL;
		return wanted == 0 || *buffer != NULL;
	}
	if (text == NULL) {
		return true;
	}
	*buffer = base64url_decode(text, &len);
	*buffer_len = (uint32_t)len;
	return *buffer != NULL && len <= BDEV_NVME_RAW_MAX && (wanted == 0 || wanted == len);
}

/* NULL, or what is wrong with the parameters. */
static const char *send_cmd_decode(const struct send_cmd *p, struct bdev_nvme_raw *raw)
{
	size_t len = 0;
	uint8_t *cmd = base64url_decode(p->cmdbuf, &len);

	if (cmd == NULL || len != sizeof(raw->cmd)) {
		free(cmd);
		return "cmdbuf: must be 64 bytes as base64url";
	}
	memcpy(&raw->cmd, cmd, sizeof(raw->cmd));
	free(cmd);
	raw->io = p->cmd_type == CMD_IO;
	raw->to_device = p->data_direction == DATA_H2C;
	if (!send_cmd_decode_buffer(raw->to_device, p->data, p->data_len, &raw->data, &raw->data_len)) {
		return "data: must be base64url of at most 1 MiB, and of data_len bytes if that is given";
	}
	if (!send_cmd_decode_buffer(raw->to_device, p->metadata, p->metadata_len, &raw->md, &raw->md_len)) {
		return "metadata: must be base64url of at most 1 MiB, and of metadata_len bytes if that is given";
	}
	return NULL;
}

static void rpc_bdev_nvme_send_cmd(struct rpc_request *req, void *params)
{
	const struct send_cmd *p = params;
	struct bdev_nvme *ctrlr = bdev_nvme_rpc_find(req, p->name);

	if (ctrlr == NULL) {
		return;
	}
	struct call *c = calloc(1, sizeof(*c));
	const char *wrong = c ? send_cmd_decode(p, &c->raw) : "out of memory";
	if (wrong != NULL) {
		rpc_error(req, RPC_ERROR_INVALID_PARAMS, "%s", wrong);
		if (c != NULL) {
			send_cmd_free(c);
		}
		return;
	}
	c->req = req;
	c->timeout_ms = p->timeout_ms;
	c->timer = (struct thread_timer){.fn = send_cmd_timed_out, .arg = c};
	if (p->timeout_ms != 0) {
		thread_timer_start(&c->timer, p->timeout_ms * UINT64_C(1000));
	}
	bdev_nvme_send(ctrlr, &c->raw, send_cmd_completed, c); /* may call send_cmd_completed() before it returns */
}

static bool send_cmd_has_own_time(const void *params)
{
	return ((const struct send_cmd *)params)->timeout_ms != 0;
}
RPC_METHOD("bdev_nvme_send_cmd", rpc_bdev_nvme_send_cmd, struct send_cmd, send_cmd_params, RPC_RUNTIME,
	   "Send a raw command to an NVMe controller, and answer with its completion",
	   .has_own_time = send_cmd_has_own_time, .result = "{cpl: string, data?: string, metadata?: string}")

/* --- Error injection --- */

struct add_injection {
	char *name;
	int cmd_type;
	uint8_t opc, sct, sc;
	bool do_not_submit;
	uint64_t timeout_in_us;
	uint32_t err_count;
};

#define INJECTION(field_, type_, required_, help_, ...)                                                                \
	RPC_PARAM(struct add_injection, field_, type_, required_, help_, ##__VA_ARGS__)
static const struct rpc_param add_injection_params[] = {
	INJECTION(name, RPC_STRING, RPC_REQUIRED, "name of the controller"),
	INJECTION(cmd_type, RPC_ENUM, RPC_REQUIRED, "commands of the admin queue or of I/O queues", .enums = cmd_types),
	INJECTION(opc, RPC_UINT8, RPC_REQUIRED, "opcode of the commands; replaces an earlier injection for it"),
	INJECTION(do_not_submit, RPC_BOOL, RPC_OPTIONAL,
		  "do not send the commands (default false: they are carried out, and their status is replaced)"),
	INJECTION(timeout_in_us, RPC_UINT64, RPC_OPTIONAL,
		  "with do_not_submit: time after which the commands are completed (default 0)",
		  .max = NVME_INJECTION_DELAY_MAX_US),
	INJECTION(err_count, RPC_UINT32, RPC_OPTIONAL, "how many commands (default 1)"),
	INJECTION(sct, RPC_UINT8, RPC_OPTIONAL, "status code type (default 0)", .max = 7),
	INJECTION(sc, RPC_UINT8, RPC_OPTIONAL, "status code (default 0: success)"),
	RPC_PARAM_END,
};

static void add_injection_defaults(void *params)
{
	((struct add_injection *)params)->err_count = 1;
}

/* The driver's controller, or NULL after answering that it is gone. */
static struct nvme_ctrlr *injection_find_ctrlr(struct rpc_request *req, const char *name)
{
	struct bdev_nvme *c = bdev_nvme_rpc_find(req, name);

	if (c != NULL && bdev_nvme_ctrlr(c) == NULL) {
		rpc_error(req, -ENODEV, "name: the controller '%s' is being detached", name);
	}
	return c != NULL ? bdev_nvme_ctrlr(c) : NULL;
}

static void rpc_bdev_nvme_add_error_injection(struct rpc_request *req, void *params)
{
	const struct add_injection *p = params;
	const struct nvme_injection i = {
		.io = p->cmd_type == CMD_IO,
		.opcode = p->opc,
		.hold = p->do_not_submit,
		.delay_us = p->timeout_in_us,
		.times = p->err_count,
		.status = (uint16_t)(p->sct << 8 | p->sc),
	};
	struct nvme_ctrlr *ctrlr = injection_find_ctrlr(req, p->name);

	if (ctrlr == NULL) {
		return;
	}
	if (p->timeout_in_us != 0 && !p->do_not_submit) {
		rpc_error(req, RPC_ERROR_INVALID_PARAMS, "timeout_in_us %lu: only with do_not_submit",
			  p->timeout_in_us);
		return;
	}
	int rc = nvme_ctrlr_inject(ctrlr, &i);
	if (rc == 0) {
		rpc_reply_true(req);
	} else {
		rpc_error(req, rc, "%s", strerror(-rc));
	}
}
RPC_METHOD("bdev_nvme_add_error_injection", rpc_bdev_nvme_add_error_injection, struct add_injection,
	   add_injection_params, RPC_RUNTIME, "Let commands to an NVMe controller end with the given status",
	   .defaults = add_injection_defaults, .result = "true")

struct remove_injection {
	char *name;
	int cmd_type;
	uint8_t opc;
};

static const struct rpc_param remove_injection_params[] = {
	RPC_PARAM(struct remove_injection, name, RPC_STRING, RPC_REQUIRED, "name of the controller"),
	RPC_PARAM(struct remove_injection, cmd_type, RPC_ENUM, RPC_REQUIRED,
		  "commands of the admin queue or of I/O queues", .enums = cmd_types),
	RPC_PARAM(struct remove_injection, opc, RPC_UINT8, RPC_REQUIRED, "opcode of the commands"),
	RPC_PARAM_END,
};

static void rpc_bdev_nvme_remove_error_injection(struct rpc_request *req, void *params)
{
	const struct remove_injection *p = params;
	struct nvme_ctrlr *ctrlr = injection_find_ctrlr(req, p->name);

	if (ctrlr == NULL) {
		return;
	}
	if (nvme_ctrlr_inject_end(ctrlr, p->cmd_type == CMD_IO, p->opc) == 0) {
		rpc_reply_true(req);
	} else {
		rpc_error(req, -ENOENT, "opc %u: no error is injected for it, or it has been used up", p->opc);
	}
}
RPC_METHOD("bdev_nvme_remove_error_injection", rpc_bdev_nvme_remove_error_injection, struct remove_injection,
	   remove_injection_params, RPC_RUNTIME, "Remove an injection of bdev_nvme_add_error_injection",
	   .result = "true")
