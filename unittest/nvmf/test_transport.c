/* SPDX-License-Identifier: BSD-3-Clause */
/* A second transport beside RDMA: what it declares shows in RPC methods and metrics, which know no transport by name.
 */
#include "unittest/nvmf/loop.h"

#include "appliance/metrics_collect.h"
#include "rpc/registry.h"
#include "unittest/unit.h"

static uint8_t data[4096];

/* ---- No memory for one array ---- */

static size_t calloc_elements; /* of the array that there is room for once; 0: no limit */
static unsigned calloc_arrays;

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size)
{
	return n == calloc_elements && n != 0 && ++calloc_arrays > 1 ? NULL : __real_calloc(n, size);
}

/* ---- Calls ---- */

struct call {
	bool over;
	int code;
	json_t *result;
	char message[RPC_ERROR_TEXT_MAX];
};

static void call_done(void *arg, struct rpc_answer *answer)
{
	struct call *call = arg;

	call->over = true;
	call->code = answer->code;
	call->result = json_incref(answer->result);
	snprintf(call->message, sizeof(call->message), "%s", answer->message != NULL ? answer->message : "");
}

static bool call_is_over(void *arg)
{
	return ((struct call *)arg)->over;
}

/* The result, or NULL and the error's text in message. params: JSON text. */
static json_t *call_rpc(const char *method, const char *params, char message[RPC_ERROR_TEXT_MAX])
{
	struct call call = {0};
	json_t *p = json_loads(params, 0, NULL);

	CU_ASSERT_PTR_NOT_NULL_FATAL(p);
	rpc_call_method(method, p, call_done, &call);
	CU_ASSERT_TRUE_FATAL(loop_until(call_is_over, &call));
	json_decref(p);
	memcpy(message, call.message, sizeof(call.message));
	return call.code == 0 ? call.result : NULL;
}

static json_t *must_call(const char *method, const char *params)
{
	char message[RPC_ERROR_TEXT_MAX];
	json_t *result = call_rpc(method, params, message);

	if (result == NULL) {
		fprintf(stderr, "%s: %s\n", method, message);
	}
	CU_ASSERT_PTR_NOT_NULL_FATAL(result);
	return result;
}

static void check_refused(const char *params, const char *words)
{
	char message[RPC_ERROR_TEXT_MAX];

	CU_ASSERT_PTR_NULL(call_rpc("nvmf_create_transport", params, message));
	if (strstr(message, words) == NULL) {
		fprintf(stderr, "%s\n", message);
	}
	CU_ASSERT_PTR_NOT_NULL(strstr(message, words));
}

/* The object of a list whose member key is value. */
static json_t *find_object(json_t *list, const char *key, const char *value)
{
	json_t *o;
	size_t i;

	json_array_foreach (list, i, o) {
		const char *text = json_string_value(json_object_get(o, key));
		if (text != NULL && strcmp(text, value) == 0) {
			return o;
		}
	}
	return NULL;
}

static json_int_t int_of(const json_t *o, const char *key)
{
	return json_is_integer(json_object_get(o, key)) ? json_integer_value(json_object_get(o, key)) : -1;
}

static const char *text_of(const json_t *o, const char *key)
{
	const char *text = json_string_value(json_object_get(o, key));

	return text != NULL ? text : "";
}

static bool has_metric(const char *line)
{
	struct metrics_text m = {0};
	size_t len;

	metrics_collect_nvmf(&m);
	char *text = metrics_take(&m, &len);
	CU_ASSERT_PTR_NOT_NULL_FATAL(text);
	bool found = strstr(text, line) != NULL;
	free(text);
	return found;
}

/* ---- Tests ---- */

static void test_own_options_are_decoded_shown_and_have_their_defaults(void)
{
	struct loop_wait stop = LOOP_WAIT;
	struct nvmf_tgt *tgt;

	CU_ASSERT_EQUAL_FATAL(nvmf_tgt_create(&(struct nvmf_tgt_opts){.name = "second"}, &tgt), 0);
	json_decref(must_call("nvmf_create_transport",
			      "{\"trtype\":\"loop\",\"tgt_name\":\"second\",\"loop_turns\":5,\"max_queue_depth\":33,"
			      "\"c2h_success\":true}"));
	json_t *list = must_call("nvmf_get_transports", "{\"tgt_name\":\"second\"}");
	json_t *t = json_array_get(list, 0);
	CU_ASSERT_EQUAL(int_of(t, "loop_turns"), 5);
	CU_ASSERT_TRUE(json_is_true(json_object_get(t, "loop_slowly")));
	CU_ASSERT_EQUAL(int_of(t, "max_queue_depth"), 33);
	CU_ASSERT_PTR_NULL(json_object_get(t, "num_cqe"));
	CU_ASSERT_PTR_NULL(json_object_get(t, "c2h_success"));
	json_decref(list);
	nvmf_tgt_stop(tgt, loop_done, &stop);
	CU_ASSERT_EQUAL(loop_wait_for(&stop), 0);
	nvmf_tgt_destroy(tgt);
}

static void test_options_of_another_transport_and_out_of_range_are_refused(void)
{
	check_refused("{\"tgt_name\":\"t\",\"trtype\":\"LOOP\",\"num_cqe\":5}",
		      "\"num_cqe\" is an option of another transport: transport LOOP");
	check_refused("{\"tgt_name\":\"t\",\"trtype\":\"RDMA\",\"loop_turns\":5}",
		      "\"loop_turns\" is an option of another transport");
	check_refused("{\"tgt_name\":\"t\",\"trtype\":\"LOOP\",\"loop_turns\":10}",
		      "\"loop_turns\" is 10: allowed are 1 to 9");
	check_refused("{\"tgt_name\":\"t\",\"trtype\":\"LOOP\",\"loop_slowly\":3}", "loop_slowly");
	check_refused("{\"tgt_name\":\"t\",\"trtype\":\"LOOP\",\"nonsense\":3}", "nonsense");
}

static void test_help_lists_the_options_of_every_transport(void)
{
	const struct rpc_param *p = rpc_method_find("nvmf_create_transport")->params;
	unsigned found = 0;

	CU_ASSERT(strstr(p->help, "LOOP") != NULL && strstr(p->help, "RDMA") != NULL && strstr(p->help, "TCP") != NULL);
	for (; p->name != NULL; p++) {
		found += strcmp(p->name, "loop_turns") == 0 && strcmp(p->help, "LOOP: turns of the loop") == 0;
		found += strcmp(p->name, "num_cqe") == 0 && strncmp(p->help, "RDMA: ", 6) == 0;
		found += strcmp(p->name, "max_queue_depth") == 0 && strchr(p->help, ':') == NULL;
	}
	CU_ASSERT_EQUAL(found, 3);
}

static void test_own_counters_show_in_statistics_and_metrics(void)
{
	json_t *stats = must_call("nvmf_get_stats", "{\"tgt_name\":\"t\"}");
	json_t *group = json_array_get(json_object_get(stats, "poll_groups"), 0);
	json_t *transport = find_object(json_object_get(group, "transports"), "trtype", "LOOP");
	json_t *device = find_object(json_object_get(transport, "devices"), "name", "loop0");

	CU_ASSERT_EQUAL(int_of(device, "turns"), 11);
	CU_ASSERT_EQUAL(int_of(device, "pending_credit"), 5);
	CU_ASSERT_EQUAL(int_of(device, "unseen"), 6);
	CU_ASSERT_EQUAL(json_object_size(device), 4);
	json_decref(stats);
	CU_ASSERT_TRUE(has_metric("# HELP varve_nvmf_device_turns_total Turns of the loop.\n"));
	CU_ASSERT_TRUE(has_metric("transport=\"LOOP\",device=\"loop0\"} 11\n"));
	CU_ASSERT_FALSE(has_metric("unseen"));
}

static bool is_held(void *arg)
{
	struct nvmf_inflight *list;
	ssize_t n = nvmf_tgt_get_inflight(loop_tgt(), &list);
	bool found = false;

	for (ssize_t i = 0; i < n; i++) {
		found = found || strcmp(list[i].state, "loop need buffer") == 0;
	}
	free(list);
	return found;
}

static void test_states_show_in_what_is_outstanding_and_in_metrics(void)
{
	uint32_t nsid = loop_add_malloc_ns("M0", 512, 64);
	struct loop_conn *admin = loop_attach(LOOP_SUBNQN, LOOP_HOSTNQN, 0), *io = loop_io_queue(admin, 1);
	struct loop_cmd cmd;
	bool known = false;

	atomic_store(&loop_hold_data, true);
	loop_cmd_init(&cmd, io, nvme_cmd_read, nsid);
	loop_cmd_data(&cmd, data, 4096);
	cmd.sqe.cdw12 = htole32(7);
	loop_submit(&cmd);
	CU_ASSERT_TRUE_FATAL(loop_until(is_held, NULL));
	json_t *list = must_call("nvmf_get_inflight", "{\"tgt_name\":\"t\"}");
	json_t *held = find_object(list, "state", "loop need buffer");
	CU_ASSERT_STRING_EQUAL(text_of(held, "waits_for"), "data buffer");
	CU_ASSERT_EQUAL(int_of(held, "qid"), 1);
	json_decref(list);
	CU_ASSERT_TRUE(has_metric("varve_nvmf_requests{state=\"loop need buffer\"} 1\n"));
	for (unsigned n = 0; nvmf_request_state(n) != NULL; n++) {
		known = known || strcmp(nvmf_request_state(n), "loop need credit") == 0;
	}
	CU_ASSERT_TRUE(known);
	atomic_store(&loop_hold_data, false);
	loop_release_data(io);
	CU_ASSERT_EQUAL(loop_wait(&cmd), 0);
	loop_close(io);
	loop_close(admin);
	loop_remove_malloc_ns(nsid, "M0");
}

static void test_a_transport_tells_what_its_states_mean(void)
{
	json_t *types = must_call("nvmf_get_transport_types", "{}");
	json_t *loop = find_object(types, "trtype", "LOOP"), *rdma = find_object(types, "trtype", "RDMA");
	json_t *credit = find_object(json_object_get(loop, "states"), "trace_name", "NEED_CREDIT");
	json_t *executing = find_object(json_object_get(rdma, "states"), "trace_name", "EXECUTING");

	CU_ASSERT_STRING_EQUAL(text_of(credit, "class"), "waits_for_room");
	CU_ASSERT_STRING_EQUAL(text_of(credit, "waits_for"), "loop credit");
	CU_ASSERT_STRING_EQUAL(text_of(credit, "remedy"), "nvmf_create_transport loop_turns=N");
	CU_ASSERT_EQUAL(int_of(credit, "number"), 2);
	CU_ASSERT_STRING_EQUAL(text_of(executing, "class"), "executes");
	CU_ASSERT_STRING_EQUAL(text_of(rdma, "trace_prefix"), "RDMA_REQ_");
	CU_ASSERT_STRING_EQUAL(
		text_of(find_object(json_object_get(loop, "counters"), "name", "pending_credit"), "waits_for"),
		"loop credit");
	json_decref(types);
}

/* What nvmf/transport.h asks of every transport; tools that read a trace rely on the names. */
static void test_tables_of_transports_are_consistent(void)
{
	const struct nvmf_transport_option *o;
	const struct nvmf_transport_state *s;
	const char *type, *group, *prefix;

	for (unsigned t = 0; (type = nvmf_transport_type(t)) != NULL; t++) {
		s = nvmf_transport_state(type, NVMF_STATE_IDLE);
		CU_ASSERT_PTR_NOT_NULL_FATAL(s);
		CU_ASSERT_EQUAL(s->class, NVMF_CLASS_IDLE);
		for (unsigned n = 0; n < NVMF_TRANSPORT_STATES; n++) {
			s = nvmf_transport_state(type, n);
			CU_ASSERT(s == NULL || (s->name != NULL && s->trace_name != NULL));
			CU_ASSERT(s == NULL || s->class != NVMF_CLASS_WAITS_FOR_BUFFER ||
				  strcmp(s->waits_for, "data buffer") == 0);
			CU_ASSERT(s == NULL || s->class != NVMF_CLASS_WAITS_FOR_ROOM || s->waits_for != NULL);
		}
		for (unsigned n = 0; (o = nvmf_transport_option(type, n)) != NULL; n++) {
			CU_ASSERT(o->help != NULL && o->type < NVMF_OPTION_TYPES);
			CU_ASSERT_EQUAL(o->bits != NULL, o->type == NVMF_OPTION_BITS);
		}
	}
	nvmf_transport_trace_names("RDMA", &group, &prefix);
	const struct trace_tpoint_info *first =
		trace_tpoint_info((unsigned)trace_group_by_name(group) * TRACE_TPOINTS_PER_GROUP);
	CU_ASSERT_STRING_EQUAL(first->def.name, "RDMA_REQ_NEW");
	for (unsigned n = 0; n < NVMF_STATE_IDLE; n++) {
		const struct trace_tpoint_info *tpoint =
			trace_tpoint_info((unsigned)trace_group_by_name(group) * TRACE_TPOINTS_PER_GROUP + n);
		s = nvmf_transport_state("RDMA", n);
		CU_ASSERT(s == NULL || strcmp(tpoint->def.name + strlen(prefix), s->trace_name) == 0);
	}
}

static const struct nvmf_transport_option *find_option(const char *name)
{
	const struct nvmf_transport_option *o;

	for (unsigned n = 0; (o = nvmf_transport_common_option(n)) != NULL && strcmp(o->name, name) != 0; n++) {
	}
	CU_ASSERT_PTR_NOT_NULL_FATAL(o);
	return o;
}

static void test_bits_of_options_have_names(void)
{
	const struct nvmf_transport_option *oncs = find_option("masked_oncs"), *fuses = find_option("masked_fuses");
	struct nvmf_transport_opts opts = {0};
	char names[128];

	CU_ASSERT_STRING_EQUAL(nvmf_transport_option_bit_names(oncs, names, sizeof(names)),
			       "nvmcmps, nvmdsmsv, nvmwzsv, reservs and nvmcpys");
	CU_ASSERT_STRING_EQUAL(nvmf_transport_option_bit_names(oncs, names, 10), "nvmcmps, ");
	CU_ASSERT_STRING_EQUAL(nvmf_transport_option_bit_names(fuses, names, sizeof(names)), "fcws");
	CU_ASSERT_EQUAL(nvmf_transport_option_bit(oncs, "reservs"), 1 << 5);
	CU_ASSERT_EQUAL(nvmf_transport_option_bit(oncs, "nvmcpys"), 1 << 8);
	CU_ASSERT_EQUAL(nvmf_transport_option_bit(oncs, "fcws"), 0);
	CU_ASSERT_EQUAL(nvmf_transport_option_bit(oncs, ""), 0);
	nvmf_transport_option_set(&opts, oncs, UINT16_MAX);
	CU_ASSERT(opts.masked_oncs == UINT16_MAX && opts.masked_fuses == 0);
	CU_ASSERT_EQUAL(nvmf_transport_option_get(&opts, oncs), UINT16_MAX);
}

/* The target has an array of its subsystems, and each poll group one of their views. */
/* The target fills in the rest, and a transport that set TREQ would hide which referrals have a secure channel. */
static void test_transports_change_nothing_of_a_discovery_entry_but_its_own_part(void)
{
	const char *type;

	for (unsigned i = 0; (type = nvmf_transport_type(i)) != NULL; i++) {
		struct nvmf_disc_log_entry e = {.treq = NVMF_TREQ_REQUIRED, .subtype = NVME_NQN_NVME}, given = e;

		nvmf_transport_ops_find(type)->discover(nvmf_transport_find(loop_tgt(), type), &loop_address, &e);
		CU_ASSERT_EQUAL(memcmp(&e, &given, offsetof(struct nvmf_disc_log_entry, tsas)), 0);
	}
}

static void test_a_target_that_cannot_be_started_is_not_left_behind(void)
{
	char message[RPC_ERROR_TEXT_MAX];

	calloc_elements = 12345;
	CU_ASSERT_PTR_NULL(call_rpc("nvmf_create_target", "{\"name\":\"large\",\"max_subsystems\":12345}", message));
	CU_ASSERT_EQUAL(calloc_arrays, 2);
	calloc_elements = 0;
	CU_ASSERT_PTR_NOT_NULL(strstr(message, "target \"large\" cannot be made: Cannot allocate memory"));
	CU_ASSERT_PTR_NULL(nvmf_tgt_find("large"));
	json_decref(must_call("nvmf_create_target", "{\"name\":\"large\",\"max_subsystems\":12345}"));
	json_decref(must_call("nvmf_delete_target", "{\"name\":\"large\"}"));
}

static const struct unit_test tests[] = {
	UNIT(test_own_options_are_decoded_shown_and_have_their_defaults),
	UNIT(test_options_of_another_transport_and_out_of_range_are_refused),
	UNIT(test_help_lists_the_options_of_every_transport),
	UNIT(test_own_counters_show_in_statistics_and_metrics),
	UNIT(test_states_show_in_what_is_outstanding_and_in_metrics),
	UNIT(test_a_transport_tells_what_its_states_mean),
	UNIT(test_tables_of_transports_are_consistent),
	UNIT(test_bits_of_options_have_names),
	UNIT(test_transports_change_nothing_of_a_discovery_entry_but_its_own_part),
	UNIT(test_a_target_that_cannot_be_started_is_not_left_behind),
	UNIT_END,
};
UNIT_MAIN("nvmf-transport", tests, loop_start, loop_stop)
