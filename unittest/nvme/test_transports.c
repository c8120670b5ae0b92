/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of transports: a transport that has registered itself can be named, found and discovered, and no other code
 * knows of it. */
#include <errno.h>
#include <string.h>

#include "nvme/transport.h"
#include "unittest/unit.h"

#define NEW_TRTYPE 5

static const struct nvme_transport_ops new_ops = {
	.transport = {.trtype = (enum nvme_trtype)NEW_TRTYPE,
		      .name = "New",
		      .fabrics = true,
		      .keys = NVME_TRID_ADRFAM | NVME_TRID_TRSVCID | NVME_TRID_SUBNQN,
		      .adrfams = 1u << NVMF_ADDR_FAMILY_IP4,
		      .default_trsvcid = "8009"},
	.request_size = 4096,
};

__attribute__((constructor)) static void register_new(void)
{
	nvme_transport_register(&new_ops);
}

static struct nvmf_disc_log_entry record(uint8_t trtype, uint8_t adrfam)
{
	struct nvmf_disc_log_entry e = {.trtype = trtype, .adrfam = adrfam, .subtype = NVME_NQN_NVME};

	strcpy(e.traddr, "10.0.0.1");
	strcpy(e.trsvcid, "8009");
	strcpy(e.subnqn, "nqn.2026-11.io.varve:a");
	return e;
}

static int decode(uint8_t trtype, uint8_t adrfam, enum nvme_trtype *decoded)
{
	struct nvmf_disc_log_entry e = record(trtype, adrfam);
	struct nvme_discovered d;
	int rc = nvme_discovery_decode(&e, &d);

	*decoded = d.trid.trtype;
	return rc;
}

static void test_transports_over_fabrics_are_named_before_local_ones(void)
{
	char names[NVME_TRANSPORT_NAMES_MAX];

	CU_ASSERT_STRING_EQUAL(nvme_transport_names(false, names, sizeof(names)), "RDMA, TCP, New or PCIe");
	CU_ASSERT_STRING_EQUAL(nvme_transport_names(true, names, sizeof(names)), "RDMA, TCP or New");
	CU_ASSERT_STRING_EQUAL(nvme_transport_names(true, names, 6), "RDMA,");
}

static void test_a_transport_is_found_by_number_and_by_name_in_any_case(void)
{
	CU_ASSERT_PTR_EQUAL(nvme_transport_find((enum nvme_trtype)NEW_TRTYPE), &new_ops.transport);
	CU_ASSERT_PTR_EQUAL(nvme_transport_find_by_name("nEW"), &new_ops.transport);
	CU_ASSERT_STRING_EQUAL(nvme_trtype_name(NVME_TRTYPE_PCIE), "PCIe");
	CU_ASSERT(nvme_trtype_is_fabrics(NVME_TRTYPE_RDMA) && !nvme_trtype_is_fabrics(NVME_TRTYPE_PCIE));
	CU_ASSERT_PTR_NULL(nvme_transport_find((enum nvme_trtype)2));
	CU_ASSERT_PTR_NULL(nvme_transport_find_by_name("FC"));
	CU_ASSERT_STRING_EQUAL(nvme_trtype_name((enum nvme_trtype)2), "unknown");
	CU_ASSERT(!nvme_trtype_is_fabrics((enum nvme_trtype)2));
}

static void test_a_transport_id_may_name_any_transport_and_an_error_names_all(void)
{
	struct nvme_trid t;
	char error[NVME_ERROR_MAX];

	CU_ASSERT_EQUAL(nvme_trid_parse(&t, "traddr:10.0.0.1 trtype:new", error), 0);
	CU_ASSERT_EQUAL(t.trtype, (enum nvme_trtype)NEW_TRTYPE);
	CU_ASSERT_EQUAL(nvme_trid_parse(&t, "traddr:10.0.0.1 trtype:FC", error), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(error, "RDMA, TCP, New or PCIe"));
	CU_ASSERT_EQUAL(nvme_trid_parse(&t, "traddr:10.0.0.1", error), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(error, "RDMA, TCP, New or PCIe must be given"));
}

static void test_address_families_are_read_in_any_case_and_written_by_name(void)
{
	uint8_t adrfam = 0;

	CU_ASSERT(nvme_adrfam_parse("ipv6", &adrfam) && adrfam == NVMF_ADDR_FAMILY_IP6);
	CU_ASSERT(nvme_adrfam_parse("IPv4", &adrfam) && adrfam == NVMF_ADDR_FAMILY_IP4);
	CU_ASSERT_FALSE(nvme_adrfam_parse("ib", &adrfam));
	CU_ASSERT_EQUAL(adrfam, NVMF_ADDR_FAMILY_IP4); /* unchanged */
	CU_ASSERT_STRING_EQUAL(nvme_adrfam_name(NVMF_ADDR_FAMILY_IP6), "IPv6");
	CU_ASSERT_STRING_EQUAL(nvme_adrfam_name(0), "IPv4");
}

static void test_discovery_finds_addresses_of_the_transports_that_are_there(void)
{
	enum nvme_trtype trtype;

	CU_ASSERT_EQUAL(decode(NEW_TRTYPE, NVMF_ADDR_FAMILY_IP4, &trtype), 0);
	CU_ASSERT_EQUAL(trtype, (enum nvme_trtype)NEW_TRTYPE);
	CU_ASSERT_EQUAL(decode(NEW_TRTYPE, NVMF_ADDR_FAMILY_IP6, &trtype), -EAFNOSUPPORT);
	CU_ASSERT_EQUAL(decode(NVMF_TRTYPE_RDMA, NVMF_ADDR_FAMILY_IP6, &trtype), 0);
	CU_ASSERT_EQUAL(decode(NVMF_TRTYPE_RDMA, 254, &trtype), -EAFNOSUPPORT);
	CU_ASSERT_EQUAL(decode(NVMF_TRTYPE_FC, NVMF_ADDR_FAMILY_IP4, &trtype), -EPROTONOSUPPORT);
	CU_ASSERT_EQUAL(decode(NVMF_TRTYPE_UNSPECIFIED, NVMF_ADDR_FAMILY_IP4, &trtype), -EPROTONOSUPPORT);
}

static void test_requests_have_room_for_every_transport(void)
{
	CU_ASSERT(nvme_request_size() >= sizeof(struct nvme_request) + 4096);
}

static const struct unit_test tests[] = {
	UNIT(test_transports_over_fabrics_are_named_before_local_ones),
	UNIT(test_a_transport_is_found_by_number_and_by_name_in_any_case),
	UNIT(test_a_transport_id_may_name_any_transport_and_an_error_names_all),
	UNIT(test_address_families_are_read_in_any_case_and_written_by_name),
	UNIT(test_discovery_finds_addresses_of_the_transports_that_are_there),
	UNIT(test_requests_have_room_for_every_transport),
	UNIT_END,
};
UNIT_MAIN("nvme_transports", tests, NULL, NULL)
