/* SPDX-License-Identifier: BSD-3-Clause */
/* The text format, the requests, and the addresses of metrics. */
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "appliance/console_query.h"
#include "appliance/console_series.h"
#include "appliance/metrics_address.h"
#include "appliance/metrics_http.h"
#include "appliance/metrics_peer.h"
#include "appliance/metrics_text.h"
#include "trace/record.h"
#include "unittest/unit.h"
#include "util/compiler.h"
#include "util/latency.h"

/* ---- Text ---- */

static void check_text(struct metrics_text *m, const char *expected)
{
	size_t len;
	char *text = metrics_take(m, &len);

	CU_ASSERT_PTR_NOT_NULL_FATAL(text);
	CU_ASSERT_STRING_EQUAL(text, expected);
	CU_ASSERT_EQUAL(len, strlen(expected));
	free(text);
}

static void test_a_family_has_help_type_and_samples(void)
{
	struct metrics_text m = {0};

	metrics_family(&m, "a_total", METRICS_COUNTER, "What it is.");
	metrics_uint(&m, UINT64_MAX, "x", "1", "y", "2", NULL);
	metrics_family(&m, "b_seconds", METRICS_GAUGE, "Time.");
	metrics_ns(&m, 1500000001, NULL);
	metrics_ns(&m, 5, "x", "", NULL);
	check_text(&m, "# HELP a_total What it is.\n# TYPE a_total counter\n"
		       "a_total{x=\"1\",y=\"2\"} 18446744073709551615\n"
		       "# HELP b_seconds Time.\n# TYPE b_seconds gauge\n"
		       "b_seconds 1.500000001\nb_seconds{x=\"\"} 0.000000005\n");
}

static void test_a_row_of_a_table_is_a_family_with_its_help_and_type(void)
{
	const struct object {
		bool flag;
		uint16_t half;
		uint32_t kato_ms;
		uint64_t whole;
	} object = {.flag = true, .half = 65535, .kato_ms = 1500, .whole = UINT64_MAX};
	static const struct metric rows[] = {
		METRIC("a", METRICS_GAUGE, METRICS_PLAIN, struct object, flag, "A flag."),
		METRIC("b", METRICS_GAUGE, METRICS_PLAIN, struct object, half, "Two bytes."),
		METRIC("c_seconds", METRICS_GAUGE, METRICS_MS, struct object, kato_ms, "Four bytes."),
		METRIC("d_total", METRICS_COUNTER, METRICS_PLAIN, struct object, whole, "Eight bytes."),
	};
	struct metrics_text m = {0};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		metrics_begin(&m, &rows[i]);
		metrics_sample(&m, &rows[i], &object, "x", "1", NULL);
	}
	metrics_sample(&m, &rows[3], &object, NULL);
	check_text(&m, "# HELP a A flag.\n# TYPE a gauge\na{x=\"1\"} 1\n"
		       "# HELP b Two bytes.\n# TYPE b gauge\nb{x=\"1\"} 65535\n"
		       "# HELP c_seconds Four bytes.\n# TYPE c_seconds gauge\nc_seconds{x=\"1\"} 1.500000000\n"
		       "# HELP d_total Eight bytes.\n# TYPE d_total counter\nd_total{x=\"1\"} 18446744073709551615\n"
		       "d_total 18446744073709551615\n");
}

static void test_label_values_cannot_break_out(void)
{
	struct metrics_text m = {0};

	metrics_family(&m, "a", METRICS_GAUGE, "h");
	metrics_uint(&m, 1, "x", "a\"} 2\nb{y=\"\\", NULL);
	check_text(&m, "# HELP a h\n# TYPE a gauge\na{x=\"a\\\"} 2\\nb{y=\\\"\\\\\"} 1\n");
	metrics_family(&m, "a", METRICS_GAUGE, "h");
	metrics_uint(&m, 1, "x", "\xff\xc3\xa9", NULL);
	check_text(&m, "# HELP a h\n# TYPE a gauge\na{x=\"\xef\xbf\xbd\xc3\xa9\"} 1\n");
}

#define LONG_VALUE 100000

static void test_long_values_are_cut_and_long_texts_are_not(void)
{
	struct metrics_text m = {0};
	char *long_value = calloc(1, LONG_VALUE + 1);
	size_t len;

	memset(long_value, 'x', LONG_VALUE);
	metrics_family(&m, "a", METRICS_GAUGE, "h");
	for (int i = 0; i < 1000; i++) {
		metrics_uint(&m, 1, "x", i == 0 ? long_value : &long_value[LONG_VALUE - 4000], NULL);
	}
	char *text = metrics_take(&m, &len);
	CU_ASSERT_PTR_NOT_NULL_FATAL(text);
	CU_ASSERT(len > 1000000 && len < 1100000 && strlen(text) == len);
	free(text);
	free(long_value);
}

static void test_a_histogram_is_cumulative_and_ends_with_its_sum_and_count(void)
{
	struct latency_histogram h = {0};
	struct metrics_text m = {0};
	size_t len;

	latency_histogram_sample(&h, 3, 5000);
	latency_histogram_sample(&h, 4, UINT64_MAX);
	metrics_family(&m, "a_seconds", METRICS_HISTOGRAM, "Times.");
	metrics_histogram(&m, &h, 1500000000, "x", "}\"", NULL);
	char *text = metrics_take(&m, &len);
	CU_ASSERT_PTR_NOT_NULL_FATAL(text);
	static const char *const lines[] = {
		"# TYPE a_seconds histogram\n",
		"\na_seconds_bucket{x=\"}\\\"\",le=\"2e-06\"} 0\n",
		"\na_seconds_bucket{x=\"}\\\"\",le=\"5e-06\"} 3\n",
		"\na_seconds_bucket{x=\"}\\\"\",le=\"0.001\"} 3\n",
		"\na_seconds_bucket{x=\"}\\\"\",le=\"10\"} 3\n",
		"\na_seconds_bucket{x=\"}\\\"\",le=\"+Inf\"} 4\n",
		"\na_seconds_sum{x=\"}\\\"\"} 1.500000000\n",
		"\na_seconds_count{x=\"}\\\"\"} 4\n",
	};
	for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
		CU_ASSERT_PTR_NOT_NULL(strstr(text, lines[i]));
	}
	free(text);
}

/* ---- Requests ---- */

static int status_of(const char *text)
{
	struct metrics_request r;

	return metrics_request_parse(text, strlen(text), &r) ? r.status : 0;
}

static void test_a_scrape_is_understood(void)
{
	struct metrics_request r;
	static const char text[] = "HEAD /metrics?x=1 HTTP/1.0\r\n\r\n";

	CU_ASSERT_EQUAL(status_of("GET /metrics HTTP/1.1\r\nHost: x:1\r\nAccept: text/plain;q=0.5,*/*\r\n\r\n"), 200);
	CU_ASSERT_EQUAL(status_of("GET /metrics HTTP/1.1\nHost: x\n\n"), 200);
	CU_ASSERT_TRUE(metrics_request_parse(text, strlen(text), &r));
	CU_ASSERT(r.status == 200 && r.head);
}

static void test_a_request_may_come_in_pieces(void)
{
	static const char text[] = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
	struct metrics_request r;

	for (size_t n = 0; n < strlen(text); n++) {
		CU_ASSERT_FALSE(metrics_request_parse(text, n, &r));
	}
	CU_ASSERT_TRUE(metrics_request_parse(text, strlen(text), &r));
	CU_ASSERT_EQUAL(r.status, 200);
}

static void test_what_is_wrong_is_answered_so(void)
{
	static const struct {
		const char *text;
		int status;
	} cases[] = {
		{"GET /x HTTP/1.1\r\n\r\n", 404},
		{"GET /metricsx HTTP/1.1\r\n\r\n", 404},
		{"POST /metrics HTTP/1.1\r\nContent-Length: 5\r\n\r\n", 405},
		{"GET /metrics HTTP/2.0\r\n", 505},
		{"GET /metrics\r\n", 400},
		{"GET  /metrics HTTP/1.1\r\n", 400},
		{"GET /metrics HTTP/1.1 \r\n", 400},
		{"G\x01T /metrics HTTP/1.1\r\n", 400},
		{"\r\n", 400},
		{"\x16\x03\x01\x02\n", 400}, /* TLS */
		{"GET /metrics HTTP/1.1\r\nno colon\r\n\r\n", 400},
		{"GET /metrics HTTP/1.1\r\n folded: x\r\n\r\n", 400},
		{"GET /metrics HTTP/1.1\r\nA: \x01\r\n\r\n", 400},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		CU_ASSERT_EQUAL(status_of(cases[i].text), cases[i].status);
	}
}

static void test_a_request_has_an_end(void)
{
	struct metrics_request r;
	char *text = malloc(METRICS_REQUEST_MAX);

	memset(text, 'x', METRICS_REQUEST_MAX);
	CU_ASSERT_FALSE(metrics_request_parse(text, METRICS_REQUEST_MAX - 1, &r));
	CU_ASSERT_TRUE(metrics_request_parse(text, METRICS_REQUEST_MAX, &r));
	CU_ASSERT_EQUAL(r.status, 431);
	memcpy(text, "GET /metrics HTTP/1.1\r\n", 23);
	CU_ASSERT_TRUE(metrics_request_parse(text, METRICS_REQUEST_MAX, &r));
	CU_ASSERT_EQUAL(r.status, 431);
	free(text);
}

static void test_every_answer_has_a_head_that_fits(void)
{
	static const int statuses[] = {200, 400, 403, 404, 405, 431, 500, 503, 505};
	char head[METRICS_ANSWER_HEAD_MAX];

	for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++) {
		size_t n = metrics_answer_head(statuses[i], HTTP_METRICS, SIZE_MAX, NULL, head, sizeof(head));
		CU_ASSERT(n > 0 && strcmp(head + n - 4, "\r\n\r\n") == 0);
		CU_ASSERT(strlen(metrics_answer_text(statuses[i])) > 0);
	}
	metrics_answer_head(200, HTTP_METRICS, 5, NULL, head, sizeof(head));
	CU_ASSERT_PTR_NOT_NULL(strstr(head, "text/plain; version=0.0.4"));
	CU_ASSERT_PTR_NOT_NULL(strstr(head, "Content-Length: 5\r\n"));
	CU_ASSERT_EQUAL(metrics_answer_head(200, HTTP_METRICS, 5, NULL, head, strlen(head)), 0);
}

static void test_a_file_has_the_name_under_which_it_is_saved(void)
{
	char head[METRICS_ANSWER_HEAD_MAX], name[256];

	memset(name, 'n', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	CU_ASSERT(metrics_answer_head(200, HTTP_COPY, SIZE_MAX, name, head, sizeof(head)) > 0);
	CU_ASSERT(metrics_answer_head(200, HTTP_COPY, 5, "a_b.c-d", head, sizeof(head)) > 0);
	CU_ASSERT_PTR_NOT_NULL(strstr(head, "\r\nContent-Disposition: attachment; filename=\"a_b.c-d\"\r\n"));
	CU_ASSERT(metrics_answer_head(404, HTTP_COPY, 5, NULL, head, sizeof(head)) > 0);
	CU_ASSERT_PTR_NULL(strstr(head, "Content-Disposition"));
}

/* ---- Who asks ---- */

static bool may_read(uid_t uid, gid_t gid, mode_t mode)
{
	const struct metrics_peer peer = {.uid = uid, .gid = gid, .n_groups = 2, .groups = {30, 31, 32}};
	const struct stat st = {.st_uid = 1, .st_gid = 31, .st_mode = S_IFREG | mode};
	const struct stat other = {.st_uid = 1, .st_gid = 32, .st_mode = S_IFREG | mode};

	CU_ASSERT_EQUAL(metrics_peer_may_read(&peer, &other), uid <= 1 || (gid == 32 && mode == 0640));
	return metrics_peer_may_read(&peer, &st);
}

static void test_a_copy_is_for_who_may_read_its_file(void)
{
	CU_ASSERT_TRUE(may_read(0, 5, 0600));
	CU_ASSERT_TRUE(may_read(1, 5, 0600));
	CU_ASSERT_FALSE(may_read(2, 5, 0600));
	CU_ASSERT_FALSE(may_read(2, 31, 0600));
	CU_ASSERT_TRUE(may_read(2, 5, 0640)); /* of its further groups */
	CU_ASSERT_TRUE(may_read(2, 32, 0640));
	const struct metrics_peer alone = {.uid = 2, .gid = 31};
	const struct stat st = {.st_uid = 1, .st_gid = 31, .st_mode = S_IFREG | 0640};
	CU_ASSERT_TRUE(metrics_peer_may_read(&alone, &st));
	const struct metrics_peer none = {.uid = 2, .gid = 5};
	CU_ASSERT_FALSE(metrics_peer_may_read(&none, &st));
}

static void test_who_asks_is_told_by_the_socket(void)
{
	struct metrics_peer peer;
	int fd[2];

	CU_ASSERT_EQUAL_FATAL(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
	CU_ASSERT_EQUAL(metrics_peer_get(fd[0], &peer), 0);
	CU_ASSERT(peer.uid == geteuid() && peer.gid == getegid());
	close(fd[0]);
	close(fd[1]);
	fd[0] = socket(AF_INET, SOCK_STREAM, 0);
	CU_ASSERT_EQUAL(metrics_peer_get(fd[0], &peer), -ENOTCONN);
	close(fd[0]);
	CU_ASSERT_EQUAL(metrics_peer_get(-1, &peer), -EBADF);
}

static struct metrics_request parsed(const char *text)
{
	struct metrics_request r;

	CU_ASSERT_TRUE_FATAL(metrics_request_parse(text, strlen(text), &r));
	return r;
}

static void test_each_route_is_found_and_only_these(void)
{
	static const char *const paths[HTTP_ROUTES] = {
		"/metrics",    "/",           "/console.js",  "/console.css",  "/console.svg",
		"/api/state",  "/api/series", "/api/history", "/api/topology", "/api/inflight",
		"/api/copies", "/api/trace",  "/api/copy",
	};
	char text[128], head[METRICS_ANSWER_HEAD_MAX];

	for (unsigned i = 0; i < HTTP_ROUTES; i++) {
		snprintf(text, sizeof(text), "GET %s?a=b HTTP/1.1\r\n\r\n", paths[i]);
		struct metrics_request r = parsed(text);
		CU_ASSERT(r.status == 200 && r.route == (enum http_route)i);
		if (i == HTTP_SERIES || i == HTTP_HISTORY || i == HTTP_TRACE || i == HTTP_COPY) {
			CU_ASSERT(r.query_len == 3 && memcmp(r.query, "a=b", 3) == 0);
		} else { /* so that an answer is the same whatever is added to the path */
			CU_ASSERT(r.query_len == 0 && r.query == NULL);
		}
		CU_ASSERT(metrics_answer_head(200, r.route, 1, NULL, head, sizeof(head)) > 0);
		CU_ASSERT_PTR_NOT_NULL(strstr(head, "Content-Security-Policy: default-src 'none'"));
		CU_ASSERT_PTR_NULL(strstr(head, "unsafe"));
		snprintf(text, sizeof(text), "GET %sx HTTP/1.1\r\n\r\n", paths[i]);
		CU_ASSERT_EQUAL(parsed(text).status, 404);
	}
	CU_ASSERT_EQUAL(parsed("GET /console.js/../metrics HTTP/1.1\r\n\r\n").status, 404);
}

static void test_the_host_that_is_asked_for_is_judged(void)
{
	static const char *const local[] = {"127.0.0.1",    "127.0.0.1:9464", "LocalHost:1", " localhost\t",
					    "\tlocalhost ", "[::1]",          "[::1]:80",    "127.1.2.3"};
	static const char *const others[] = {
		"",           "evil.example", "evil.example:9464", "127.0.0.1.evil.example",
		"[::1].evil", "[::2]",        "localhost.evil",    "192.0.2.1",
		"127.0.0/1",  "127.",         "128.0.0.1",         "x127.0.0.1"};
	char text[128];

	CU_ASSERT_TRUE(parsed("GET / HTTP/1.0\r\n\r\n").local);
	for (size_t i = 0; i < ARRAY_SIZE(local); i++) {
		snprintf(text, sizeof(text), "GET / HTTP/1.1\r\nhOst:%s\r\n\r\n", local[i]);
		CU_ASSERT(parsed(text).status == 200 && parsed(text).local);
	}
	for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
		snprintf(text, sizeof(text), "GET / HTTP/1.1\r\nHost: %s\r\nHost: localhost\r\n\r\n", others[i]);
		CU_ASSERT(parsed(text).status == 200 && !parsed(text).local);
	}
}

static void test_requests_of_pages_of_other_sites_are_told(void)
{
	static const char *const sites[] = {"none", "same-origin", "same-site", "cross-site ", "CROSS-site"};
	char text[128];

	CU_ASSERT_FALSE(parsed("GET /metrics HTTP/1.1\r\n\r\n").cross_site);
	for (size_t i = 0; i < ARRAY_SIZE(sites); i++) {
		snprintf(text, sizeof(text),
			 "GET /metrics HTTP/1.1\r\nsec-fetch-site: %s\r\nSec-Fetch-Site: none\r\n\r\n", sites[i]);
		CU_ASSERT(parsed(text).status == 200 && parsed(text).cross_site == (i >= 3));
	}
}

static bool value_is(const char *query, const char *name, const char *expected)
{
	char to[8];
	bool found = http_query_value(query, strlen(query), name, to, sizeof(to));

	return expected == NULL ? !found : found && strcmp(to, expected) == 0;
}

static void test_values_of_a_query_are_decoded(void)
{
	CU_ASSERT_TRUE(value_is("kind=bdev&name=M%200", "name", "M 0"));
	CU_ASSERT_TRUE(value_is("kind=bdev&name=M%200", "kind", "bdev"));
	CU_ASSERT_TRUE(value_is("name=%3c%3E&name=2", "name", "<>"));
	CU_ASSERT_TRUE(value_is("name=", "name", ""));
	CU_ASSERT_TRUE(value_is("name=1234567", "name", "1234567"));
	CU_ASSERT_TRUE(value_is("name=12345678", "name", NULL));
	CU_ASSERT_FALSE(http_query_value("name=", 5, "name", NULL, 0));
	static const char *const bad[] = {"",         "name",     "names=1",  "name=%",   "name=%4", "name=%4g",
					  "name=%g4", "name=%/4", "name=%:4", "name=%00", "&&"};
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		CU_ASSERT_TRUE(value_is(bad[i], "name", NULL));
	}
}

/* ---- What a request for history asks for ---- */

static struct console_history_query query_of(const char *text)
{
	struct console_history_query q;

	return console_query_history(text, strlen(text), &q) ? q : (struct console_history_query){0};
}

static void test_a_query_chooses_one_of_the_histories_that_are_kept(void)
{
	static const struct {
		const char *text;
		uint32_t step_s, points;
		enum console_kind kind;
		const char *name;
	} good[] = {
		{"kind=node&name=", 1, SERIES_FINE, CONSOLE_NODE, ""},
		{"kind=bdev&name=M%200&span=minutes", 1, SERIES_FINE, CONSOLE_BDEV, "M 0"},
		{"step=1&span=minutes&name=a&kind=host", 1, SERIES_FINE, CONSOLE_HOST, "a"},
		{"kind=path&name=a%20b&span=hour", 10, SERIES_COARSE, CONSOLE_PATH, "a b"},
		{"kind=subsystem&name=s&span=hour&step=10", 10, SERIES_COARSE, CONSOLE_SUBSYSTEM, "s"},
		{"kind=node&name=&span=hour&step=1", 1, SERIES_NODE_FINE, CONSOLE_NODE, ""},
		{"kind=node&name=&a&spanner=x&steps&span=hour&step=1", 1, SERIES_NODE_FINE, CONSOLE_NODE, ""},
	};
	static const char *const bad[] = {
		"",
		"kind=node",
		"name=a",
		"kind=disk&name=a",
		"kind=node&name=%00",
		"kind=bdev&name=a&span=hour&step=1",
		"kind=path&name=a&span=hour&step=1",
		"kind=node&name=&span=day",
		"kind=node&name=&span",
		"kind=node&name=&span=%",
		"kind=node&name=&span=hour&step=5",
		"kind=node&name=&span=hour&step=%31%",
		"kind=node&name=&span=hour&step=1000000000000000000",
		"kind=node&name=&span=minutes&step=10",
		"kind=node&name=&step",
		"kind=node&name=&step=",
		"kind=node&name=&span=hour&step=",
		"kind=node&name=&span=",
	};

	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		struct console_history_query q = query_of(good[i].text);
		CU_ASSERT(q.step_s == good[i].step_s && q.points == good[i].points && q.kind == good[i].kind);
		CU_ASSERT_STRING_EQUAL(q.name, good[i].name);
	}
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		CU_ASSERT_EQUAL(query_of(bad[i]).points, 0);
	}
}

/* ---- What a request for the trace asks for ---- */

static void test_a_query_chooses_events_of_the_trace(void)
{
	static const struct {
		const char *text;
		struct console_trace_query q;
	} good[] = {
		{"", {.group = -1}},
		{"group=&text=", {.group = -1}},
		{"group=bdev", {.group = TRACE_GROUP_BDEV}},
		{"text=Ram%200&group=nvmf_tcp", {.group = TRACE_GROUP_NVMF_TCP, .text = "Ram 0"}},
	};
	static const char *const bad[] = {
		"group=none", "group=%", "group=a_group_with_a_name_that_is_long",
		"text=%00",   "text",    "text=0123456789012345678901234567890123456789012345678901234567890123",
	};
	struct console_trace_query q;

	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		CU_ASSERT_TRUE(console_query_trace(good[i].text, strlen(good[i].text), &q));
		CU_ASSERT_EQUAL(q.group, good[i].q.group);
		CU_ASSERT_STRING_EQUAL(q.text, good[i].q.text);
	}
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		CU_ASSERT_FALSE(console_query_trace(bad[i], strlen(bad[i]), &q));
	}
}

/* ---- Addresses ---- */

static void test_addresses_are_of_this_host(void)
{
	static const char *const good[] = {"unix:/run/m.sock", "127.0.0.1:9464", "127.1.2.3:0", "[::1]:65535"};
	static const char *const bad[] = {"",
					  "unix:",
					  "unix:m.sock",
					  "0.0.0.0:9464",
					  "192.0.2.1:9464",
					  "127.0.0.1",
					  "127.0.0.1:x",
					  "127.0.0.1:65536",
					  "[::]:1",
					  "::1:9464",
					  "localhost:9464",
					  "[::1:9464"};
	char error[METRICS_ERROR_MAX];
	struct metrics_address a;

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		CU_ASSERT_EQUAL(metrics_address_parse(good[i], &a, error), 0);
		CU_ASSERT((a.path != NULL) != (a.tcp_len != 0));
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		CU_ASSERT_EQUAL(metrics_address_parse(bad[i], &a, error), -EINVAL);
		CU_ASSERT_PTR_NOT_NULL(strstr(error, "unix:"));
	}
}

static const struct unit_test tests[] = {
	UNIT(test_a_family_has_help_type_and_samples),
	UNIT(test_a_row_of_a_table_is_a_family_with_its_help_and_type),
	UNIT(test_label_values_cannot_break_out),
	UNIT(test_long_values_are_cut_and_long_texts_are_not),
	UNIT(test_a_histogram_is_cumulative_and_ends_with_its_sum_and_count),
	UNIT(test_a_scrape_is_understood),
	UNIT(test_a_request_may_come_in_pieces),
	UNIT(test_what_is_wrong_is_answered_so),
	UNIT(test_a_request_has_an_end),
	UNIT(test_every_answer_has_a_head_that_fits),
	UNIT(test_a_file_has_the_name_under_which_it_is_saved),
	UNIT(test_a_copy_is_for_who_may_read_its_file),
	UNIT(test_who_asks_is_told_by_the_socket),
	UNIT(test_each_route_is_found_and_only_these),
	UNIT(test_the_host_that_is_asked_for_is_judged),
	UNIT(test_requests_of_pages_of_other_sites_are_told),
	UNIT(test_values_of_a_query_are_decoded),
	UNIT(test_a_query_chooses_one_of_the_histories_that_are_kept),
	UNIT(test_a_query_chooses_events_of_the_trace),
	UNIT(test_addresses_are_of_this_host),
	UNIT_END,
};
UNIT_MAIN("appliance_metrics", tests, NULL, NULL)
