/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>

#include "unittest/unit.h"

#include "nvme/nvme.h"
#include "tools/perf/histogram.h"
#include "tools/perf/pattern.h"

static struct histogram h;

static void test_every_value_falls_into_a_bucket_that_is_exact_to_one_percent(void)
{
	for (uint64_t v = 1; v < UINT64_MAX / 3; v = v * 3 / 2 + 1) {
		unsigned i = histogram_index(v);
		uint64_t upper = histogram_upper(i);

		CU_ASSERT_FATAL(i < HISTOGRAM_BUCKETS);
		CU_ASSERT(upper >= v);
		CU_ASSERT((double)(upper - v) <= (double)v / 100);
		CU_ASSERT(i == 0 || histogram_upper(i - 1) < v);
	}
	CU_ASSERT(histogram_index(UINT64_MAX) < HISTOGRAM_BUCKETS);
	CU_ASSERT_EQUAL(histogram_upper(histogram_index(UINT64_MAX)), UINT64_MAX);
}

static void test_percentiles_of_known_values(void)
{
	memset(&h, 0, sizeof(h));
	CU_ASSERT_EQUAL(histogram_percentile(&h, 50), 0);
	for (uint64_t v = 1; v <= 1000; v++) {
		histogram_add(&h, v * 1000);
	}
	CU_ASSERT_EQUAL(h.min, 1000);
	CU_ASSERT_EQUAL(h.max, 1000000);
	CU_ASSERT_EQUAL(histogram_mean(&h), 500500);
	CU_ASSERT_DOUBLE_EQUAL((double)histogram_percentile(&h, 50), 500000, 5000);
	CU_ASSERT_DOUBLE_EQUAL((double)histogram_percentile(&h, 99), 990000, 9900);
	CU_ASSERT_EQUAL(histogram_percentile(&h, 100), 1000000);
}

static void test_merging_keeps_the_extremes(void)
{
	static struct histogram a, b;

	histogram_add(&a, 100);
	histogram_add(&b, 5);
	histogram_add(&b, 7000);
	histogram_merge(&a, &b);
	CU_ASSERT_EQUAL(a.total, 3);
	CU_ASSERT_EQUAL(a.min, 5);
	CU_ASSERT_EQUAL(a.max, 7000);
}

static void test_a_block_says_where_when_and_by_whom_it_was_written(void)
{
	uint8_t buf[4 * 512];
	struct pattern_write w = {.writer = 42, .generation = 7, .issued_ms = 1234};
	struct pattern_found f;

	pattern_fill(buf, 512, 4, 1000, &w);
	for (unsigned b = 0; b < 4; b++) {
		CU_ASSERT(pattern_read(buf + b * 512, 512, &f));
		CU_ASSERT_EQUAL(f.lba, 1000 + b);
		CU_ASSERT_EQUAL(f.write.writer, 42);
		CU_ASSERT_EQUAL(f.write.generation, 7);
		CU_ASSERT_EQUAL(f.write.issued_ms, 1234);
	}
	memset(buf, 0, 512); /* never written */
	CU_ASSERT(!pattern_read(buf, 512, &f));
	CU_ASSERT_EQUAL(f.bad_offset, 0);
}

static void test_writers_differ_by_host_run_target_and_namespace(void)
{
	uint64_t a = pattern_writer_id("nqn.2026-11.io.varve:a", 1, 0, 1);

	CU_ASSERT_EQUAL(a, pattern_writer_id("nqn.2026-11.io.varve:a", 1, 0, 1));
	CU_ASSERT_NOT_EQUAL(a, pattern_writer_id("nqn.2026-11.io.varve:b", 1, 0, 1));
	CU_ASSERT_NOT_EQUAL(a, pattern_writer_id("nqn.2026-11.io.varve:a", 2, 0, 1));
	CU_ASSERT_NOT_EQUAL(a, pattern_writer_id("nqn.2026-11.io.varve:a", 1, 1, 1));
	CU_ASSERT_NOT_EQUAL(a, pattern_writer_id("nqn.2026-11.io.varve:a", 1, 0, 2));
}

static void test_one_wrong_byte_is_found_with_its_place(void)
{
	uint8_t buf[512];
	struct pattern_write w = {.writer = 42, .generation = 1};
	struct pattern_found f;

	for (unsigned i = 0; i < sizeof(buf); i++) {
		pattern_fill(buf, 512, 1, 5, &w);
		buf[i] ^= 0x10;
		CU_ASSERT(!pattern_read(buf, 512, &f));
		if (i >= 16 && i < sizeof(buf) - 16) { /* else the numbers of the write, on which all marks depend */
			CU_ASSERT_EQUAL(f.bad_offset, i / 16 * 16);
		}
	}
}

static void test_a_block_that_is_mixed_from_two_writes_is_found(void)
{
	uint8_t buf[512], other[512];
	struct pattern_write w = {.writer = 42, .generation = 1}, newer = {.writer = 42, .generation = 2};
	struct pattern_found f;

	for (unsigned cut = 16; cut < sizeof(buf); cut += 16) {
		pattern_fill(buf, 512, 1, 5, &w);
		pattern_fill(other, 512, 1, 5, &newer);
		memcpy(buf + cut, other + cut, sizeof(buf) - cut);
		CU_ASSERT(!pattern_read(buf, 512, &f));
		CU_ASSERT(f.bad_offset <= cut);
	}
}

static void test_a_whole_transport_id_is_read(void)
{
	struct nvme_trid t;
	char error[NVME_ERROR_MAX];

	CU_ASSERT_EQUAL(
		nvme_trid_parse(
			&t, " trtype:rdma  adrfam:IPv4 traddr:10.0.0.1 trsvcid:4420 subnqn:nqn.2026-11.io.varve:a\n",
			error),
		0);
	CU_ASSERT_EQUAL(t.trtype, NVME_TRTYPE_RDMA);
	CU_ASSERT_EQUAL(t.adrfam, 1);
	CU_ASSERT_STRING_EQUAL(t.traddr, "10.0.0.1");
	CU_ASSERT_STRING_EQUAL(t.trsvcid, "4420");
	CU_ASSERT_STRING_EQUAL(t.subnqn, "nqn.2026-11.io.varve:a");
	CU_ASSERT_EQUAL(nvme_trid_parse(&t, "trtype:RDMA traddr:fe80::1", error), 0);
	CU_ASSERT_STRING_EQUAL(t.traddr, "fe80::1");
}

static void test_bad_transport_ids_are_refused_with_their_key_and_value(void)
{
	static const struct {
		const char *text, *says;
	} bad[] = {
		{"", "trtype"},
		{"trtype:RDMA", "traddr"},
		{"traddr:10.0.0.1", "trtype"},
		{"trtype:FC traddr:a", "FC"},
		{"trtype:RDMA traddr:a adrfam:ib", "ib"},
		{"trtype:RDMA traddr:a port:4420", "port"},
		{"trtype:RDMA traddr", "traddr"},
		{":RDMA", ":RDMA"},
		{"trtype:RDMA traddr:a subnqn:volume", "volume"},
		{"trtype:RDMA traddr:a trsvcid:123456789012345678901234567890123", "trsvcid"},
		{"averyveryverylongkey:1", "averyvery"},
		{"trtype:RDMA traddr:10.0.0.1 trsvcid:0", "trsvcid '0'"},
		{"trtype:RDMA traddr:10.0.0.1 trsvcid:99999", "trsvcid '99999' is not allowed: a port, 1 to 65535"},
		{"trtype:RDMA traddr:storage", "traddr 'storage' is not allowed: a numeric IP address"},
		{"trtype:RDMA adrfam:IPv6 traddr:10.0.0.1", "a numeric IPv6 address"},
	};
	struct nvme_trid t;
	char error[NVME_ERROR_MAX];

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		CU_ASSERT_NOT_EQUAL(nvme_trid_parse(&t, bad[i].text, error), 0);
		CU_ASSERT_PTR_NOT_NULL(strstr(error, bad[i].says));
	}
	char longest[400] = "trtype:RDMA traddr:";
	memset(longest + strlen(longest), 'a', 300);
	CU_ASSERT_NOT_EQUAL(nvme_trid_parse(&t, longest, error), 0);
}

static void test_nqns(void)
{
	char longest[NVME_NQN_MAX + 2] = "nqn.2026-11.io.varve:";

	CU_ASSERT(nvme_nqn_is_valid("nqn.2014-08.org.nvmexpress.discovery"));
	CU_ASSERT(nvme_nqn_is_valid("nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555"));
	CU_ASSERT(!nvme_nqn_is_valid(""));
	CU_ASSERT(!nvme_nqn_is_valid("nqn.2014-08."));
	CU_ASSERT(!nvme_nqn_is_valid("nqn.14-08.org.x:y"));
	CU_ASSERT(!nvme_nqn_is_valid("iqn.2014-08.org.x:y"));
	CU_ASSERT(!nvme_nqn_is_valid("nqn.2014-08.org.x:a b"));
	CU_ASSERT(nvme_nqn_is_valid("nqn.2014-08.org.x:\xc3\xa9\xc2\xa0\xe2\x82\xac"));
	CU_ASSERT(!nvme_nqn_is_valid("nqn.2014-08.org.x:\x7f"));
	CU_ASSERT(!nvme_nqn_is_valid("nqn.2014-08.org.x:\xc3("));
	CU_ASSERT(!nvme_nqn_is_valid("nqn.2014-08.org.x:\x1b[2J"));
	CU_ASSERT(!nvme_nqn_is_valid("nqn.2014-08.org.x:\xc2\x9b"
				     "2J")); /* what a terminal takes for the same */
	CU_ASSERT(!nvme_nqn_is_valid("nqn.2014-08.org.x:a\xc2"));
	memset(longest + strlen(longest), 'x', 223 - strlen(longest));
	CU_ASSERT(nvme_nqn_is_valid(longest));
	longest[223] = 'x';
	CU_ASSERT(!nvme_nqn_is_valid(longest));
}

static struct nvmf_disc_log_entry record(void)
{
	struct nvmf_disc_log_entry e = {.trtype = NVMF_TRTYPE_RDMA,
					.adrfam = NVMF_ADDR_FAMILY_IP4,
					.subtype = NVME_NQN_NVME,
					.portid = htole16(7)};

	memset(e.trsvcid, ' ', sizeof(e.trsvcid));
	memcpy(e.trsvcid, "4420", 4);
	memset(e.traddr, ' ', sizeof(e.traddr));
	memcpy(e.traddr, "10.0.0.1", 8);
	strcpy(e.subnqn, "nqn.2026-11.io.varve:a");
	return e;
}

static void test_a_discovery_record_gives_a_transport_id(void)
{
	struct nvmf_disc_log_entry e = record();
	struct nvme_discovered d;

	CU_ASSERT_EQUAL(nvme_discovery_decode(&e, &d), 0);
	CU_ASSERT_STRING_EQUAL(d.trid.traddr, "10.0.0.1");
	CU_ASSERT_STRING_EQUAL(d.trid.trsvcid, "4420");
	CU_ASSERT_STRING_EQUAL(d.trid.subnqn, "nqn.2026-11.io.varve:a");
	CU_ASSERT_EQUAL(d.subtype, 2);
	CU_ASSERT_EQUAL(d.port_id, 7);
	e.trtype = NVMF_TRTYPE_TCP;
	CU_ASSERT_EQUAL(nvme_discovery_decode(&e, &d), 0);
	CU_ASSERT_EQUAL(d.trid.trtype, NVME_TRTYPE_TCP);
}

static void test_bad_discovery_records_are_refused(void)
{
	struct nvmf_disc_log_entry e = record();
	struct nvme_discovered d;

	e.trtype = NVMF_TRTYPE_FC;
	CU_ASSERT_EQUAL(nvme_discovery_decode(&e, &d), -EPROTONOSUPPORT);
	e.trtype = NVME_TRTYPE_PCIE; /* a transport that we have, but no network */
	CU_ASSERT_EQUAL(nvme_discovery_decode(&e, &d), -EPROTONOSUPPORT);
	e = record();
	e.adrfam = 254; /* NVMe-oF's loopback: beyond the bits of a mask */
	CU_ASSERT_EQUAL(nvme_discovery_decode(&e, &d), -EAFNOSUPPORT);
	e.adrfam = 4;
	CU_ASSERT_EQUAL(nvme_discovery_decode(&e, &d), -EAFNOSUPPORT);
	e = record();
	memset(e.traddr, ' ', sizeof(e.traddr));
	CU_ASSERT_EQUAL(nvme_discovery_decode(&e, &d), -EINVAL);
	e = record();
	memset(e.traddr, 'x', sizeof(e.traddr)); /* all of it, and no end */
	CU_ASSERT_EQUAL(nvme_discovery_decode(&e, &d), 0);
	memset(e.subnqn, 'n', sizeof(e.subnqn));
	CU_ASSERT_EQUAL(nvme_discovery_decode(&e, &d), -EINVAL);
	e = record();
	e.trsvcid[1] = 1;
	CU_ASSERT_EQUAL(nvme_discovery_decode(&e, &d), -EINVAL);
	e.trsvcid[1] = 0x7f;
	CU_ASSERT_EQUAL(nvme_discovery_decode(&e, &d), -EINVAL);
}

static const struct unit_test tests[] = {
	UNIT(test_a_discovery_record_gives_a_transport_id),
	UNIT(test_bad_discovery_records_are_refused),
	UNIT(test_every_value_falls_into_a_bucket_that_is_exact_to_one_percent),
	UNIT(test_percentiles_of_known_values),
	UNIT(test_merging_keeps_the_extremes),
	UNIT(test_a_block_says_where_when_and_by_whom_it_was_written),
	UNIT(test_writers_differ_by_host_run_target_and_namespace),
	UNIT(test_a_block_that_is_mixed_from_two_writes_is_found),
	UNIT(test_one_wrong_byte_is_found_with_its_place),
	UNIT(test_a_whole_transport_id_is_read),
	UNIT(test_bad_transport_ids_are_refused_with_their_key_and_value),
	UNIT(test_nqns),
	UNIT_END,
};
UNIT_MAIN("perf_util", tests, NULL, NULL)
