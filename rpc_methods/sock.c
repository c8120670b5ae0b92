/* SPDX-License-Identifier: BSD-3-Clause */
/* sock_*: options of the sockets of NVMe/TCP. varve has the kernel's sockets only, which are "posix". Options of the
 * others that configurations have, and those that mean nothing here, are kept and told again, so that they can be
 * saved, and have no effect. */
#include <string.h>

#include "rpc/rpc.h"
#include "tcp/socket.h"
#include "util/compiler.h"
#include "util/log.h"

/* In the order of SPDK's saved files. */
enum sock_field {
	RECV,
	SEND,
	PIPE,
	QUICKACK,
	PLACEMENT,
	ZC_SERVER,
	ZC_CLIENT,
	ZC_THRESHOLD,
	TLS_VERSION,
	KTLS,
	FIELDS
};

struct sock_options {
	char *impl_name;
	uint32_t recv_buf_size, send_buf_size, enable_placement_id, zerocopy_threshold, tls_version;
	bool enable_recv_pipe, enable_quickack, enable_zerocopy_send_server, enable_zerocopy_send_client, enable_ktls;
	bool given[FIELDS];
};

#define SOCK_FIELD(index_, field_, is_number_, effective_)                                                             \
	[index_] = {#field_, offsetof(struct sock_options, field_), is_number_, effective_}
static const struct {
	const char *name;
	size_t offset;
	bool is_number; /* uint32_t; else bool */
	bool effective; /* of posix */
} fields[FIELDS] = {
	SOCK_FIELD(RECV, recv_buf_size, true, true),
	SOCK_FIELD(SEND, send_buf_size, true, true),
	SOCK_FIELD(PIPE, enable_recv_pipe, false, false),
	SOCK_FIELD(QUICKACK, enable_quickack, false, false),
	SOCK_FIELD(PLACEMENT, enable_placement_id, true, true),
	SOCK_FIELD(ZC_SERVER, enable_zerocopy_send_server, false, true),
	SOCK_FIELD(ZC_CLIENT, enable_zerocopy_send_client, false, true),
	SOCK_FIELD(ZC_THRESHOLD, zerocopy_threshold, true, true),
	SOCK_FIELD(TLS_VERSION, tls_version, true, false),
	SOCK_FIELD(KTLS, enable_ktls, false, true),
};

/* What calls have given; the first is posix, the second ssl. impl_name is not used. */
static struct sock_impl {
	const char *name;
	struct sock_options options;
	bool is_set;
} impls[] = {{.name = "posix"}, {.name = "ssl"}, {.name = "uring"}};

static const struct sock_impl *default_impl = &impls[0];
static bool default_is_set;

static uint32_t sock_value(const struct sock_options *o, unsigned i)
{
	const char *at = (const char *)o + fields[i].offset;

	return fields[i].is_number ? *(const uint32_t *)at : *(const bool *)at;
}

static void sock_put_value(struct sock_options *o, unsigned i, uint32_t value)
{
	char *at = (char *)o + fields[i].offset;

	if (fields[i].is_number) {
		*(uint32_t *)at = value;
	} else {
		*(bool *)at = value != 0;
	}
}

static json_t *sock_value_json(const struct sock_options *o, unsigned i)
{
	return fields[i].is_number ? rpc_uint(sock_value(o, i)) : json_boolean(sock_value(o, i) != 0);
}

/* NULL: there is none of that name, and the call has been answered. */
static struct sock_impl *sock_find_impl(struct rpc_request *req, const char *name)
{
	for (unsigned i = 0; i < ARRAY_SIZE(impls); i++) {
		if (strcmp(impls[i].name, name) == 0) {
			return &impls[i];
		}
	}
	rpc_error(req, RPC_ERROR_INVALID_PARAMS,
		  "impl_name is \"%s\": allowed are \"posix\", and without effect "
		  "\"ssl\" and \"uring\"",
		  name);
	return NULL;
}

#define SOCK_PARAM(index_, field_, type_, help_, ...)                                                                  \
	RPC_PARAM(struct sock_options, field_, type_, RPC_OPTIONAL, help_,                                             \
		  .given_offset = offsetof(struct sock_options, given) + (index_) * sizeof(bool), ##__VA_ARGS__)

static const struct rpc_param sock_impl_params[] = {
	RPC_PARAM(
		struct sock_options, impl_name, RPC_STRING, RPC_REQUIRED,
		"posix; options of ssl and uring are kept without effect, but for ssl's enable_ktls: connections with "
		"TLS have those of posix"),
	SOCK_PARAM(RECV, recv_buf_size, RPC_UINT32,
		   "SO_RCVBUF of the connections' sockets in bytes; 0: as the kernel chooses and changes it",
		   .bytes = true, .max = TCP_SOCKET_BUFFER_MAX),
	SOCK_PARAM(SEND, send_buf_size, RPC_UINT32, "SO_SNDBUF in bytes; 0: as the kernel chooses and changes it",
		   .bytes = true, .max = TCP_SOCKET_BUFFER_MAX),
	SOCK_PARAM(PIPE, enable_recv_pipe, RPC_BOOL, "no effect: data are received into their place"),
	SOCK_PARAM(QUICKACK, enable_quickack, RPC_BOOL,
		   "no effect: Linux begins each connection so, and goes on by what comes"),
	SOCK_PARAM(
		PLACEMENT, enable_placement_id, RPC_UINT32,
		"connections of the target for which the kernel tells the same number go to the same poll group: 1: "
		"of the network device's queue (SO_INCOMING_NAPI_ID), 2: of the CPU (SO_INCOMING_CPU); 0: they go to "
		"the poll group with the fewest; 3 (a mark) has no effect"),
	SOCK_PARAM(ZC_SERVER, enable_zerocopy_send_server, RPC_BOOL,
		   "MSG_ZEROCOPY: the target's kernel sends the data of large reads without a copy, but for those over "
		   "TLS"),
	SOCK_PARAM(ZC_CLIENT, enable_zerocopy_send_client, RPC_BOOL,
		   "the same of the data of large writes of this process as a host"),
	SOCK_PARAM(ZC_THRESHOLD, zerocopy_threshold, RPC_UINT32,
		   "bytes from which on data are not copied: of a command of the target, of a PDU of a host; at least "
		   "4096; 0: 16384",
		   .bytes = true),
	SOCK_PARAM(TLS_VERSION, tls_version, RPC_UINT32, "no effect: NVMe/TCP has TLS 1.3"),
	SOCK_PARAM(KTLS, enable_ktls, RPC_BOOL,
		   "new connections over TLS, of the target and of this process as a host, are encrypted and decrypted "
		   "by the "
		   "kernel (its module tls) where it can, else by OpenSSL; it has an effect if given for posix or for "
		   "ssl"),
	RPC_PARAM_END};

static bool sock_asks_in_vain(const struct sock_impl *impl, const struct sock_options *o)
{
	bool is_ssl = impl == &impls[1], vain = impl != &impls[0] && !(is_ssl && o->given[KTLS]);

	for (unsigned i = 0; i < FIELDS; i++) {
		bool effective = is_ssl ? i == KTLS : fields[i].effective;

		vain = vain || (o->given[i] && !effective && sock_value(o, i) != 0);
	}
	return vain || (o->given[PLACEMENT] && o->enable_placement_id > TCP_PLACEMENT_CPU);
}

static void sock_use_options(void)
{
	const struct sock_options *o = &impls[0].options;

	tcp_socket_set_opts(&(struct tcp_socket_opts){.recv_buf_size = o->recv_buf_size,
						      .send_buf_size = o->send_buf_size,
						      .zerocopy_server = o->enable_zerocopy_send_server,
						      .zerocopy_client = o->enable_zerocopy_send_client,
						      .zerocopy_threshold = o->zerocopy_threshold,
						      .ktls = o->enable_ktls || impls[1].options.enable_ktls,
						      .placement = o->enable_placement_id});
}

static void rpc_sock_impl_set_options(struct rpc_request *req, void *params)
{
	static bool told;
	const struct sock_options *o = params;
	struct sock_impl *impl = sock_find_impl(req, o->impl_name);

	if (impl == NULL) {
		return;
	}
	for (unsigned i = 0; i < FIELDS; i++) {
		if (o->given[i]) {
			impl->options.given[i] = true;
			sock_put_value(&impl->options, i, sock_value(o, i));
		}
	}
	impl->is_set = true;
	if (!told && sock_asks_in_vain(impl, o)) {
		log_notice(
			"sock_impl_set_options: of \"posix\" the sizes of buffers, placement by 1 or 2, zero copy and "
			"enable_ktls have an effect, of \"ssl\" enable_ktls; all else is taken without effect");
		told = true;
	}
	sock_use_options();
	rpc_reply_true(req);
}
RPC_METHOD("sock_impl_set_options", rpc_sock_impl_set_options, struct sock_options, sock_impl_params, RPC_STARTUP,
	   "Set options of the sockets of NVMe/TCP, of the target and of hosts; what is not given stays as it is",
	   .result = "true")

struct sock_name {
	char *impl_name;
};

static const struct rpc_param sock_name_params[] = {RPC_PARAM(struct sock_name, impl_name, RPC_STRING, RPC_REQUIRED,
							      "posix; ssl and uring are kept without effect"),
						    RPC_PARAM_END};

static void rpc_sock_impl_get_options(struct rpc_request *req, void *params)
{
	const struct sock_impl *impl = sock_find_impl(req, ((struct sock_name *)params)->impl_name);

	if (impl == NULL) {
		return;
	}
	json_t *o = json_object();
	for (unsigned i = 0; i < FIELDS; i++) {
		json_object_set_new(o, fields[i].name, sock_value_json(&impl->options, i));
	}
	rpc_reply(req, o);
}
RPC_METHOD("sock_impl_get_options", rpc_sock_impl_get_options, struct sock_name, sock_name_params,
	   RPC_STARTUP | RPC_RUNTIME, "Tell what sock_impl_set_options has set; 0 or false where it has set nothing",
	   .result = "{recv_buf_size: int, send_buf_size: int, enable_recv_pipe: bool, enable_quickack: bool, "
		     "enable_placement_id: int, enable_zerocopy_send_server: bool, enable_zerocopy_send_client: bool, "
		     "zerocopy_threshold: int, tls_version: int, enable_ktls: bool}")

static void rpc_sock_set_default_impl(struct rpc_request *req, void *params)
{
	static bool told;
	const struct sock_impl *impl = sock_find_impl(req, ((struct sock_name *)params)->impl_name);

	if (impl == NULL) {
		return;
	}
	default_impl = impl;
	default_is_set = true;
	if (impl != &impls[0] && !told) {
		log_notice("sock_set_default_impl is taken without effect: NVMe/TCP uses the kernel's sockets");
		told = true;
	}
	rpc_reply_true(req);
}
RPC_METHOD("sock_set_default_impl", rpc_sock_set_default_impl, struct sock_name, sock_name_params, RPC_STARTUP,
	   "Without effect, for configurations of other targets: NVMe/TCP uses the kernel's sockets", .result = "true")

static void rpc_sock_get_default_impl(struct rpc_request *req, void *params)
{
	rpc_reply(req, json_pack("{s:s}", "impl_name", default_impl->name));
}
RPC_METHOD("sock_get_default_impl", rpc_sock_get_default_impl, struct rpc_no_params, NULL, RPC_STARTUP | RPC_RUNTIME,
	   "Tell the name that sock_set_default_impl has set, or posix", .result = "{impl_name: string}")

static void sock_write_config(json_t *methods)
{
	if (default_is_set) {
		rpc_config_add(methods, "sock_set_default_impl", json_pack("{s:s}", "impl_name", default_impl->name));
	}
	for (unsigned i = 0; i < ARRAY_SIZE(impls); i++) {
		if (!impls[i].is_set) {
			continue;
		}
		json_t *params = json_pack("{s:s}", "impl_name", impls[i].name);
		for (unsigned f = 0; f < FIELDS; f++) {
			if (impls[i].options.given[f]) {
				json_object_set_new(params, fields[f].name, sock_value_json(&impls[i].options, f));
			}
		}
		rpc_config_add(methods, "sock_impl_set_options", params);
	}
}

static struct rpc_config sock_config = {.name = "sock", .write = sock_write_config};

__attribute__((constructor)) static void sock_register_config(void)
{
	rpc_config_register(&sock_config);
}
