/* SPDX-License-Identifier: BSD-3-Clause */
/* Texts for the Error Information log and the SMART log. */
#include <string.h>

#include "nvme/nvme.h"
#include "unittest/unit.h"

static void test_new_errors_are_those_after_the_last_one_that_was_seen(void)
{
	struct nvme_error_log_page e[4] = {
		{.error_count = htole64(9)}, {.error_count = htole64(8)}, {.error_count = htole64(5)}};

	CU_ASSERT_EQUAL(nvme_error_log_new(e, 4, 0), 1); /* the others may be years old */
	CU_ASSERT_EQUAL(nvme_error_log_new(e, 4, 9), 0);
	CU_ASSERT_EQUAL(nvme_error_log_new(e, 4, 8), 1);
	CU_ASSERT_EQUAL(nvme_error_log_new(e, 4, 5), 2);
	CU_ASSERT_EQUAL(nvme_error_log_new(e, 4, 1), 3); /* the fourth entry is empty */
	CU_ASSERT_EQUAL(nvme_error_log_new(e, 2, 1), 2);
	CU_ASSERT_EQUAL(nvme_error_log_new(e, 4, 20), 1); /* the count has begun anew */
	CU_ASSERT_EQUAL(nvme_error_log_new(e, 0, 1), 0);
	e[0].error_count = 0;
	CU_ASSERT_EQUAL(nvme_error_log_new(e, 4, 0), 0);
}

static void test_error_names_its_command_block_and_status(void)
{
	struct nvme_error_log_page e = {.error_count = htole64(7),
					.sqid = htole16(2),
					.cmdid = htole16(33),
					.status_field = htole16(NVME_ST(MEDIA, READ_ERROR) << 1 | 1),
					.lba = htole64(4096),
					.nsid = htole32(1)};
	char text[NVME_HEALTH_TEXT_MAX], small[12];

	nvme_error_log_text(&e, text, sizeof(text));
	CU_ASSERT_STRING_EQUAL(text,
			       "error 7: queue pair 2, command 33, namespace 1, LBA 4096: unrecovered read error");
	e.rsvd[1] = 2;   /* of Base 2.0: the opcode */
	e.rsvd2[21] = 1; /* ... if the page has this version */
	nvme_error_log_text(&e, text, sizeof(text));
	CU_ASSERT_PTR_NOT_NULL(strstr(text, "command 33 (opcode 0x02), "));
	e.sqid = htole16(0xffff);
	nvme_error_log_text(&e, text, sizeof(text));
	CU_ASSERT_PTR_NOT_NULL(strstr(text, "of no command"));
	nvme_error_log_text(&e, small, sizeof(small));
	CU_ASSERT_STRING_EQUAL(small, "error 7: of");
}

static void test_critical_warning_is_in_words(void)
{
	struct nvme_smart_log smart = {.critical_warning = 1 | 1 << 3,
				       .temperature = {(300 & 0xff), 300 >> 8},
				       .avail_spare = 4,
				       .spare_thresh = 10,
				       .percent_used = 99};
	char text[NVME_HEALTH_TEXT_MAX], small[40];

	nvme_smart_text(&smart, text, sizeof(text));
	CU_ASSERT_STRING_EQUAL(
		text,
		"the spare blocks are below their threshold, the media have become read-only: critical warning 0x09, "
		"27 degrees Celsius, 4 % of the spare blocks left (threshold 10 %), 99 % worn");
	smart.critical_warning = 0;
	nvme_smart_text(&smart, text, sizeof(text));
	CU_ASSERT_EQUAL(strncmp(text, "critical warning 0x00, ", 23), 0);
	smart.critical_warning = 0xff;
	nvme_smart_text(&smart, text, sizeof(text));
	CU_ASSERT(strlen(text) < sizeof(text) - 1); /* all of it fits */
	nvme_smart_text(&smart, small, sizeof(small));
	CU_ASSERT_EQUAL(strlen(small), sizeof(small) - 1);
}

static const struct unit_test tests[] = {
	UNIT(test_new_errors_are_those_after_the_last_one_that_was_seen),
	UNIT(test_error_names_its_command_block_and_status),
	UNIT(test_critical_warning_is_in_words),
	UNIT_END,
};
UNIT_MAIN("nvme_health", tests, NULL, NULL)
